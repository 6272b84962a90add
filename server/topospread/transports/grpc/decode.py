"""Request messages to what the use cases ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.codec.pods import pod_from_proto
from topospread.codec.settings import profile_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE, Pod
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
from topospread_proto.v1 import spread_engine_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.duration_pb2 import Duration

    from topospread.transports.grpc.calls import Call
    from topospread_proto.v1 import common_pb2


PodRequest = (
    spread_engine_pb2.PreFilterRequest
    | spread_engine_pb2.FilterRequest
    | spread_engine_pb2.ScoreRequest
    | spread_engine_pb2.EvaluateRequest
)
"""The decision requests; they share the fields that are read here."""


def ask_of(
    request: PodRequest,
    call: Call,
    *,
    cycle: str = "",
    moves: tuple[Iterable[common_pb2.PodOnNode], Iterable[common_pb2.PodOnNode]] = ((), ()),
    nodes: NodeChoice | None = None,
    node_table: str = "",
) -> Ask:
    """The question of a decision request.

    Args:
        request: any of them.
        call: for the deadline.
        cycle: the cycle it names.
        moves: the pods it adds and removes.
        nodes: the nodes it chose.
        node_table: the table it holds.
    """
    add, remove = moves
    return Ask(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        subject=_subject(request),
        cycle=cycle,
        add_pods=tuple(map(_move, add)),
        remove_pods=tuple(map(_move, remove)),
        nodes=nodes,
        node_table=node_table,
        settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        validate=request.validate,
    )


def batch_ask_of(request: spread_engine_pb2.BatchEvaluateRequest, call: Call) -> Ask:
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


def _subject(request: PodRequest) -> Pod | PodRef | None:
    which = request.WhichOneof("subject")
    if which == "pod":
        return pod_from_proto(request.pod)
    if which == "pod_ref":
        reference = request.pod_ref
        if not reference.name:
            raise InvalidRequest.of([FieldViolation("podRef.name", "", "Required value")])
        return PodRef(reference.name, reference.namespace or DEFAULT_NAMESPACE)
    return None


def _move(move: common_pb2.PodOnNode) -> Move:
    return Move(pod_from_proto(move.pod), move.node)


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
