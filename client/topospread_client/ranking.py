"""Which pods of a workload should go first: RankForDeletion, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread_client import requests, rpcs
from topospread_client.answers import Answer
from topospread_client.errors import InvalidRequest
from topospread_client.operations import Operation, Session, call
from topospread_proto.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import planner_pb2, rank_pb2

if TYPE_CHECKING:
    from datetime import datetime

    from topospread_client.requests import Consistency, ObjectLike
    from topospread_proto.v1.cluster_state_pb2 import Object


class Strategy(StrEnum):
    """How pods are ranked; what each does is told in docs/scale-down.md."""

    EVEN = "even"
    PROPOSAL = "proposal"
    REPLICA_SET = "replicaset"


_NUMBERS: Final = {
    Strategy.EVEN: rank_pb2.RANK_STRATEGY_EVEN,
    Strategy.PROPOSAL: rank_pb2.RANK_STRATEGY_PROPOSAL,
    Strategy.REPLICA_SET: rank_pb2.RANK_STRATEGY_REPLICA_SET,
}
_STRATEGIES: Final = {number: strategy for strategy, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class KeepSpread:
    """What pods shall stay spread over.

    Attributes:
        topology_key: the node label whose values are the domains.
        values: only these are domains; none: all.
        max_skew: None takes that of the pods' own constraint with this key, 1 if they have none.
    """

    topology_key: str
    values: Sequence[str] = ()
    max_skew: int | None = None


@dataclass(frozen=True, slots=True)
class RankedPod:
    """One pod in the order of deletion.

    Attributes:
        node: None while it waits for one.
        rank: the higher, the sooner, among pods that no more important key tells apart.
        domains: one for each constraint; None where it has none.
        skews: of each constraint, when this pod and all before it are gone.
    """

    namespace: str
    name: str
    uid: str
    node: str | None
    rank: float
    domains: tuple[str | None, ...]
    skews: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankedConstraint:
    """A constraint as it was understood, and the state before any deletion.

    Attributes:
        pods: by domain, the fullest first; of at most 1,000 of the `domain_count` domains.
    """

    topology_key: str
    limited_values: tuple[str, ...]
    max_skew: int
    min_domains: int
    pods: Mapping[str, int]
    domain_count: int
    skew: int


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What a strategy leaves.

    Attributes:
        kept: deletions before the first that leaves a skew above its maxSkew.
        within: deletions that leave all skews within their maxSkew.
        last_skew: the largest skew after the last deletion.
    """

    strategy: Strategy
    kept: int
    within: int
    last_skew: int


@dataclass(frozen=True, kw_only=True)
class Ranked(Answer):
    """The order of deletion.

    Attributes:
        strategy: that made the order.
        pods: the first is the first to go.
        constraints: in the order of the pods' domains and skews.
        outcomes: of all strategies.
        keeps_longest: the strategy that keeps every maxSkew longest; None without constraints.
        ranked: pods that were ranked, named or not.
        left_out: matching pods that are terminating or have ended.
        notes: what a caller ought to know.
    """

    strategy: Strategy
    pods: tuple[RankedPod, ...]
    constraints: tuple[RankedConstraint, ...]
    outcomes: tuple[RankOutcome, ...]
    keeps_longest: Strategy | None
    ranked: int
    left_out: int
    notes: tuple[str, ...]


def rank_for_deletion(
    session: Session,
    selector: kube.LabelSelector | Mapping[str, Any] | None = None,
    *,
    namespace: str = "",
    objects: Iterable[ObjectLike] = (),
    constraints: Iterable[KeepSpread | str] = (),
    delete: int = 0,
    strategy: Strategy | str = Strategy.EVEN,
    now: datetime | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Ranked]:
    """The order in which pods of a workload should go.

    Args:
        session: what the client's operations share.
        selector: of the pods: a message, or labels that must be equal. None only with pods.
        namespace: of the pods; empty means ``default``.
        objects: pods to rank and nodes to look at in place of those of the state; ReplicaSets
            beside those of the state.
        constraints: what the pods shall stay spread over; none takes the pods' own.
        delete: how many pods the answer names; 0: all.
        strategy: how to rank.
        now: the time from which ages are counted; None is the server's clock.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong with the request.
        NotFound: the cluster is not in the state.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    if delete < 0:
        raise InvalidRequest(f"delete: {delete} pods cannot be deleted")
    if isinstance(selector, Mapping):
        selector = kube.LabelSelector(match_labels=selector)
    request = planner_pb2.RankForDeletionRequest(
        cluster=cluster or session.cluster,
        namespace=namespace,
        label_selector=selector,
        consistency=requests.carried(consistency),
        constraints=[_constraint(each) for each in constraints],
        delete=delete,
        strategy=_strategy(strategy),
    )
    for given in objects:
        _add(request, requests.object_message(given))
    if now is not None:
        stamp = Timestamp()
        stamp.FromDatetime(now)
        request.now.CopyFrom(stamp)
    reply = yield from call(rpcs.RANK_FOR_DELETION, request, timeout, traceparent)
    return _ranked(reply.message, reply.traceparent)


def _constraint(given: KeepSpread | str) -> rank_pb2.RankConstraint:
    keep = KeepSpread(given) if isinstance(given, str) else given
    return rank_pb2.RankConstraint(
        topology_key=keep.topology_key, limited_values=keep.values, max_skew=keep.max_skew or 0
    )


def _add(request: planner_pb2.RankForDeletionRequest, given: Object) -> None:
    if given.WhichOneof("object") == "pod":
        request.pods.append(given.pod)
    elif given.WhichOneof("object") == "node":
        request.nodes.append(given.node)
    elif given.WhichOneof("object") == "replica_set":
        request.replica_sets.append(given.replica_set)
    else:
        raise InvalidRequest("objects: give pods, nodes and ReplicaSets")


def _strategy(named: Strategy | str) -> rank_pb2.RankStrategy.ValueType:
    try:
        return _NUMBERS[Strategy(named)]
    except ValueError as error:
        raise InvalidRequest(f"strategy: must be one of {', '.join(Strategy)}") from error


def _ranked(message: planner_pb2.RankForDeletionResponse, traceparent: str | None) -> Ranked:
    return Ranked(
        revision=message.revision,
        traceparent=traceparent,
        strategy=_STRATEGIES[message.strategy],
        pods=tuple(map(_pod, message.pods)),
        constraints=tuple(map(_understood, message.constraints)),
        outcomes=tuple(
            RankOutcome(_STRATEGIES[each.strategy], each.kept, each.within, each.last_skew)
            for each in message.outcomes
        ),
        keeps_longest=_STRATEGIES.get(message.keeps_longest),
        ranked=message.ranked,
        left_out=message.left_out,
        notes=tuple(message.notes),
    )


def _pod(message: rank_pb2.RankedPod) -> RankedPod:
    return RankedPod(
        namespace=message.namespace,
        name=message.name,
        uid=message.uid,
        node=message.node or None,
        rank=message.rank,
        domains=tuple(domain or None for domain in message.domains),
        skews=tuple(message.skews),
    )


def _understood(message: rank_pb2.RankedConstraint) -> RankedConstraint:
    return RankedConstraint(
        topology_key=message.topology_key,
        limited_values=tuple(message.limited_values),
        max_skew=message.max_skew,
        min_domains=message.min_domains,
        pods={domain.value: domain.pods for domain in message.domains},
        domain_count=message.domain_count,
        skew=message.skew,
    )
