"""topospread.v1.Planner/RankForDeletion: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.candidates import EncodedPod
from topospread.codec.cluster import node_from_proto
from topospread.codec.pods import selector_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.selectors import EVERYTHING, SelectorError, compile_selector
from topospread.kube.violations import DUPLICATE, invalid, required
from topospread.replica.replicas import NEWEST_AT_HAND
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.service.rank import KeptSpread, RankAsk
from topospread.spread.ranking import Strategy, domain_counts, skew_of
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.decode import consistency_of
from topospread_proto.v1 import planner_pb2 as pb
from topospread_proto.v1 import rank_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.kube.selectors import Selector
    from topospread.service.rank import Ranked, Ranks
    from topospread.spread.ranking import Spread
    from topospread_proto.v1 import kubernetes_pb2

SERVICE: Final = "topospread.v1.Planner"

MAX_DOMAINS: Final = 1000
"""Domains of one constraint that an answer names."""

MAX_CONSTRAINTS: Final = 64

YEAR_10000: Final = 253_402_300_800
"""Seconds since 1970 where protobuf's timestamps end."""

_STRATEGIES: Final = {
    rank_pb2.RANK_STRATEGY_UNSPECIFIED: Strategy.EVEN,
    rank_pb2.RANK_STRATEGY_EVEN: Strategy.EVEN,
    rank_pb2.RANK_STRATEGY_PROPOSAL: Strategy.PROPOSAL,
    rank_pb2.RANK_STRATEGY_REPLICA_SET: Strategy.REPLICA_SET,
}
_NUMBERS: Final = {
    Strategy.EVEN: rank_pb2.RANK_STRATEGY_EVEN,
    Strategy.PROPOSAL: rank_pb2.RANK_STRATEGY_PROPOSAL,
    Strategy.REPLICA_SET: rank_pb2.RANK_STRATEGY_REPLICA_SET,
}


class RankServicer:
    """RankForDeletion; raises what the use case raises."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The method by name, with the pool that it runs on."""
        return {"RankForDeletion": (Unary(pb.RankForDeletionRequest, self.rank), "planner")}

    def rank(self, request: pb.RankForDeletionRequest, call: Call) -> pb.RankForDeletionResponse:
        """Planner.RankForDeletion."""
        ranked = self._ranks.rank(_ask(request, call))
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": request.cluster or DEFAULT_CLUSTER,
                    "topospread.revision": ranked.token,
                    "topospread.pods": len(ranked.pods),
                }
            )
        return _answer(ranked)


# ------------------------------ decode


def _ask(request: pb.RankForDeletionRequest, call: Call) -> RankAsk:
    wrong: list[FieldViolation] = []
    namespace = request.namespace or DEFAULT_NAMESPACE
    selector = _selector(request, wrong)
    if request.strategy not in _STRATEGIES:
        known = ", ".join(rank_pb2.RankStrategy.keys())
        wrong.append(
            FieldViolation(
                "strategy", f"must be one of {known}", "Unsupported value", request.strategy
            )
        )
    constraints = _constraints(request, wrong)
    _check_names("pods", request.pods, wrong)
    _check_names("nodes", request.nodes, wrong)
    if not 0 <= request.now.seconds < YEAR_10000 or request.now.nanos < 0:
        given = f"{request.now.seconds}s {request.now.nanos}ns"
        wrong.append(invalid("now", given, "must be between the years 1970 and 9999"))
    if wrong:
        raise InvalidRequest.of(wrong)
    return RankAsk(
        deadline=call.deadline,
        selector=selector,
        cluster=request.cluster or DEFAULT_CLUSTER,
        namespace=namespace,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        pods=[_encoded(pod, namespace) for pod in request.pods] or None,
        nodes=[node_from_proto(node) for node in request.nodes] or None,
        replica_sets=[each.SerializeToString() for each in request.replica_sets],
        constraints=constraints,
        strategy=_STRATEGIES[request.strategy],
        delete=request.delete,
        now=(
            request.now.seconds * 1_000_000_000 + request.now.nanos
            if request.HasField("now")
            else None
        ),
    )


def _selector(request: pb.RankForDeletionRequest, wrong: list[FieldViolation]) -> Selector:
    if not request.HasField("label_selector"):
        if not request.pods:
            wrong.append(required("labelSelector", "select pods of the state, or give pods"))
        return EVERYTHING
    try:
        return compile_selector(selector_from_proto(request.label_selector))
    except SelectorError as cause:
        wrong.append(FieldViolation("labelSelector", str(cause)))
        return EVERYTHING


def _constraints(
    request: pb.RankForDeletionRequest, wrong: list[FieldViolation]
) -> tuple[KeptSpread, ...]:
    if len(request.constraints) > MAX_CONSTRAINTS:
        wrong.append(FieldViolation("constraints", f"must have at most {MAX_CONSTRAINTS} items"))
    seen: set[tuple[str, frozenset[str], int]] = set()
    for position, constraint in enumerate(request.constraints):
        path = f"constraints[{position}]"
        if not constraint.topology_key:
            wrong.append(required(f"{path}.topologyKey", "can not be empty"))
        elif errors := label_key_errors(constraint.topology_key):
            wrong.append(invalid(f"{path}.topologyKey", constraint.topology_key, "; ".join(errors)))
        if constraint.max_skew < 0:
            wrong.append(invalid(f"{path}.maxSkew", constraint.max_skew, "must not be negative"))
        same = constraint.topology_key, frozenset(constraint.limited_values), constraint.max_skew
        if same in seen:
            text = f"{_shown(constraint)} is named already"
            wrong.append(FieldViolation(path, text, DUPLICATE, _shown(constraint)))
        seen.add(same)
    return tuple(
        KeptSpread(each.topology_key, tuple(each.limited_values), each.max_skew)
        for each in request.constraints
    )


def _shown(constraint: rank_pb2.RankConstraint) -> str:
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


def _answer(ranked: Ranked) -> pb.RankForDeletionResponse:
    answer = pb.RankForDeletionResponse(
        revision=ranked.token,
        strategy=_NUMBERS[ranked.strategy],
        ranked=len(ranked.pods),
        left_out=ranked.left_out,
        notes=ranked.notes,
    )
    if not ranked.pods:
        return answer
    chosen = ranked.rankings[ranked.strategy]
    for position, skews in zip(chosen.order, chosen.skews, strict=False):
        pod = ranked.pods[position]
        answer.pods.add(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=pod.node,
            rank=chosen.ranks[position],
            domains=[spread.domains[position] or "" for spread in ranked.spreads],
            skews=skews,
        )
    for spread, limits in zip(ranked.spreads, ranked.limits, strict=True):
        answer.constraints.append(_constraint(spread, limits))
    for strategy, ranking in ranked.rankings.items():
        answer.outcomes.add(
            strategy=_NUMBERS[strategy],
            kept=ranking.kept,
            within=ranking.within,
            last_skew=max(ranking.skews[-1], default=0),
        )
    if ranked.best is not None:
        answer.keeps_longest = _NUMBERS[ranked.best]
    return answer


def _constraint(spread: Spread, limits: Iterable[str]) -> rank_pb2.RankedConstraint:
    counts = domain_counts(spread)
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return rank_pb2.RankedConstraint(
        topology_key=spread.topology_key,
        limited_values=limits,
        max_skew=spread.max_skew,
        min_domains=spread.min_domains,
        domains=[
            rank_pb2.RankedDomain(value=value, pods=pods) for value, pods in fullest[:MAX_DOMAINS]
        ],
        domain_count=len(counts),
        skew=skew_of(spread, counts),
    )
