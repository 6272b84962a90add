"""topospread.v1.PlannerService/RankDeletions: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.api.decode import consistency_of, selector_of
from topospread.calls.call import Call, Method, Unary
from topospread.codec.pods import node_from_proto
from topospread.codec.stored_pods import EncodedPod
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import DUPLICATE, invalid, noted, required
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.service.messages import constraint_message, meta_of
from topospread.service.ranking import KeptSpread, RankRequest
from topospread.spread.ranking import Strategy, domain_counts, skew_of
from topospread_proto.v1 import common_pb2, deletion_order_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.kube.selectors import Selector
    from topospread.service.ranking import DeletionRanker, DeletionRanking
    from topospread.spread.constraints import Constraint
    from topospread.spread.ranking import DeletionConstraint
    from topospread_proto.kubernetes.v1 import kubernetes_pb2

SERVICE: Final = "topospread.v1.PlannerService"

MAX_DOMAINS: Final = 1000
"""Domains of one constraint that a response lists."""

MAX_CONSTRAINTS: Final = 64

SECOND: Final = 1_000_000_000
"""In nanoseconds."""

YEAR_10000: Final = 253_402_300_800
"""Seconds since 1970 where protobuf's timestamps end."""

_STRATEGIES: Final = {
    deletion_order_pb2.RANK_STRATEGY_UNSPECIFIED: Strategy.EVEN,
    deletion_order_pb2.RANK_STRATEGY_EVEN: Strategy.EVEN,
    deletion_order_pb2.RANK_STRATEGY_PROPORTIONAL: Strategy.PROPORTIONAL,
    deletion_order_pb2.RANK_STRATEGY_REPLICA_SET: Strategy.REPLICA_SET,
}
_NUMBERS: Final = {
    Strategy.EVEN: deletion_order_pb2.RANK_STRATEGY_EVEN,
    Strategy.PROPORTIONAL: deletion_order_pb2.RANK_STRATEGY_PROPORTIONAL,
    Strategy.REPLICA_SET: deletion_order_pb2.RANK_STRATEGY_REPLICA_SET,
}


class RankDeletionsServicer:
    """The method RankDeletions; raises what the use case raises."""

    def __init__(self, ranker: DeletionRanker) -> None:
        self._ranker = ranker

    def methods(self) -> dict[str, Method]:
        """The method by its name."""
        return {"RankDeletions": Unary(pb.RankDeletionsRequest, self.rank_deletions)}

    def rank_deletions(
        self, request: pb.RankDeletionsRequest, call: Call
    ) -> pb.RankDeletionsResponse:
        """PlannerService.RankDeletions."""
        ranked = self._ranker.rank(_decode(request, call))
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": request.cluster or DEFAULT_CLUSTER,
                    "topospread.revision": ranked.state[0].token if ranked.state else "",
                    "topospread.pods": len(ranked.pods),
                }
            )
        return _encode(ranked)


# ------------------------------ decode


def _decode(request: pb.RankDeletionsRequest, call: Call) -> RankRequest:
    wrong: list[FieldViolation] = []
    consistency = DEFAULT_CONSISTENCY
    with noted(wrong):
        consistency = consistency_of(request.consistency)
    namespace = request.namespace or DEFAULT_NAMESPACE
    selector = _selector(request, wrong)
    if request.strategy not in _STRATEGIES:
        known = ", ".join(deletion_order_pb2.RankStrategy.keys())
        wrong.append(
            FieldViolation(
                "strategy", f"must be one of {known}", "Unsupported value", request.strategy
            )
        )
    constraints = _constraints(request, wrong)
    if request.delete_count < 0:
        wrong.append(invalid("deleteCount", request.delete_count, "must not be negative"))
    _check_names("pods", request.pods, wrong)
    _check_names("nodes", request.nodes, wrong)
    now = request.evaluation_time
    if not 0 <= now.seconds < YEAR_10000 or not 0 <= now.nanos < SECOND:
        given = f"{now.seconds}s {now.nanos}ns"
        wrong.append(invalid("evaluationTime", given, "must be between the years 1970 and 9999"))
    if wrong:
        raise InvalidRequest.of(wrong)
    return RankRequest(
        deadline=call.deadline,
        selector=selector,
        cluster=request.cluster or DEFAULT_CLUSTER,
        namespace=namespace,
        consistency=consistency,
        pods=[_encoded(pod, namespace) for pod in request.pods] or None,
        nodes=[node_from_proto(node) for node in request.nodes] or None,
        replica_sets=[each.SerializeToString() for each in request.replica_sets],
        constraints=constraints,
        strategy=_STRATEGIES[request.strategy],
        delete=request.delete_count if request.HasField("delete_count") else None,
        now=now.seconds * SECOND + now.nanos if request.HasField("evaluation_time") else None,
    )


