"""What requests have in common: cluster, settings, consistency, validation, page.

What cannot be read raises InvalidRequest, unless a :class:`~topospread.kube.violations.Problems`
is given that collects violations.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from topospread.api.decode import (
    consistency_of,
    fit_of,
    node_of,
    pods_on_nodes_of,
    reference_of,
    request_id_of,
    reservation_ttl_of,
    settings_of,
    strict,
    under_pod,
)
from topospread.errors import InvalidPod, InvalidRequest
from topospread.kube.violations import FIRST, Problems, required
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.service.decisions.evaluate import check_top_k
from topospread.service.decisions.pods import read_pod
from topospread.service.decisions.request import (
    DEFAULT_CLUSTER,
    NO_OVERRIDE,
    DecisionRequest,
    SettingsOverride,
)
from topospread.service.explaining.context import check_limit
from topospread.service.state.pages import PageRequest
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor

    from topospread.api.decode import DecisionFrame
    from topospread.calls.call import Call
    from topospread.codec.frames import FramedPod
    from topospread.generated.internal.v1 import frames_pb2
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import NodeSelection, PodRef


class Envelope(NamedTuple):
    """The shared fields of a request; what it does not have is as if it were empty.

    Attributes:
        settings: the rules that are asked for instead of the configured ones.
        consistency: how fresh the state behind the answer must be.
        validate: refuse constraints that the API server would refuse.
    """

    cluster: str
    settings: SettingsOverride
    consistency: Consistency
    validate: bool


_SHARED: Final = frozenset({"settings", "consistency", "validation"})


@cache
def _shared(kind: Descriptor) -> tuple[str, ...]:
    """Which of the shared fields the requests of a type have, in their order."""
    return tuple([field.name for field in kind.fields if field.name in _SHARED])


def read_cluster(request: Any, wrong: Problems) -> str:
    """The name of the cluster that a request is about."""
    cluster: str = request.cluster or DEFAULT_CLUSTER
    wrong.read(check_cluster, cluster)
    return cluster


def read_envelope(request: Any, wrong: Problems = FIRST) -> Envelope:
    """Read the shared fields of a request.

    Args:
        request: or its frame.
        wrong: collects what cannot be read.
    """
    settings, consistency, validate = NO_OVERRIDE, DEFAULT_CONSISTENCY, False
    for name in _shared(request.DESCRIPTOR):
        if name == "validation":
            if request.validation:
                validate = wrong.read(strict, request.validation)
        elif not request.HasField(name):
            continue
        elif name == "settings":
            settings = wrong.read(settings_of, request.settings)
        else:
            consistency = wrong.read(consistency_of, request.consistency)
    return Envelope(request.cluster or DEFAULT_CLUSTER, settings, consistency, validate)


def read_page(request: Any, wrong: Problems) -> PageRequest:
    """The page that a request asks for; its token is bound to the other fields of the request."""
    arguments = type(request)()
    arguments.CopyFrom(request)
    arguments.ClearField("page_size")
    arguments.ClearField("page_token")
    if "cluster" in request.DESCRIPTOR.fields_by_name:
        arguments.cluster = request.cluster or DEFAULT_CLUSTER
    # No two methods have the same request.
    name = request.DESCRIPTOR.full_name.encode()
    written = name + b"\0" + arguments.SerializeToString(deterministic=True)
    page = PageRequest(request.page_size, request.page_token, written)
    wrong.read(lambda: page.most)
    return page


# ------------------------------ decisions


def decision_request(
    request: DecisionFrame,
    call: Call,
    *,
    cycle: str = "",
    nodes: NodeSelection | None = None,
    node_table: str = "",
) -> DecisionRequest:
    """The request of a decision, decoded; a pod stays in its frame."""
    added, removed = request.add_pods, request.remove_pods
    pod = given_pod(request)
    add_pods = pods_on_nodes_of(added, "addPods") if added else ()
    remove_pods = pods_on_nodes_of(removed, "removePods") if removed else ()
    cluster, settings, consistency, validate = read_envelope(request)
    return DecisionRequest(  # by position: by name it takes twice as long
        call.deadline,
        cluster,
        pod,
        cycle,
        add_pods,
        remove_pods,
        nodes,
        node_table,
        settings,
        consistency,
        validate,
    )


def shared_request(request: Any, call: Call, nodes: NodeSelection | None = None) -> DecisionRequest:
    """The fields of a request that apply to all of its pods."""
    cluster, settings, consistency, validate = read_envelope(request)
    return DecisionRequest(
        deadline=call.deadline,
        cluster=cluster,
        nodes=nodes,
        settings=settings,
        consistency=consistency,
        validate=validate,
    )


def given_pod(request: DecisionFrame) -> FramedPod | PodRef | None:
    """The pod of a decision, as far as its frame is read, or its name; None where there is none."""
    if not request.HasField("pod"):
        return None
    pod = source_of(request.pod)
    return read_pod(pod) if isinstance(pod, bytes) else pod


def pod_of(
    request: frames_pb2.PlacePodFrame | frames_pb2.ReserveNodeFrame | frames_pb2.ExplainPodFrame,
) -> bytes | PodRef:
    """The bytes of the pod that a request is about, or its name in the state."""
    if not request.HasField("pod"):
        raise InvalidRequest.of([required("pod", "give a pod, or its name in the state")])
    return source_of(request.pod)


def source_of(pod: frames_pb2.PodSourceFrame, path: str = "pod") -> bytes | PodRef:
    """The bytes of a pod, or its name in the state."""
    if pod.HasField("object"):
        return pod.object.SerializeToString()
    if pod.HasField("object_proto"):
        return pod.object_proto
    if pod.HasField("ref"):
        return reference_of(pod.ref, f"{path}.ref")
    raise InvalidRequest.of([required(path, "give one of object, objectProto and ref")])


def raise_all_violations(first: InvalidRequest, request: Any, engine: Engine) -> None:
    """Find all violations of a request about a pod, after the first one was found.

    Decoding stops at the first violation, which costs a valid request nothing; an invalid one is
    read again.

    Args:
        first: the violation; the caller raises it again.
        request: a frame.
        engine: has the limits and the profiles.

    Raises:
        InvalidRequest: with more violations than the first, or with paths that begin at the
            request.
    """
    of_pod = isinstance(first, InvalidPod)
    own = under_pod(first, request.pod).violations if of_pod else first.violations
    wrong = Problems()
    _read_again(request, engine, wrong)
    wrong.forget_errors()
    found = {(each.field, each.description): each for each in (*own, *wrong.violations)}
    if len(found) > len(own):
        raise InvalidRequest.of(list(found.values())) from first
    if of_pod:
        raise under_pod(first, request.pod) from first


def _read_again(request: Any, engine: Engine, wrong: Problems) -> None:
    """Read each field of a request about a pod; a violation may be found twice."""
    read, fields = wrong.read, request.DESCRIPTOR.fields_by_name
    read_cluster(request, wrong)
    if "pod" in fields:
        read(_read_pod, request)
    for name, reader in _READERS.items():
        if name in fields:
            read(reader, request, engine)
    read_envelope(request, wrong)
    for name in ("add_pods", "remove_pods"):
        if name in fields:
            camel = fields[name].json_name
            for number, move in enumerate(getattr(request, name)):
                read(pods_on_nodes_of, [move], camel, number)


_READERS: Final[Mapping[str, Callable[[Any, Engine], object]]] = {
    "node": lambda request, _: node_of(request),
    "top_k": lambda request, engine: check_top_k(engine, request.top_k),
    "domain_limit": lambda request, _: check_limit(request.domain_limit),
    "fit": lambda request, _: fit_of(request.fit),
    "reservation_ttl": lambda request, _: reservation_ttl_of(request),
    "request_id": lambda request, _: request_id_of(request),
    "settings": lambda request, engine: engine.check_settings(settings_of(request.settings)),
}
"""What reads the fields of requests about pods that only some of them have."""


def _read_pod(request: Any) -> None:
    has_cycle = "cycle" in request.DESCRIPTOR.fields_by_name and request.cycle
    if has_cycle and not request.HasField("pod"):
        return  # the cycle has it
    pod = pod_of(request)
    if isinstance(pod, bytes):
        try:
            read_pod(pod)
        except InvalidPod as wrong:
            raise under_pod(wrong, request.pod) from wrong
