"""The checked request of a rebalance, and the inventory of pods and constraints."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.codec.frames import framed
from topospread.codec.pods import selector_of
from topospread.errors import InvalidRequest
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import invalid
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.kube.selectors import Selector
    from topospread.kube.violations import Problems
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import EffectiveConstraints, PodShape
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.state.consistent_read import ConsistentRead
    from topospread.spread.constraints import Constraint
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Eligibility, GroupKey
    from topospread_proto.v1 import planner_service_pb2 as pb


LabelPairs = tuple[tuple[str, str], ...]
"""Labels of a pod, sorted."""

SYSTEM_CRITICAL: Final = 2_000_000_000
"""Kubernetes' lowest priority of pods that the cluster itself needs."""

DEFAULT_SEARCH: Final = 5.0
MAX_SEARCH: Final = 60.0
"""Seconds that a search may take."""


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceQuestion:
    """A checked request of PlanRebalance.

    Attributes:
        decision: the cluster, the rules, the freshness and the deadline.
        selector: of the pods whose constraints are to hold, and which may be evicted.
        protected: of pods that may not be evicted; None: no such.
        threshold: only pods of a lower priority may be evicted.
        search: seconds that may be spent on the search.
    """

    message: pb.PlanRebalanceRequest
    decision: DecisionRequest
    selector: Selector
    protected: Selector | None
    threshold: int
    search: float


