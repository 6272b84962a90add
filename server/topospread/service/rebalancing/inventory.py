"""The request and the plan of a rebalance, and the inventory of pods and constraints."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.codec.frames import framed
from topospread.errors import InvalidRequest
from topospread.kube.selectors import EVERYTHING
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.service.decisions.request import DEFAULT_CLUSTER, NO_OVERRIDE, SettingsOverride

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.kube.selectors import Selector
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import EffectiveConstraints, PodShape
    from topospread.spread.constraints import Constraint
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Eligibility, GroupKey


LabelPairs = tuple[tuple[str, str], ...]
"""Labels of a pod, sorted."""

SYSTEM_CRITICAL: Final = 2_000_000_000
"""Kubernetes' lowest priority of pods that the cluster itself needs."""

DEFAULT_SEARCH: Final = 5.0
MAX_SEARCH: Final = 60.0
"""Seconds that a search may take."""


@dataclass(frozen=True, slots=True)
class EvictionFilters:
    """Filters of the pods that may be evicted.

    Attributes:
        priority_threshold: only pods of a lower priority.
        evict_bare_pods: also pods without a controller, which are not recreated.
        protect_pods_with_pvc: not those that mount a persistent volume claim.
        protect_selector: not those with these labels; None: no such.
    """

    priority_threshold: int = SYSTEM_CRITICAL
    evict_bare_pods: bool = False
    protect_pods_with_pvc: bool = False
    protect_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """Limits of the number of evictions; None: any number."""

    max_evictions: int | None = None
    max_evictions_per_node: int | None = None
    max_evictions_per_namespace: int | None = None


@dataclass(frozen=True, slots=True)
class RebalanceRequest:
    """The request of PlanRebalance.

    Attributes:
        namespace: empty for all.
        excluded: namespaces that are left alone.
        selector: of the pods whose constraints are to hold, and which may be evicted.
        soft: also constraints that only prefer.
        search: seconds that may be spent on the search.
    """

    deadline: float
    cluster: str = DEFAULT_CLUSTER
    namespace: str = ""
    excluded: frozenset[str] = frozenset()
    selector: Selector = EVERYTHING
    consistency: Consistency = DEFAULT_CONSISTENCY
    settings: SettingsOverride = NO_OVERRIDE
    soft: bool = False
    filters: EvictionFilters = EvictionFilters()
    limits: EvictionLimits = EvictionLimits()
    search: float = DEFAULT_SEARCH


class Optimality(Enum):
    """Whether a number of evictions is proved to be the fewest."""

    PROVED = auto()
    BEST_FOUND = auto()


class GroupOutcome(Enum):
    """The result of planning for constraints that depend on one another."""

    PLANNED = auto()
    OVER_LIMIT = auto()
    IMPOSSIBLE = auto()
    NOT_FOUND = auto()


@dataclass(frozen=True, slots=True)
class ConstraintSkew:
    """The skew of one constraint before and after the plan.

    Attributes:
        constraint: as the first pod with it has it.
        wanted: whether it is one of those asked for; others must not get worse.
    """

    constraint: Constraint
    wanted: bool
    skew_before: int
    skew_after: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """One step: evict the pod; its replacement passes the filters on `target` then.

    Attributes:
        group: position of the group that it is for.
        fitting: nodes that the replacement passes on at that moment.
    """

    group: int
    namespace: str
    name: str
    uid: str
    node: str
    target: str
    fitting: int
    priority: int
    deletion_cost: int


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Constraints that depend on one another, at least one of them above its maxSkew.

    Attributes:
        evictions: that it needs; −1 when that is not known.
        pending: pods without a node that the constraints count.
        at_once: its pods must all be evicted before the first replacement is placed.
        reason: why there is no plan; empty when there is one.
    """

    constraints: Sequence[ConstraintSkew]
    outcome: GroupOutcome
    optimality: Optimality
    evictions: int
    pending: int
    reason: str = ""
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """The plan: the evictions of all groups, in order.

    Attributes:
        view: the state that was looked at, and `replica` who follows it.
        constraints: distinct ones that were asked for.
        violated: of these, above their maxSkew now.
        left: of these, above it after the plan.
        stuck: pods of the groups that may not be evicted, by why.
        notes: what the caller ought to know.
    """

    view: View
    replica: Replica
    evictions: Sequence[Eviction]
    groups: Sequence[GroupResult]
    constraints: int
    violated: int
    left: int
    stuck: Mapping[str, int]
    not_modelled: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def optimality(self) -> Optimality:
        """The optimality of the whole plan: proved only if each group's is."""
        proved = all(group.optimality is Optimality.PROVED for group in self.groups)
        return Optimality.PROVED if proved else Optimality.BEST_FOUND