def _selector(request: pb.RankDeletionsRequest, wrong: list[FieldViolation]) -> Selector:
    if not request.HasField("label_selector"):
        if not request.pods:
            wrong.append(required("labelSelector", "select pods of the state, or give pods"))
        return EVERYTHING
    try:
        return selector_of(request.label_selector, "labelSelector")
    except InvalidRequest as refused:
        wrong += refused.violations
        return EVERYTHING


def _constraints(
    request: pb.RankDeletionsRequest, wrong: list[FieldViolation]
) -> tuple[KeptSpread, ...]:
    if len(request.constraints) > MAX_CONSTRAINTS:
        wrong.append(FieldViolation("constraints", f"must have at most {MAX_CONSTRAINTS} items"))
    kept: list[KeptSpread] = []
    seen: set[tuple[str, frozenset[str], int | None]] = set()
    for position, constraint in enumerate(request.constraints):
        path = f"constraints[{position}]"
        if not constraint.topology_key:
            wrong.append(required(f"{path}.topologyKey", "can not be empty"))
        elif errors := label_key_errors(constraint.topology_key):
            wrong.append(invalid(f"{path}.topologyKey", constraint.topology_key, "; ".join(errors)))
        max_skew = constraint.max_skew if constraint.HasField("max_skew") else None
        if max_skew is not None and max_skew < 1:
            wrong.append(invalid(f"{path}.maxSkew", max_skew, "must be greater than zero"))
        same = constraint.topology_key, frozenset(constraint.limited_values), max_skew
        if same in seen:
            text = f"{_shown(constraint)} is named already"
            wrong.append(FieldViolation(path, text, DUPLICATE, _shown(constraint)))
        seen.add(same)
        kept.append(KeptSpread(constraint.topology_key, tuple(constraint.limited_values), max_skew))
    return tuple(kept)


def _shown(constraint: deletion_order_pb2.RankConstraint) -> str:
    values = ",".join(constraint.limited_values)
    return f"{constraint.topology_key}={values}" if values else constraint.topology_key


def _check_names(
    path: str,
    objects: Iterable[kubernetes_pb2.Pod | kubernetes_pb2.Node],
    wrong: list[FieldViolation],
) -> None:
    seen: set[tuple[str, str]] = set()
    for position, each in enumerate(objects):
        meta = each.metadata
        name = (meta.namespace, meta.name)
        if not meta.name:
            wrong.append(required(f"{path}[{position}].metadata.name", "name is required"))
        elif name in seen:
            text = "/".join(part for part in name if part)
            wrong.append(
                FieldViolation(f"{path}[{position}].metadata.name", "", "Duplicate value", text)
            )
        seen.add(name)


def _encoded(pod: kubernetes_pb2.Pod, namespace: str) -> EncodedPod:
    if not pod.metadata.namespace:
        pod.metadata.namespace = namespace
    return EncodedPod(pod.SerializeToString(deterministic=True))


# ------------------------------ encode


def _encode(ranked: DeletionRanking) -> pb.RankDeletionsResponse:
    meta = None
    if ranked.state is not None:
        view, replica = ranked.state
        meta = meta_of(view, replica)
    response = pb.RankDeletionsResponse(
        meta=meta,
        strategy=_NUMBERS[ranked.strategy],
        ranked_pod_count=len(ranked.pods),
        ending_pod_count=ranked.left_out,
        notes=ranked.notes,
    )
    if not ranked.pods:
        return response
    chosen = ranked.rankings[ranked.strategy]
    for position, skews in zip(chosen.order, chosen.skews, strict=False):
        pod = ranked.pods[position]
        response.pods.add(
            pod=common_pb2.PodReference(namespace=pod.namespace, name=pod.name, uid=pod.uid),
            node=pod.node,
            rank=chosen.ranks[position],
            domains=[spread.domains[position] or "" for spread in ranked.spreads],
            skews=skews,
        )
    for each in zip(ranked.constraints, ranked.spreads, ranked.limits, strict=True):
        response.constraints.append(_ranked_constraint(*each))
    present = [each.skew for each in response.constraints]
    for strategy, ranking in ranked.rankings.items():
        response.outcomes.add(
            strategy=_NUMBERS[strategy],
            kept_count=ranking.kept,
            within_count=ranking.within,
            last_skew=max(ranking.skews[-1] if ranking.skews else present, default=0),
        )
    if ranked.best is not None:
        response.keeps_longest = _NUMBERS[ranked.best]
    return response


def _ranked_constraint(
    constraint: Constraint, spread: DeletionConstraint, limits: Iterable[str]
) -> deletion_order_pb2.RankedConstraint:
    counts = domain_counts(spread)
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return deletion_order_pb2.RankedConstraint(
        constraint=constraint_message(constraint),
        limited_values=limits,
        domain_counts=[
            common_pb2.DomainCount(value=value, pod_count=pods)
            for value, pods in fullest[:MAX_DOMAINS]
        ],
        domain_count=len(counts),
        skew=skew_of(spread, counts),
    )
