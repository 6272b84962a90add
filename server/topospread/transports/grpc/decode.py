"""Request messages to what the use cases ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.frames import framed
from topospread.codec.pods import pod_from_proto
from topospread.codec.settings import profile_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import required
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency, Freshness
from topospread.replica.view import Token
from topospread.service.asks import (
    DEFAULT_CLUSTER,
    NO_SETTINGS,
    Ask,
    Move,
    NodeChoice,
    PodRef,
    SettingsAsk,
)
from topospread.service.fit import Fit
from topospread_proto.v1 import frames_pb2, placement_pb2

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from topospread.service.engine import Engine
    from topospread.service.shapes import ShapedPod
    from topospread.transports.grpc.calls import Call
    from topospread_proto.v1 import common_pb2

_FITS: Final = {
    placement_pb2.FIT_UNSPECIFIED: None,
    placement_pb2.FIT_SPREAD_ONLY: Fit.SPREAD_ONLY,
    placement_pb2.FIT_NODE: Fit.NODE,
    placement_pb2.FIT_NODE_AND_RESOURCES: Fit.NODE_AND_RESOURCES,
}

PodFrame = (
    frames_pb2.PreFilterFrame
    | frames_pb2.FilterFrame
    | frames_pb2.ScoreFrame
    | frames_pb2.EvaluateFrame
)
"""The decision requests; they share the fields that are read here."""


def ask_of(
    request: PodFrame,
    call: Call,
    engine: Engine,
    *,
    cycle: str = "",
    nodes: NodeChoice | None = None,
    node_table: str = "",
) -> Ask:
    """The question of a decision request.

    Args:
        request: any of them.
        call: for the deadline.
        engine: knows pods by their shapes.
        cycle: the cycle it names.
        nodes: the nodes it chose.
        node_table: the table it holds.

    Raises:
        InvalidRequest: something in it cannot be read.
    """
    return Ask(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        subject=_subject(request, engine),
        cycle=cycle,
        add_pods=[_move(move) for move in request.add_pods],
        remove_pods=[_move(move) for move in request.remove_pods],
        nodes=nodes,
        node_table=node_table,
        settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        validate=request.validate,
    )


def batch_ask_of(request: frames_pb2.BatchEvaluateFrame, call: Call) -> Ask:
    """What the pods of a batch have in common."""
    return Ask(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        validate=request.validate,
    )


def _subject(request: PodFrame, engine: Engine) -> ShapedPod | PodRef | None:
    pod = request.pod
    if pod:
        return engine.shaped(framed(pod[0] if len(pod) == 1 else b"".join(pod)))
    if not request.HasField("pod_ref"):
        return None
    reference = request.pod_ref
    if not reference.name:
        raise InvalidRequest.of([FieldViolation("podRef.name", "", "Required value")])
    return PodRef(reference.name, reference.namespace or DEFAULT_NAMESPACE)


def pod_of(
    request: frames_pb2.PlaceFrame | frames_pb2.ReserveFrame | frames_pb2.ExplainFrame,
) -> bytes | PodRef:
    """The bytes of the pod that a request is about, or its name in the state.

    Raises:
        InvalidRequest: neither is given.
    """
    if request.pod:
        return request.pod[0] if len(request.pod) == 1 else b"".join(request.pod)
    if not request.HasField("pod_ref"):
        raise InvalidRequest("give a pod, or the name of one in the state")
    if not request.pod_ref.name:
        raise InvalidRequest.of([required("podRef.name", "")])
    return PodRef(request.pod_ref.name, request.pod_ref.namespace or DEFAULT_NAMESPACE)


def _move(move: common_pb2.PodOnNode) -> Move:
    checkpoint()
    return Move(pod_from_proto(move.pod), move.node)


def fit_of(fit: placement_pb2.Fit.ValueType) -> Fit | None:
    """How much a caller asks beside spreading; None when it does not say.

    Raises:
        InvalidRequest: a number that is none of those.
    """
    if fit not in _FITS:
        known = ", ".join(placement_pb2.Fit.keys())
        raise InvalidRequest.of(
            [FieldViolation("fit", f"must be one of {known}", "Unsupported value", fit)]
        )
    return _FITS[fit]


def nodes_of(selection: common_pb2.NodeSelection) -> NodeChoice:
    """The nodes a caller chose."""
    return NodeChoice(selection.names, selection.indices, selection.node_table)


def settings_of(settings: common_pb2.Settings) -> SettingsAsk:
    """By which rules a caller wants to be judged.

    Raises:
        InvalidRequest: arguments that the plugin refuses, or a profile and arguments at once.
    """
    profile = settings.profile
    if not settings.HasField("args"):
        return SettingsAsk(profile, dict(settings.feature_gates))
    if profile:
        raise InvalidRequest("settings: give a profile or args, not both")
    return SettingsAsk(profile_from_proto(settings.args), dict(settings.feature_gates))


def consistency_of(consistency: common_pb2.Consistency) -> Consistency:
    """How fresh the answer must be.

    Raises:
        InvalidRequest: a token that is not one.
    """
    staleness = None
    if consistency.HasField("max_staleness"):
        staleness = _seconds(consistency.max_staleness)
    match consistency.WhichOneof("requirement"):
        case "at_least_as_fresh":
            token = Token.decode(consistency.at_least_as_fresh)
            return Consistency(Freshness.AT_LEAST_AS_FRESH, token, staleness)
        case "fully_consistent" if consistency.fully_consistent:
            return Consistency(Freshness.FULLY_CONSISTENT, None, staleness)
    return Consistency(max_staleness=staleness)


def _seconds(duration: Duration) -> float:
    seconds = duration.seconds + duration.nanos / 1e9
    if seconds < 0:
        raise InvalidRequest.of(
            [FieldViolation("consistency.maxStaleness", "must not be negative", bad_value=seconds)]
        )
    return seconds
