"""topospread.v1.PlannerService/PlanRebalance: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.api.decode import consistency_of, selector_of, settings_of
from topospread.calls.call import Call, Method, Unary
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import invalid, noted
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.decisions.request import DEFAULT_CLUSTER, NO_OVERRIDE
from topospread.service.messages import constraint_message, meta_of
from topospread.service.rebalancing.inventory import (
    DEFAULT_SEARCH,
    MAX_SEARCH,
    SYSTEM_CRITICAL,
    EvictionFilters,
    EvictionLimits,
    GroupOutcome,
    Optimality,
    RebalanceRequest,
)
from topospread_proto.v1 import common_pb2, rebalance_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.kube.selectors import Selector
    from topospread.service.rebalancing.inventory import GroupResult, RebalancePlan
    from topospread.service.rebalancing.plan import RebalancePlanner
    from topospread_proto.kubernetes.v1 import kubernetes_pb2

_OPTIMALITIES: Final = {
    Optimality.PROVED: common_pb2.OPTIMALITY_PROVEN,
    Optimality.BEST_FOUND: common_pb2.OPTIMALITY_BEST_FOUND,
}
_OUTCOMES: Final = {
    GroupOutcome.PLANNED: rebalance_pb2.REBALANCE_OUTCOME_PLANNED,
    GroupOutcome.OVER_LIMIT: rebalance_pb2.REBALANCE_OUTCOME_OVER_LIMIT,
    GroupOutcome.IMPOSSIBLE: rebalance_pb2.REBALANCE_OUTCOME_IMPOSSIBLE,
    GroupOutcome.NOT_FOUND: rebalance_pb2.REBALANCE_OUTCOME_NOT_FOUND,
}


class PlanRebalanceServicer:
    """The method PlanRebalance; raises what the use case raises."""

    def __init__(self, planner: RebalancePlanner) -> None:
        self._planner = planner

    def methods(self) -> dict[str, Method]:
        """The method by its name."""
        return {"PlanRebalance": Unary(pb.PlanRebalanceRequest, self.plan_rebalance)}

    def plan_rebalance(
        self, request: pb.PlanRebalanceRequest, call: Call
    ) -> pb.PlanRebalanceResponse:
        """PlannerService.PlanRebalance."""
        plan = self._planner.plan(_decode(request, call))
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": request.cluster or DEFAULT_CLUSTER,
                    "topospread.revision": plan.view.token,
                    "topospread.evictions": len(plan.evictions),
                }
            )
        return _encode(plan)


def _decode(request: pb.PlanRebalanceRequest, call: Call) -> RebalanceRequest:
    wrong: list[FieldViolation] = []
    consistency, settings = DEFAULT_CONSISTENCY, NO_OVERRIDE
    with noted(wrong):
        consistency = consistency_of(request.consistency)
    with noted(wrong):
        settings = settings_of(request.settings)
    selector = protected = None
    if request.HasField("label_selector"):
        selector = _selector(request.label_selector, "labelSelector", wrong)
    given = request.filters
    if given.HasField("protect_selector"):
        protected = _selector(given.protect_selector, "filters.protectSelector", wrong)
    search = DEFAULT_SEARCH
    if request.HasField("search_timeout"):
        search = request.search_timeout.seconds + request.search_timeout.nanos / 1e9
        if not 0 < search <= MAX_SEARCH:
            text = f"must be above 0 and at most {MAX_SEARCH:g}s"
            wrong.append(invalid("searchTimeout", f"{search:g}s", text))
    limits = _limits(request.eviction_limits, wrong)
    if wrong:
        raise InvalidRequest.of(wrong)
    return RebalanceRequest(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        namespace=request.namespace,
        excluded=frozenset(request.excluded_namespaces),
        selector=EVERYTHING if selector is None else selector,
        consistency=consistency,
        settings=settings,
        soft=request.include_soft,
        filters=EvictionFilters(
            priority_threshold=(
                given.priority_threshold
                if given.HasField("priority_threshold")
                else SYSTEM_CRITICAL
            ),
            evict_bare_pods=given.evict_bare_pods,
            protect_pods_with_pvc=given.protect_pods_with_pvc,
            protect_selector=protected,
        ),
        limits=limits,
        search=search,
    )


def _selector(
    given: kubernetes_pb2.LabelSelector, path: str, wrong: list[FieldViolation]
) -> Selector | None:
    try:
        return selector_of(given, path)
    except InvalidRequest as refused:
        wrong += refused.violations
        return None


def _limits(given: rebalance_pb2.EvictionLimits, wrong: list[FieldViolation]) -> EvictionLimits:
    limits = {}
    for field, most in given.ListFields():
        limits[field.name] = most
        if most < 0:
            wrong.append(invalid(f"evictionLimits.{field.json_name}", most, "must not be negative"))
    return EvictionLimits(**limits)


def _encode(plan: RebalancePlan) -> pb.PlanRebalanceResponse:
    response = pb.PlanRebalanceResponse(
        meta=meta_of(plan.view, plan.replica),
        groups=map(_group, plan.groups),
        optimality=_OPTIMALITIES[plan.optimality],
        constraint_count=plan.constraints,
        violated_constraint_count=plan.violated,
        remaining_constraint_count=plan.left,
        not_modelled=plan.not_modelled,
        notes=plan.notes,
    )
    for each in plan.evictions:
        response.evictions.add(
            pod=common_pb2.PodReference(namespace=each.namespace, name=each.name, uid=each.uid),
            node=each.node,
            target_node=each.target,
            fitting_node_count=each.fitting,
            priority=each.priority,
            deletion_cost=each.deletion_cost,
            group_index=each.group,
        )
    for reason, pods in plan.stuck.items():
        response.stuck.add(reason=reason, pod_count=pods)
    return response


def _group(group: GroupResult) -> rebalance_pb2.RebalanceGroup:
    return rebalance_pb2.RebalanceGroup(
        constraints=[
            rebalance_pb2.RebalanceConstraint(
                constraint=constraint_message(each.constraint),
                wanted=each.wanted,
                skew_before=each.skew_before,
                skew_after=each.skew_after,
            )
            for each in group.constraints
        ],
        outcome=_OUTCOMES[group.outcome],
        optimality=_OPTIMALITIES[group.optimality],
        eviction_count=None if group.evictions < 0 else group.evictions,
        reason=group.reason,
        at_once=group.at_once,
        pending_pod_count=group.pending,
    )
