"""topospread.v1.Planner/PlanRebalance: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.pods import selector_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.selectors import EVERYTHING, SelectorError, compile_selector
from topospread.kube.violations import invalid
from topospread.replica.replicas import NEWEST_AT_HAND
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS
from topospread.service.rebalancing.asking import (
    DEFAULT_SEARCH,
    MAX_SEARCH,
    SYSTEM_CRITICAL,
    Budgets,
    Filters,
    Optimality,
    Outcome,
    RebalanceAsk,
)
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.decode import consistency_of, settings_of
from topospread_proto.v1 import planner_pb2 as pb
from topospread_proto.v1 import rebalance_pb2

if TYPE_CHECKING:
    from topospread.kube.selectors import Selector
    from topospread.service.rebalancing.asking import Group, Plan
    from topospread.service.rebalancing.plan import Rebalances
    from topospread_proto.v1 import kubernetes_pb2

_OPTIMALITIES: Final = {
    Optimality.PROVED: rebalance_pb2.REBALANCE_OPTIMALITY_PROVED,
    Optimality.BEST_FOUND: rebalance_pb2.REBALANCE_OPTIMALITY_BEST_FOUND,
}
_OUTCOMES: Final = {
    Outcome.PLANNED: rebalance_pb2.REBALANCE_OUTCOME_PLANNED,
    Outcome.OVER_BUDGET: rebalance_pb2.REBALANCE_OUTCOME_OVER_BUDGET,
    Outcome.IMPOSSIBLE: rebalance_pb2.REBALANCE_OUTCOME_IMPOSSIBLE,
    Outcome.NOT_FOUND: rebalance_pb2.REBALANCE_OUTCOME_NOT_FOUND,
}


class RebalanceServicer:
    """PlanRebalance; raises what the use case raises."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The method by name, with the pool that it runs on."""
        return {"PlanRebalance": (Unary(pb.PlanRebalanceRequest, self.plan), "planner")}

    def plan(self, request: pb.PlanRebalanceRequest, call: Call) -> pb.PlanRebalanceResponse:
        """Planner.PlanRebalance."""
        plan = self._rebalances.plan(_ask(request, call))
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": request.cluster or DEFAULT_CLUSTER,
                    "topospread.revision": plan.token,
                    "topospread.evictions": len(plan.evictions),
                }
            )
        return _answer(plan)


def _ask(request: pb.PlanRebalanceRequest, call: Call) -> RebalanceAsk:
    wrong: list[FieldViolation] = []
    selector = keep = None
    if request.HasField("label_selector"):
        selector = _selector(request.label_selector, "labelSelector", wrong)
    given = request.filters
    if given.HasField("keep"):
        keep = _selector(given.keep, "filters.keep", wrong)
    search = DEFAULT_SEARCH
    if request.HasField("search_time"):
        search = request.search_time.seconds + request.search_time.nanos / 1e9
        if not 0 < search <= MAX_SEARCH:
            text = f"must be above 0 and at most {MAX_SEARCH:g}s"
            wrong.append(invalid("searchTime", f"{search:g}s", text))
    if wrong:
        raise InvalidRequest.of(wrong)
    return RebalanceAsk(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        namespace=request.namespace,
        excluded=frozenset(request.excluded_namespaces),
        selector=EVERYTHING if selector is None else selector,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
        soft=request.include_soft,
        filters=Filters(
            priority_below=(
                given.priority_below if given.HasField("priority_below") else SYSTEM_CRITICAL
            ),
            bare_pods=given.bare_pods,
            claims_stay=given.claims_stay,
            keep=keep,
        ),
        budgets=_budgets(request.budgets),
        search=search,
    )


def _selector(
    given: kubernetes_pb2.LabelSelector, path: str, wrong: list[FieldViolation]
) -> Selector | None:
    try:
        return compile_selector(selector_from_proto(given))
    except SelectorError as cause:
        wrong.append(FieldViolation(path, str(cause)))
        return None


def _budgets(given: rebalance_pb2.EvictionBudgets) -> Budgets:
    has = given.HasField
    return Budgets(
        total=given.total if has("total") else None,
        per_node=given.per_node if has("per_node") else None,
        per_namespace=given.per_namespace if has("per_namespace") else None,
    )


def _answer(plan: Plan) -> pb.PlanRebalanceResponse:
    answer = pb.PlanRebalanceResponse(
        revision=plan.token,
        groups=map(_group, plan.groups),
        optimal=_OPTIMALITIES[plan.optimality],
        constraints=plan.constraints,
        violated=plan.violated,
        left=plan.left,
        not_modelled=plan.not_modelled,
        notes=plan.notes,
    )
    for each in plan.evictions:
        answer.evictions.add(
            namespace=each.namespace,
            name=each.name,
            uid=each.uid,
            node=each.node,
            target=each.target,
            fitting_nodes=each.fitting,
            priority=each.priority,
            deletion_cost=each.deletion_cost,
            group=each.group,
        )
    for reason, pods in plan.stuck.items():
        answer.stuck.add(reason=reason, pods=pods)
    return answer


def _group(group: Group) -> rebalance_pb2.RebalanceGroup:
    return rebalance_pb2.RebalanceGroup(
        constraints=[
            rebalance_pb2.RebalanceConstraint(
                namespace=each.namespace,
                topology_key=each.topology_key,
                selector=each.selector,
                max_skew=each.max_skew,
                min_domains=each.min_domains,
                wanted=each.wanted,
                skew_before=each.skew_before,
                skew_after=each.skew_after,
            )
            for each in group.constraints
        ],
        outcome=_OUTCOMES[group.outcome],
        optimal=_OPTIMALITIES[group.optimality],
        evictions=None if group.evictions < 0 else group.evictions,
        reason=group.reason,
        at_once=group.at_once,
    )
