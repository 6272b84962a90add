"""PlanRebalance: the fewest evictions that bring constraints within maxSkew together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from topospread_client import requests, rpcs
from topospread_client.answers import Answer
from topospread_client.errors import InvalidRequest
from topospread_client.operations import Operation, Session, call
from topospread_proto.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import planner_pb2, rebalance_pb2

if TYPE_CHECKING:
    from topospread_client.requests import Consistency, Settings

Labels = kube.LabelSelector | Mapping[str, Any]
"""A label selector: a message, or labels that must be equal."""


class Optimality(IntEnum):
    """What is known of a number of evictions."""

    PROVED = rebalance_pb2.REBALANCE_OPTIMALITY_PROVED
    BEST_FOUND = rebalance_pb2.REBALANCE_OPTIMALITY_BEST_FOUND

    @property
    def label(self) -> str:
        """As it is printed, for example ``best_found``."""
        return self.name.lower()


class Outcome(StrEnum):
    """What became of constraints that depend on one another."""

    PLANNED = "planned"
    OVER_BUDGET = "over budget"
    IMPOSSIBLE = "impossible"
    NOT_FOUND = "not found"


_OUTCOMES = {
    rebalance_pb2.REBALANCE_OUTCOME_PLANNED: Outcome.PLANNED,
    rebalance_pb2.REBALANCE_OUTCOME_OVER_BUDGET: Outcome.OVER_BUDGET,
    rebalance_pb2.REBALANCE_OUTCOME_IMPOSSIBLE: Outcome.IMPOSSIBLE,
    rebalance_pb2.REBALANCE_OUTCOME_NOT_FOUND: Outcome.NOT_FOUND,
}


@dataclass(frozen=True, slots=True)
class Filters:
    """Which pods may be evicted; never those of DaemonSets, nor static ones.

    Attributes:
        priority_below: only pods of a lower priority; None: below system-critical.
        bare_pods: also pods without a controller, which nobody makes again.
        claims_stay: not those that mount a persistent volume claim.
        keep: not those with these labels.
    """

    priority_below: int | None = None
    bare_pods: bool = False
    claims_stay: bool = False
    keep: Labels | None = None


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many evictions are allowed; None: any number."""

    total: int | None = None
    per_node: int | None = None
    per_namespace: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """One step: evict the pod; its replacement can go to `target` then.

    Attributes:
        fitting_nodes: nodes that it can go to then.
        group: position of its group in the answer.
    """

    namespace: str
    name: str
    uid: str
    node: str
    target: str
    fitting_nodes: int
    priority: int
    deletion_cost: int
    group: int


@dataclass(frozen=True, slots=True)
class RebalanceConstraint:
    """A constraint, before and after the evictions of its group.

    Attributes:
        wanted: False: nobody asked for it to hold; the plan does not make it worse.
    """

    namespace: str
    topology_key: str
    selector: str
    max_skew: int
    min_domains: int
    wanted: bool
    skew_before: int
    skew_after: int


@dataclass(frozen=True, slots=True)
class RebalanceGroup:
    """Constraints that depend on one another, at least one of which does not hold now.

    Attributes:
        evictions: how many it needs; None when that is not known.
        reason: why there is no plan.
        at_once: its pods must all be evicted before the first replacement is placed.
    """

    constraints: tuple[RebalanceConstraint, ...]
    outcome: Outcome
    optimal: Optimality
    evictions: int | None
    reason: str
    at_once: bool


@dataclass(frozen=True, kw_only=True)
class RebalancePlan(Answer):
    """A plan, never an action.

    Attributes:
        evictions: in order.
        optimal: proved only if it is so for each group.
        constraints: distinct ones that were asked for.
        violated: of these, above their maxSkew now.
        left: of these, above it after the plan.
        stuck: pods that may not be evicted, by why.
        not_modelled: what of the evicted pods was not looked at.
        notes: what the caller ought to know, such as that there is no constraint.
    """

    evictions: tuple[PlannedEviction, ...]
    groups: tuple[RebalanceGroup, ...]
    optimal: Optimality
    constraints: int
    violated: int
    left: int
    stuck: Mapping[str, int]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...] = ()


