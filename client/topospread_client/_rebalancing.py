"""PlanRebalance: the fewest evictions that bring constraints within maxSkew together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer
from topospread_client._operations import ClientSession, Operation, call
from topospread_proto.v1 import planner_service_pb2, rebalance_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client._answers import SpreadConstraint
    from topospread_client._enums import Optimality, RebalanceOutcome
    from topospread_client._references import PodReference
    from topospread_client._requests import Consistency, LabelSelector, Settings


@dataclass(frozen=True, slots=True)
class EvictionFilters:
    """Conditions for pods to be evicted; DaemonSets' and static pods never are.

    Attributes:
        priority_threshold: only pods of a lower priority; None: below system-critical.
        evict_bare_pods: also pods without a controller, which are not recreated.
        protect_pods_with_pvc: not those that mount a persistent volume claim.
        protect_selector: not those with these labels.
    """

    priority_threshold: int | None = None
    evict_bare_pods: bool = False
    protect_pods_with_pvc: bool = False
    protect_selector: LabelSelector | None = None

    def message(self, path: str) -> rebalance_pb2.EvictionFilters:
        """Message of the request."""
        return arguments.part(
            path,
            rebalance_pb2.EvictionFilters,
            priority_threshold=self.priority_threshold,
            evict_bare_pods=self.evict_bare_pods,
            protect_pods_with_pvc=self.protect_pods_with_pvc,
            protect_selector=requests.label_selector(
                self.protect_selector, f"{path}.protectSelector"
            ),
        )


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """Greatest numbers of evictions; None for any number."""

    max_evictions: int | None = None
    max_evictions_per_node: int | None = None
    max_evictions_per_namespace: int | None = None

    def message(self, path: str) -> rebalance_pb2.EvictionLimits:
        """Message of the request."""
        return arguments.part(
            path,
            rebalance_pb2.EvictionLimits,
            max_evictions=self.max_evictions,
            max_evictions_per_node=self.max_evictions_per_node,
            max_evictions_per_namespace=self.max_evictions_per_namespace,
        )


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """Step of a plan: evict the pod; its replacement can go to `target_node` then.

    Attributes:
        fitting_node_count: nodes that it can go to then.
        group_index: position of its group in the answer.
    """

    pod: PodReference
    node: str
    target_node: str
    fitting_node_count: int
    priority: int
    deletion_cost: int
    group_index: int


@dataclass(frozen=True, slots=True)
class RebalanceConstraint:
    """Constraint before and after the evictions of its group.

    Attributes:
        wanted: whether the request asked for it; if not, the plan does not make it worse.
    """

    constraint: SpreadConstraint
    wanted: bool
    skew_before: int
    skew_after: int


@dataclass(frozen=True, slots=True)
class RebalanceGroup:
    """Group of constraints that depend on one another, of which at least one is violated.

    Attributes:
        optimality: of `eviction_count`; of an impossible one: that it is impossible.
        eviction_count: how many it needs; None when that is not known.
        reason: why there is no plan.
        at_once: its pods must all be evicted before the first replacement is placed.
        pending_pod_count: pods without a node that the constraints count; the plan is of others.
    """

    constraints: tuple[RebalanceConstraint, ...]
    outcome: RebalanceOutcome
    optimality: Optimality | None
    eviction_count: int | None
    reason: str
    at_once: bool
    pending_pod_count: int


@dataclass(frozen=True, slots=True)
class StuckPods:
    """Number of pods that may not be evicted, by reason."""

    reason: str
    pod_count: int


@dataclass(frozen=True, kw_only=True)
class PlanRebalanceResponse(Answer):
    """Plan of evictions; nothing is evicted.

    Attributes:
        evictions: in order.
        optimality: proven only if it is proven for each group.
        constraint_count: distinct constraints of the request.
        violated_constraint_count: of these, above their maxSkew now.
        remaining_constraint_count: of these, above it after the plan.
        not_modelled: features of the evicted pods that were not considered.
        notes: for people, for example that there is no constraint.
    """

    evictions: tuple[PlannedEviction, ...]
    groups: tuple[RebalanceGroup, ...]
    optimality: Optimality | None
    constraint_count: int
    violated_constraint_count: int
    remaining_constraint_count: int
    stuck: tuple[StuckPods, ...]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...]


def plan_rebalance(
    session: ClientSession,
    label_selector: LabelSelector | None = None,
    *,
    namespace: str | None = None,
    excluded_namespaces: Sequence[str] = (),
    include_soft: bool = False,
    filters: EvictionFilters | None = None,
    eviction_limits: EvictionLimits | None = None,
    search_timeout: float | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[PlanRebalanceResponse]:
    """Plan the fewest evictions that bring constraints within maxSkew together.

    Args:
        label_selector: of the pods whose constraints shall hold, and which may be evicted: a
            message, labels that must be equal, or a query as kubectl's ``-l`` takes it; None: all.
        namespace: of the pods; None means all.
        excluded_namespaces: to leave alone.
        include_soft: also constraints that only prefer.
        filters: which pods may be evicted.
        eviction_limits: how many evictions are allowed.
        search_timeout: seconds for the search; None is the server's 5.
        settings: None takes the profile of each pod's schedulerName.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds; None takes the client's plus that of the search.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster is not in the state.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        planner_service_pb2.PlanRebalanceRequest,
        cluster=cluster or session.cluster,
        namespace=namespace or "",
        label_selector=requests.label_selector(label_selector),
        consistency=requests.consistency_message(consistency),
        settings=requests.settings_message(settings),
        include_soft=include_soft,
        filters=requests.part_message(filters, EvictionFilters, "filters"),
        eviction_limits=requests.part_message(eviction_limits, EvictionLimits, "evictionLimits"),
        search_timeout=arguments.duration(search_timeout, "searchTimeout"),
        excluded_namespaces=arguments.as_list(excluded_namespaces, "excludedNamespaces"),
    )
    extra_timeout = max(search_timeout or 0.0, 0.0)
    reply = yield from call(
        rpcs.PLAN_REBALANCE, request, timeout, traceparent, extra_timeout=extra_timeout
    )
    return decoding.answer(PlanRebalanceResponse, reply)
