"""Decode request messages into the requests of the use cases.

What cannot be read, or is not there and must be, raises InvalidRequest with its path.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from topospread.checkpoints import checkpoint
from topospread.codec.pods import (
    checked_reference,
    observed_from_proto,
    pod_from_proto,
    pod_from_source,
    selector_of,
)
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.versions import parse_version
from topospread.kube.violations import NOT_SUPPORTED, invalid, required, unknown
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.request import (
    NodeSelection,
    PodOnNode,
    PodRef,
    SettingsOverride,
)
from topospread.service.fit.question import Fit
from topospread.spread.settings import NEWEST, RELEASES, known_versions
from topospread.store.model import CLUSTER_SCOPED, DEFAULT_LIFETIME, MAX_LIFETIME, Key, Kind
from topospread.store.values import OBSERVABLE
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.duration_pb2 import Duration


_VALIDATIONS: Final = frozenset(common_pb2.ConstraintValidation.values())
_FITS: Final = {
    common_pb2.FIT_UNSPECIFIED: None,
    common_pb2.FIT_SPREAD_ONLY: Fit.SPREAD_ONLY,
    common_pb2.FIT_NODE: Fit.NODE,
    common_pb2.FIT_ALL: Fit.ALL,
}

DecisionFrame = (
    frames_pb2.PreFilterFrame
    | frames_pb2.FilterFrame
    | frames_pb2.ScoreFrame
    | frames_pb2.EvaluatePodFrame
)
"""The decision requests; they share the fields that are read here."""

PlacingFrame = frames_pb2.PlacePodFrame | frames_pb2.ReserveNodeFrame
"""The requests that reserve nodes."""

MAX_REQUEST_ID: Final = 36
"""Bytes of a request id: those of a UUID."""


def node_of(request: frames_pb2.ReserveNodeFrame) -> str:
    """The node to reserve."""
    if not request.node:
        raise InvalidRequest.of([required("node", "")])
    return request.node


def reservation_ttl_of(request: PlacingFrame) -> int:
    """The TTL of a reservation, in milliseconds."""
    if not request.HasField("reservation_ttl"):
        return DEFAULT_LIFETIME
    ttl = request.reservation_ttl
    milliseconds = ttl.seconds * 1000 + ttl.nanos // 1_000_000
    if not 0 < milliseconds <= MAX_LIFETIME:
        text = "must be at least a millisecond and at most 168h"
        raise InvalidRequest.of([invalid("reservationTtl", f"{milliseconds / 1000:g}s", text)])
    return milliseconds


def request_id_of(request: PlacingFrame) -> int:
    """The number that stands for a request id; 0 for none."""
    encoded = request.request_id.encode()
    if len(encoded) > MAX_REQUEST_ID:
        text = f"must be no more than {MAX_REQUEST_ID} bytes"
        raise InvalidRequest.of([FieldViolation("requestId", text, "Too long")])
    if encoded:
        return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") or 1
    if request.is_repeat:
        text = "a call that is a repeat has the id of the first one"
        raise InvalidRequest.of([required("requestId", text)])
    return 0


def path_of(pod: frames_pb2.PodSourceFrame, path: str = "pod") -> str:
    """The path of the pod itself in a request."""
    arm = pod.WhichOneof("source")
    if arm == "ref":
        return f"{path}.ref"
    return f"{path}.objectProto" if arm == "object_proto" else f"{path}.object"


def under_pod(
    wrong: InvalidRequest, pod: frames_pb2.PodSourceFrame, path: str = "pod"
) -> InvalidRequest:
    """The same error with paths that begin at the request instead of its pod."""
    here = path_of(pod, path)
    return wrong.named(here) if pod.HasField("ref") else wrong.under(here)


def reference_of(pod: common_pb2.PodReference, path: str = "pod") -> PodRef:
    """The name of a pod."""
    checked_reference(pod, path)
    return PodRef(pod.name, pod.namespace or DEFAULT_NAMESPACE, pod.uid)


def strict(validation: common_pb2.ConstraintValidation.ValueType) -> bool:
    """Whether constraints are validated as the API server does."""
    if not validation:
        return False
    if validation not in _VALIDATIONS:
        known = common_pb2.ConstraintValidation.keys()
        raise InvalidRequest.of([unknown("validation", validation, known)])
    return validation == common_pb2.CONSTRAINT_VALIDATION_STRICT


def pods_on_nodes_of(
    moves: Sequence[common_pb2.PodOnNode], path: str, first: int = 0
) -> Sequence[PodOnNode]:
    """Decode pods on nodes, which a decision adds or removes."""
    return [_move(move, f"{path}[{number}].pod") for number, move in enumerate(moves, first)]


def _move(move: common_pb2.PodOnNode, path: str) -> PodOnNode:
    checkpoint()
    pod, here = pod_from_source(move.pod, path)
    if isinstance(pod, common_pb2.PodReference):
        return PodOnNode(reference_of(pod, here), move.node)
    return PodOnNode(pod_from_proto(pod), move.node)


def fit_of(fit: common_pb2.Fit.ValueType) -> Fit | None:
    """The fit that a request asks for beside spreading; None when it names none."""
    if fit not in _FITS:
        raise InvalidRequest.of([unknown("fit", fit, common_pb2.Fit.keys())])
    return _FITS[fit]


def candidates_of(selection: common_pb2.NodeSelection) -> NodeSelection:
    """Decode the chosen nodes; an empty selection has none."""
    if selection.WhichOneof("selection") == "indices":
        return NodeSelection(
            indices=selection.indices.indices, node_table=selection.indices.node_table_id
        )
    return NodeSelection(names=selection.names.names)


def settings_of(settings: common_pb2.Settings) -> SettingsOverride:
    """Decode the rules that a request asks for."""
    # A map's keys come in another order in each process, and the violations with them.
    gates = dict(sorted(settings.feature_gates.items()))
    version = None
    if settings.kubernetes_version:
        version = parse_version(settings.kubernetes_version)
        if version is not None:
            version = min(version, NEWEST)
        if version not in RELEASES:
            path, given = "settings.kubernetesVersion", settings.kubernetes_version[:64]
            text = f"no known version; known: {known_versions()}"
            raise InvalidRequest.of([FieldViolation(path, text, NOT_SUPPORTED, given)])
    if settings.WhichOneof("rules") == "args":
        from topospread.codec.scheduler_config import profile_from_proto

        try:
            profile = profile_from_proto(settings.args)
        except InvalidRequest as refused:
            raise refused.under("settings.args") from None
        return SettingsOverride(profile, gates, version)
    return SettingsOverride(settings.profile, gates, version)


def token_of(encoded: str, path: str) -> Token:
    """Decode a revision."""
    try:
        return Token.decode(encoded)
    except InvalidRequest as wrong:
        raise wrong.under(path) from wrong


def consistency_of(consistency: common_pb2.Consistency) -> Consistency:
    """Decode how fresh the state behind the response must be."""
    staleness = None
    if consistency.HasField("max_staleness"):
        staleness = _seconds(consistency.max_staleness)
    match consistency.WhichOneof("requirement"):
        case "at_least_as_fresh":
            token = token_of(consistency.at_least_as_fresh, "consistency.atLeastAsFresh")
            return Consistency(Freshness.AT_LEAST_AS_FRESH, token, staleness)
        case "not_older_than":
            path = "consistency.notOlderThan.versions"
            versions = observed_from_proto(consistency.not_older_than.versions, path)
            if not versions:
                raise InvalidRequest.of([required(path, "give a version that was seen")])
            observed = tuple(versions.items())
            return Consistency(Freshness.NOT_OLDER_THAN, None, staleness, observed)
        case "fully_consistent" if consistency.fully_consistent:
            return Consistency(Freshness.FULLY_CONSISTENT, None, staleness)
        case ("fully_consistent" | "minimize_latency") as arm if not getattr(consistency, arm):
            camel = "fullyConsistent" if arm == "fully_consistent" else "minimizeLatency"
            raise InvalidRequest.of(
                [FieldViolation(f"consistency.{camel}", "must be true, or absent", bad_value=False)]
            )
    return Consistency(max_staleness=staleness)


def _seconds(duration: Duration) -> float:
    seconds = duration.seconds + duration.nanos / 1e9
    if seconds < 0:
        raise InvalidRequest.of(
            [FieldViolation("consistency.maxStaleness", "must not be negative", bad_value=seconds)]
        )
    return seconds


def check_required(value: str, path: str, detail: str = "") -> None:
    """Check that a field is set."""
    if not value:
        raise InvalidRequest.of([required(path, detail)])


def object_kind(kind: int, path: str) -> Kind:
    """The kind of an object that clients write."""
    return any_kind(kind, path, OBSERVABLE)


def any_kind(kind: int, path: str, known: Sequence[Kind]) -> Kind:
    """The store's kind of a number on the wire."""
    # The store's kinds have the same numbers.
    found = next((each for each in known if each.value == kind), None)
    if found is None:
        raise InvalidRequest.of([unknown(path, kind, [f"KIND_{each.name}" for each in known])])
    return found


def object_key(kind: int, namespace: str, name: str, path: str) -> Key:
    """The store's key of an object."""
    known = object_kind(kind, path)
    return Key(known, "" if known in CLUSTER_SCOPED else namespace or DEFAULT_NAMESPACE, name)


def label_matcher(request: Any) -> Callable[[Mapping[str, str]], bool] | None:
    """A function that matches labels with a list's selector; None for all."""
    if not request.HasField("label_selector"):
        return None
    return selector_of(request.label_selector, "labelSelector").matches