def checked(
    request: pb.PlanRebalanceRequest, decision: DecisionRequest, wrong: Problems
) -> RebalanceQuestion:
    """Check a request, of whose decision something may be wrong already.

    Raises:
        InvalidRequest: with all that is wrong.
    """
    selector, protected, filters = EVERYTHING, None, request.filters
    if request.HasField("label_selector"):
        selector = wrong.read(selector_of, request.label_selector, "labelSelector")
    if filters.HasField("protect_selector"):
        path = "filters.protectSelector"
        protected = wrong.read(selector_of, filters.protect_selector, path)
    threshold, search = SYSTEM_CRITICAL, DEFAULT_SEARCH
    if filters.HasField("priority_threshold"):
        threshold = filters.priority_threshold
    if request.HasField("search_timeout"):
        search = request.search_timeout.seconds + request.search_timeout.nanos / 1e9
        if not 0 < search <= MAX_SEARCH:
            text = f"must be above 0 and at most {MAX_SEARCH:g}s"
            wrong.add(invalid("searchTimeout", f"{search:g}s", text))
    for limit, most in request.eviction_limits.ListFields():
        if most < 0:
            wrong.add(invalid(f"evictionLimits.{limit.json_name}", most, "must not be negative"))
    wrong.raise_all()
    return RebalanceQuestion(request, decision, selector, protected, threshold, search)


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
        members: in the order of their names, once they have been read (:func:`read_pods`).
        limits: what their own constraints demand: the hard ones, and the soft ones if asked for.
        chosen: whether the request means them.
        terms: what their inter-pod affinity counts.
    """

    shape: PodShape
    rules: Rules
    effective: EffectiveConstraints
    limits: tuple[SkewLimit, ...]
    chosen: bool
    classes: list[PodClass] = field(default_factory=list)
    members: list[InventoryPod] = field(default_factory=list)
    terms: set[GroupKey] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class NamespaceInventory:
    """The pods of a namespace by class, and their constraints.

    Attributes:
        pod_classes: by the keys of their shapes.
        limits: all that its pods demand; True for those of pods that the request means.
        pending: pods that wait for a node by their labels, without those that gates hold.
        constrained: pods that wait, that the request means, and that have a constraint.
    """

    pod_classes: dict[bytes, ShapedPods] = field(default_factory=dict)
    limits: dict[SkewLimit, bool] = field(default_factory=dict)
    pending: Counter[LabelPairs] = field(default_factory=Counter)
    constrained: int = 0

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
    engine: Engine, question: RebalanceQuestion, snapshot: Snapshot
) -> Mapping[str, NamespaceInventory]:
    """The namespaces, with the constraints that are in force at a snapshot; no pod is read.

    Raises:
        InvalidRequest: unknown settings.
    """
    inventories: dict[str, NamespaceInventory] = {}
    # A wrong setting is the caller's mistake; a pod that is too much is left out.
    request, decision = question.message, question.decision
    engine.rules.rules_for(decision.settings, "", snapshot.version)
    turn = CooperativeYield(decision.deadline, "the pods were counted")
    excluded = frozenset(request.excluded_namespaces)
    for name, classes in snapshot.pod_classes.items():
        if name in excluded or (request.namespace and name != request.namespace):
            continue
        inventory = inventories[name] = NamespaceInventory()
        # In an order that is the same on each server.
        for pod_class in sorted(classes, key=lambda each: each.template):
            turn()
            counts = classes[pod_class]
            with suppress(InvalidRequest):
                pod = framed(pod_class.template)
                shape = engine.intern(pod).shape
                if counts.pending and not engine.template_of(pod_class)[1].gated:
                    inventory.pending[pod_class.labels] += counts.pending
                shaped = inventory.pod_classes.get(pod.key)
                if shaped is None:
                    shaped = _shaped_pods(engine, question, shape, snapshot)
                if counts.pending and shaped.limits and shaped.chosen:
                    inventory.constrained += counts.pending
                if not counts.bound:
                    continue
                inventory.pod_classes[pod.key] = shaped
                shaped.classes.append(pod_class)
                if shaped.limits:
                    _, demand = engine.template_of(pod_class)
                    shaped.terms.update(counted_groups(demand, snapshot.objects))
        for shaped in inventory.pod_classes.values():
            for limit in shaped.limits:
                inventory.limits[limit] = inventory.limits.get(limit, False) or shaped.chosen
    return inventories


def _shaped_pods(
    engine: Engine, question: RebalanceQuestion, shape: PodShape, snapshot: Snapshot
) -> ShapedPods:
    settings, scheduler = question.decision.settings, shape.pod.scheduler_name
    rules = engine.rules.rules_for(settings, scheduler, snapshot.version)
    effective = shape.effective_constraints(rules, snapshot)
    own = effective.constraints
    soft = own.soft.constraints if question.message.include_soft else ()
    constraints = [*own.hard.constraints, *soft]
    limits = dict.fromkeys(skew_limit(c) for c in constraints if not c.counts_nothing)
    chosen = question.selector.matches(shape.pod.labels)
    return ShapedPods(shape, rules, effective, tuple(limits), chosen)


def groups_of(inventories: Mapping[str, NamespaceInventory]) -> set[GroupKey]:
    """All groups that must be counted."""
    found: set[GroupKey] = set()
    for inventory in inventories.values():
        found.update(limit.group for limit in inventory.limits)
        for pod_class in inventory.pod_classes.values():
            if pod_class.limits:
                found.update(pod_class.effective.groups, pod_class.terms)
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


def read_pods(read: ConsistentRead, components: Sequence[ConstraintComponent]) -> bool:
    """Fill in the members of the pods of some components.

    Returns:
        Whether they are those of the view that the components are of; see ConsistentRead.read.

    Raises:
        Unavailable: see ConsistentRead.read.
    """
    shaped_of = {
        pod_class: shaped
        for component in components
        for shaped in component.pod_classes
        for pod_class in shaped.classes
    }
    bound = {
        Key(Kind.POD, pod_class.namespace, name): (shaped_of[pod_class], node)
        for pod_class, name, node in read.pods.of(shaped_of)
        if node
    }
    if not read.read(bound):
        return False
    for item in read.objects(bound):
        shaped, node = bound[item.key]
        shaped.members.append(InventoryPod(item.key.name, item.uid, node, item.payload))
    return True