def plan_rebalance(
    session: Session,
    selector: Labels | None = None,
    *,
    namespace: str = "",
    excluded_namespaces: Sequence[str] = (),
    include_soft: bool = False,
    filters: Filters | None = None,
    budgets: Budgets | None = None,
    search_time: float | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[RebalancePlan]:
    """The fewest evictions that bring constraints within maxSkew together.

    Args:
        session: what the client's operations share.
        selector: of the pods whose constraints shall hold, and which may be evicted; None: all.
        namespace: of the pods; empty means all.
        excluded_namespaces: to leave alone.
        include_soft: also constraints that only prefer.
        filters: which pods may be evicted.
        budgets: how many evictions are allowed.
        search_time: seconds for the search; None is the server's 5.
        settings: None takes the profile of each pod's schedulerName.
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
    request = planner_pb2.PlanRebalanceRequest(
        cluster=cluster or session.cluster,
        namespace=namespace,
        label_selector=_labels(selector),
        consistency=requests.carried(consistency),
        settings=requests.carried(settings),
        include_soft=include_soft,
        filters=_filters(filters or Filters()),
        budgets=_budgets(budgets or Budgets()),
        search_time=requests.duration(search_time),
        excluded_namespaces=excluded_namespaces,
    )
    reply = yield from call(rpcs.PLAN_REBALANCE, request, timeout, traceparent)
    return _plan(reply.message, reply.traceparent)


def _labels(given: Labels | None) -> kube.LabelSelector | None:
    return kube.LabelSelector(match_labels=given) if isinstance(given, Mapping) else given


def _filters(given: Filters) -> rebalance_pb2.EvictionFilters:
    return rebalance_pb2.EvictionFilters(
        priority_below=given.priority_below,
        bare_pods=given.bare_pods,
        claims_stay=given.claims_stay,
        keep=_labels(given.keep),
    )


def _budgets(given: Budgets) -> rebalance_pb2.EvictionBudgets:
    for name in ("total", "per_node", "per_namespace"):
        budget = getattr(given, name)
        if budget is not None and budget < 0:
            raise InvalidRequest(f"budgets.{name}: {budget} evictions cannot be allowed")
    return rebalance_pb2.EvictionBudgets(
        total=given.total, per_node=given.per_node, per_namespace=given.per_namespace
    )


def _plan(message: planner_pb2.PlanRebalanceResponse, traceparent: str | None) -> RebalancePlan:
    return RebalancePlan(
        revision=message.revision,
        traceparent=traceparent,
        evictions=tuple(map(_eviction, message.evictions)),
        groups=tuple(map(_group, message.groups)),
        optimal=Optimality(message.optimal),
        constraints=message.constraints,
        violated=message.violated,
        left=message.left,
        stuck={each.reason: each.pods for each in message.stuck},
        not_modelled=tuple(message.not_modelled),
        notes=tuple(message.notes),
    )


def _eviction(message: rebalance_pb2.PlannedEviction) -> PlannedEviction:
    return PlannedEviction(
        namespace=message.namespace,
        name=message.name,
        uid=message.uid,
        node=message.node,
        target=message.target,
        fitting_nodes=message.fitting_nodes,
        priority=message.priority,
        deletion_cost=message.deletion_cost,
        group=message.group,
    )


def _group(message: rebalance_pb2.RebalanceGroup) -> RebalanceGroup:
    return RebalanceGroup(
        constraints=tuple(
            RebalanceConstraint(
                namespace=each.namespace,
                topology_key=each.topology_key,
                selector=each.selector,
                max_skew=each.max_skew,
                min_domains=each.min_domains,
                wanted=each.wanted,
                skew_before=each.skew_before,
                skew_after=each.skew_after,
            )
            for each in message.constraints
        ),
        outcome=_OUTCOMES[message.outcome],
        optimal=Optimality(message.optimal),
        evictions=message.evictions if message.HasField("evictions") else None,
        reason=message.reason,
        at_once=message.at_once,
    )