@dataclass(frozen=True, slots=True)
class SkewLimit:
    """A constraint independent of its pod: what must hold of the counts of a group.

    Attributes:
        constraint: one that demands it; equal limits may have different ones.
    """

    topology_key: str
    max_skew: int
    group: GroupKey
    min_domains: int
    eligibility: Eligibility
    constraint: Constraint = field(compare=False)


def skew_limit(constraint: Constraint) -> SkewLimit:
    """The limit that a pod's constraint sets."""
    return SkewLimit(
        constraint.topology_key,
        constraint.max_skew,
        constraint.group,
        constraint.min_domains,
        constraint.eligibility,
        constraint,
    )


class InventoryPod(NamedTuple):
    """A pod of the inventory."""

    name: str
    uid: str
    node: str
    payload: bytes


@dataclass(slots=True, eq=False)
class ShapedPods:
    """The pods of one shape.

    Attributes:
        classes: the index's that have this shape; they differ in what their pods request.
        members: in the order of their names, once they have been read (`reading.py`).
        limits: what their own constraints demand: the hard ones, and the soft ones if asked for.
        chosen: whether the request means them.
    """

    shape: PodShape
    rules: Rules
    effective: EffectiveConstraints
    limits: tuple[SkewLimit, ...]
    chosen: bool
    classes: list[PodClass] = field(default_factory=list)
    members: list[InventoryPod] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class NamespaceInventory:
    """The pods of a namespace by class, and their constraints.

    Attributes:
        pod_classes: by the keys of their shapes.
        limits: all that its pods demand; True for those of pods that the request means.
        pending: pods without a node by their labels.
    """

    pod_classes: dict[bytes, ShapedPods] = field(default_factory=dict)
    limits: dict[SkewLimit, bool] = field(default_factory=dict)
    pending: Counter[LabelPairs] = field(default_factory=Counter)

    def pending_in(self, groups: Iterable[GroupKey]) -> int:
        """The pods without a node that one of these groups would count."""
        selectors = {group.selector for group in groups}
        found = 0
        for pairs, count in self.pending.items():
            checkpoint()
            labels = dict(pairs)
            if any(selector.matches(labels) for selector in selectors):
                found += count
        return found


def take_inventory(
    engine: Engine, request: RebalanceRequest, snapshot: Snapshot
) -> Mapping[str, NamespaceInventory]:
    """The namespaces, with the constraints that are in force at a snapshot; no pod is read.

    Raises:
        InvalidRequest: unknown settings.
    """
    inventories: dict[str, NamespaceInventory] = {}
    # A wrong setting is the caller's mistake; a pod that is too much is left out.
    engine.rules.rules_for(request.settings, "")
    turn = CooperativeYield(request.deadline, "the pods were counted")
    for name, classes in snapshot.pod_classes.items():
        if name in request.excluded or (request.namespace and name != request.namespace):
            continue
        inventory = inventories[name] = NamespaceInventory()
        # In an order that is the same on each server.
        for pod_class in sorted(classes, key=lambda each: each.template):
            turn()
            counts = classes[pod_class]
            with suppress(InvalidRequest):
                pod = framed(pod_class.template)
                shape = engine.intern(pod).shape
                if counts.pending:
                    inventory.pending[pod_class.labels] += counts.pending
                if not counts.bound:
                    continue
                shaped = inventory.pod_classes.get(pod.key)
                if shaped is None:
                    shaped = _shaped_pods(engine, request, shape, snapshot)
                    inventory.pod_classes[pod.key] = shaped
                shaped.classes.append(pod_class)
        for shaped in inventory.pod_classes.values():
            for limit in shaped.limits:
                inventory.limits[limit] = inventory.limits.get(limit, False) or shaped.chosen
    return inventories


