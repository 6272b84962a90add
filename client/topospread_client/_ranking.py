"""RankDeletions: the order in which pods of a workload should be deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer
from topospread_client._enums import RankStrategy
from topospread_client._errors import invalid
from topospread_client._manifests import object_from_manifest
from topospread_client._operations import ClientSession, Operation, call
from topospread_client._scenarios import node_message
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import deletion_order_pb2, planner_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from topospread_client._answers import DomainCount, SpreadConstraint
    from topospread_client._references import PodReference
    from topospread_client._requests import Consistency, LabelSelector, PodObject
    from topospread_client._scenarios import NodeObject


@dataclass(frozen=True, slots=True)
class RankConstraint:
    """Topology key over which pods shall stay spread.

    Attributes:
        topology_key: the node label whose values are the domains.
        limited_values: the domains; empty for all values.
        max_skew: None takes that of the pods' own constraint with this key, 1 if they have none.
    """

    topology_key: str
    limited_values: Sequence[str] = ()
    max_skew: int | None = None

    def message(self, path: str) -> deletion_order_pb2.RankConstraint:
        """Message of the request."""
        return arguments.part(
            path,
            deletion_order_pb2.RankConstraint,
            topology_key=self.topology_key,
            limited_values=arguments.as_list(self.limited_values, f"{path}.limitedValues"),
            max_skew=self.max_skew,
        )


@dataclass(frozen=True, slots=True)
class RankedPod:
    """Pod in the order of deletion.

    Attributes:
        node: None while it waits for one.
        rank: the higher, the sooner, among pods with equal keys of more importance.
        domains: one for each constraint; empty where it has none.
        skews: of each constraint, when this pod and all before it are gone.
    """

    pod: PodReference
    node: str | None
    rank: float
    domains: tuple[str, ...]
    skews: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankedConstraint:
    """Constraint with its defaults filled in, and its state before any deletion.

    Attributes:
        domain_counts: the fullest first; of at most 1,000 of the `domain_count` domains.
    """

    constraint: SpreadConstraint
    limited_values: tuple[str, ...]
    domain_counts: tuple[DomainCount, ...]
    domain_count: int
    skew: int


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """Skews that a strategy leaves.

    Attributes:
        kept_count: deletions before the first that leaves a skew above its maxSkew.
        within_count: deletions that leave all skews within their maxSkew.
        last_skew: the largest skew after the last deletion.
    """

    strategy: RankStrategy
    kept_count: int
    within_count: int
    last_skew: int


@dataclass(frozen=True, kw_only=True)
class RankDeletionsResponse(Answer):
    """Order of deletion.

    Attributes:
        strategy: that made the order.
        pods: the first is the first to go.
        constraints: in the order of the pods' domains and skews.
        outcomes: of all strategies.
        keeps_longest: the strategy that keeps every maxSkew longest; None without constraints.
        ranked_pod_count: pods that were ranked, named or not.
        ending_pod_count: matching pods that are terminating or have ended.
        notes: for people.
    """

    strategy: RankStrategy
    pods: tuple[RankedPod, ...]
    constraints: tuple[RankedConstraint, ...]
    outcomes: tuple[RankOutcome, ...]
    keeps_longest: RankStrategy | None
    ranked_pod_count: int
    ending_pod_count: int
    notes: tuple[str, ...]


def rank_deletions(
    session: ClientSession,
    label_selector: LabelSelector | None = None,
    *,
    namespace: str | None = None,
    constraints: Iterable[RankConstraint | str] = (),
    delete_count: int | None = None,
    strategy: RankStrategy | None = None,
    pods: Iterable[PodObject] = (),
    nodes: Iterable[NodeObject] = (),
    replica_sets: Iterable[kube.ReplicaSet | Mapping[str, Any]] = (),
    evaluation_time: datetime | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[RankDeletionsResponse]:
    """Rank the pods of a workload in the order in which they should be deleted.

    Args:
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it. None only with pods.
        namespace: of the pods; None means ``default``.
        constraints: what the pods shall stay spread over, a string being a topology key; none
            takes the pods' own.
        delete_count: how many pods to return; None returns all.
        strategy: how to rank; None: EVEN.
        pods: to rank instead of those of the state.
        nodes: to use instead of those of the state.
        replica_sets: to use beside those of the state.
        evaluation_time: from which ages are counted; None is the server's clock.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster is not in the state.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        planner_service_pb2.RankDeletionsRequest,
        cluster=cluster or session.cluster,
        namespace=namespace or "",
        label_selector=requests.label_selector(label_selector),
        consistency=requests.consistency_message(consistency),
        constraints=[
            _constraint(each, where)
            for where, each in arguments.with_paths(constraints, "constraints")
        ],
        delete_count=delete_count,
        strategy=arguments.enum_value(
            deletion_order_pb2.RankStrategy, RankStrategy, strategy, "strategy"
        ),
        pods=[
            requests.pod_message(each, where) for where, each in arguments.with_paths(pods, "pods")
        ],
        nodes=[node_message(each, where) for where, each in arguments.with_paths(nodes, "nodes")],
        replica_sets=[
            _replica_set(each, where)
            for where, each in arguments.with_paths(replica_sets, "replicaSets")
        ],
        evaluation_time=_timestamp(evaluation_time),
    )
    reply = yield from call(rpcs.RANK_DELETIONS, request, timeout, traceparent)
    return decoding.answer(RankDeletionsResponse, reply)


def _constraint(each: RankConstraint | str, path: str) -> deletion_order_pb2.RankConstraint:
    constraint = RankConstraint(each) if isinstance(each, str) else each
    return arguments.checked(RankConstraint, constraint, path).message(path)


def _replica_set(each: kube.ReplicaSet | Mapping[str, Any], path: str) -> kube.ReplicaSet:
    if isinstance(each, kube.ReplicaSet):
        return each
    made = requests.manifest(object_from_manifest, each, path)
    if made is None or not made.HasField("replica_set"):
        raise invalid(path, f"kind {each['kind']!r}: this must be a ReplicaSet")
    return made.replica_set


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    made = Timestamp()
    made.FromDatetime(arguments.checked(datetime, time, "evaluationTime"))
    return made