def _shaped_pods(
    engine: Engine, request: RebalanceRequest, shape: PodShape, snapshot: Snapshot
) -> ShapedPods:
    rules = engine.rules.rules_for(request.settings, shape.pod.scheduler_name)
    effective = shape.effective_constraints(rules, snapshot)
    own = effective.constraints
    constraints = [*own.hard.constraints, *(own.soft.constraints if request.soft else ())]
    limits = dict.fromkeys(skew_limit(c) for c in constraints if not c.group.counts_nothing)
    chosen = request.selector.matches(shape.pod.labels)
    return ShapedPods(shape, rules, effective, tuple(limits), chosen)


def groups_of(inventories: Mapping[str, NamespaceInventory]) -> set[GroupKey]:
    """All groups that must be counted."""
    found: set[GroupKey] = set()
    for inventory in inventories.values():
        found.update(limit.group for limit in inventory.limits)
        for pod_class in inventory.pod_classes.values():
            if pod_class.limits:
                found.update(pod_class.effective.groups)
    return found


def skew(limit: SkewLimit, snapshot: Snapshot) -> int:
    """The skew: how far the fullest domain is ahead of the global minimum."""
    counts = snapshot.domain_counts(limit.group, limit.eligibility, limit.topology_key)
    membership = snapshot.membership(limit.eligibility, limit.topology_key)
    if not membership.size:
        return 0
    minimum = 0
    if membership.size >= limit.min_domains:
        minimum = int(counts[membership.present].min())
    return int(counts.max()) - minimum


@dataclass(slots=True, eq=False)
class ConstraintComponent:
    """Constraints that depend on one another: to move a pod for one may break another.

    Attributes:
        limits: with whether the request means them.
        pod_classes: pods that may be moved for them.
        pending: pods without a node that one of them counts.
    """

    namespace: str
    limits: dict[SkewLimit, bool]
    pod_classes: list[ShapedPods]
    pending: int


def connected_components(
    namespace: str, inventory: NamespaceInventory, snapshot: Snapshot
) -> Iterator[ConstraintComponent]:
    """The sets of dependent constraints of which at least one that is meant does not hold."""
    movable = [
        pod_class
        for pod_class in inventory.pod_classes.values()
        if pod_class.chosen and any(inventory.limits[limit] for limit in pod_class.limits)
    ]
    touched = {id(pod_class): _touched(pod_class, inventory) for pod_class in movable}
    users: dict[SkewLimit, list[ShapedPods]] = {}
    for pod_class in movable:
        for limit in touched[id(pod_class)]:
            users.setdefault(limit, []).append(pod_class)
    seen: set[SkewLimit] = set()
    for first, meant in inventory.limits.items():
        if not meant or first in seen or skew(first, snapshot) <= first.max_skew:
            continue
        found, pod_classes = {first: True}, dict[int, ShapedPods]()
        waiting = [first]
        while waiting:
            for pod_class in users.get(waiting.pop(), ()):
                if id(pod_class) in pod_classes:
                    continue
                pod_classes[id(pod_class)] = pod_class
                for limit in touched[id(pod_class)]:
                    if limit not in found:
                        found[limit] = inventory.limits[limit]
                        waiting.append(limit)
        seen.update(found)
        pending = inventory.pending_in(limit.group for limit in found)
        yield ConstraintComponent(namespace, found, list(pod_classes.values()), pending)


def _touched(pod_class: ShapedPods, inventory: NamespaceInventory) -> list[SkewLimit]:
    """The constraints that a move of such a pod may change, or is bound by."""
    labels = pod_class.shape.pod.labels
    return [
        limit
        for limit in inventory.limits
        if limit in pod_class.limits or limit.group.selector.matches(labels)
    ]
