"""Pods as decisions see them: reading a pod, its shape and constraints; the limits of a request.

A shape is all of a pod that decisions depend on, parsed once for all pods that have it.

The pods of a workload differ in name and little else. A shape keeps what follows from the rest: the
parsed pod, its constraints under the rules and workloads at hand, and the groups they count. Each
is worked out again when what it rests on is another object; threads may do so at once with equal
results, and no lock is taken. The plan for a node table is kept by the table, so that shapes that
are not asked for again do not keep old tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from topospread.cache import BUDGETS, LARGEST_KEY, Cache
from topospread.codec.frames import FramedPod, framed
from topospread.codec.pods import too_many_terms
from topospread.errors import InvalidPod, InvalidRequest
from topospread.kube.demands import NO_DEMAND
from topospread.kube.workloads import default_selector
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.spread.constraints import (
    ConstraintSet,
    PodConstraints,
    needs_default_selector,
    pod_constraints,
)
from topospread.spread.plans import Plan, plan
from topospread.spread.verdicts import SKIP, SUCCESS, Status, error

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from topospread.index.groups import Group
    from topospread.index.snapshot import NamespaceWorkloads, Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Pod
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey


class EffectiveConstraints:
    """The constraints by which pods of a shape are judged, under certain rules and workloads.

    Attributes:
        constraints: the effective ones.
        pre_filter: Success; Skip without hard constraints; Error when one does not parse.
        pre_score: the same of soft constraints.
        groups: what must be counted to judge them.
        is_large: the pod is a large one: nothing that follows from it is kept.
        nbytes: about: of constraints with their selectors, and of conditions on nodes.
    """

    __slots__ = ("constraints", "groups", "is_large", "nbytes", "pre_filter", "pre_score")

    def __init__(self, constraints: PodConstraints, *, is_large: bool) -> None:
        self.constraints = constraints
        self.is_large = is_large
        self.pre_filter = _status(constraints.hard)
        self.pre_score = _status(constraints.soft)
        both = (*constraints.hard.constraints, *constraints.soft.constraints)
        groups = (c.group for c in both if not c.counts_nothing)
        self.groups: tuple[GroupKey, ...] = tuple(dict.fromkeys(groups))
        # Constraints of one pod share their conditions on nodes.
        shared = {id(c.eligibility.requirements): c.eligibility.nbytes for c in both}
        own = [500 + len(c.topology_key) + c.group.nbytes for c in both]
        self.nbytes = 800 + sum(own) + sum(shared.values())

    def counted_in(self, snapshot: Snapshot) -> Sequence[Group] | None:
        """The groups as a snapshot counts them; None unless it counts all of them."""
        counted: list[Group] = []
        for key in self.groups:
            group = snapshot.groups.get(key)
            if group is None:
                return None
            counted.append(group)
        return counted

    def versions(self, snapshot: Snapshot) -> tuple[Group, ...]:
        """The groups as they are in a snapshot that counts them all."""
        return tuple([snapshot.groups[group] for group in self.groups])


class JudgedPod(NamedTuple):
    """A pod and the rules that it is judged by.

    Attributes:
        demand: what it demands of its node; the default where spreading alone is asked.
    """

    pod: ShapedPod
    rules: Rules
    demand: Demand = NO_DEMAND


def needed_groups(asked: Iterable[JudgedPod], snapshot: Snapshot) -> set[GroupKey]:
    """The groups that must be counted to judge pods: what their constraints and terms count."""
    all_effective: set[EffectiveConstraints] = set()
    demands: set[Demand] = set()
    for pod, rules, demand in asked:
        all_effective.add(pod.shape.effective_constraints(rules, snapshot))
        if demand.has_terms:
            demands.add(demand)
    groups = {group for effective in all_effective for group in effective.groups}
    for demand in demands:
        groups.update(counted_groups(demand, snapshot.objects))
    return groups


def plan_of(effective: EffectiveConstraints, snapshot: Snapshot) -> Plan | None:
    """The plan to judge node classes by; None when nodes must be judged one by one.

    It is kept by the node table, and dropped with it; a large pod's is not kept.
    """
    nodes = snapshot.nodes
    kept = nodes.plans.get(effective)
    if kept is not None:
        return kept[0]
    made = plan(effective.constraints, snapshot)
    if not effective.is_large:
        nodes.keep_plan(effective, effective.nbytes, made)
    return made


def _status(constraints: ConstraintSet) -> Status:
    if constraints.error:
        return error(constraints.error)
    return SUCCESS if constraints.constraints else SKIP


class PodShape:
    """The shape of a pod: all that decisions depend on, so everything but its name and uid.

    Args:
        pod: one pod of this shape; its name means nothing.
        encoded: bytes of what it was parsed from; a shape that is remembered has its key, too.
    """

    __slots__ = ("_effective", "is_large", "pod", "size")

    def __init__(self, pod: Pod, encoded: int = 0) -> None:
        self.pod = pod
        self.size = pod_size(pod) + 2 * encoded
        self.is_large = encoded > LARGEST_KEY
        self._effective: tuple[Rules, NamespaceWorkloads, EffectiveConstraints] | None = None

    def effective_constraints(self, rules: Rules, snapshot: Snapshot) -> EffectiveConstraints:
        """The constraints; they depend on the state only through the namespace's workloads."""
        workloads = snapshot.namespace(self.pod.namespace)
        made = self._effective
        if made is None or made[0] is not rules or made[1] is not workloads:
            deduced = None
            if needs_default_selector(self.pod, rules):
                deduced = default_selector(self.pod, workloads.services, workloads.lookup)
            constraints = pod_constraints(self.pod, rules, deduced)
            effective = EffectiveConstraints(constraints, is_large=self.is_large)
            made = self._effective = (rules, workloads, effective)
        return made[2]


def pod_size(pod: Pod) -> int:
    """Bytes, about, of a pod and of the constraints that are made of it."""
    total = 1800 + 230 * len(pod.labels) + 250 * len(pod.tolerations)
    total += 340 * len(pod.requirements.node_selector)
    for term in pod.requirements.terms or ():
        total += 150
        for expression in (*term.match_expressions, *term.match_fields):
            total += 300 + 130 * len(expression.values)
    for constraint in pod.constraints:
        total += 800 + 60 * len(constraint.match_label_keys)
        if (selector := constraint.label_selector) is not None:
            total += 340 * len(selector.match_labels)
            for condition in selector.match_expressions:
                total += 300 + 130 * len(condition.values)
    return total


class ShapedPod(NamedTuple):
    """A pod as its shape, its name and its uid."""

    shape: PodShape
    name: str
    uid: str


class PodShapes:
    """A cache of shapes by key, bounded in bytes.

    Attributes:
        get: the shape with a key, if it is remembered.
    """

    def __init__(self) -> None:
        self._kept: Cache[Hashable, PodShape] = Cache(BUDGETS["shapes"])
        self.get = self._kept.get

    def put(self, key: Hashable, shape: PodShape) -> None:
        """Keep a shape, unless it is a large one."""
        if not shape.is_large:
            self._kept.put(key, shape, shape.size)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of what one request may carry.

    Attributes:
        constraints: of one pod: real ones have one to four; each costs as much as the first.
        terms: expressions and values of one pod's selectors and affinity: generated affinities list
            nodes by name, a whole cluster's at most.
        batch_pods: pods in a BatchEvaluatePods, which holds one thread until it is done.
        batch_cells: different pods of one and their constraints, times nodes.
        batch_bytes: of what decisions look at, in different pods of one.
        batch_conditions: what selectors and affinity of different pods of one weigh.
        groups: different selectors of one.
        what_ifs: pods added and removed: preemption looks at those of one node, some hundred.
        top_k: nodes that EvaluatePod names.
        simulated_pods: pods that a simulation places: a thousand take a fraction of a second.
        simulated_nodes: nodes that join in one: as many as a large cluster has.
    """

    constraints: int = 64
    terms: int = 5000
    batch_pods: int = 1000
    batch_cells: int = 2_500_000
    batch_bytes: int = 512 << 10
    batch_conditions: int = 20_000
    groups: int = 4096
    what_ifs: int = 1000
    top_k: int = 1000
    simulated_pods: int = 10_000
    simulated_nodes: int = 5000


def check_size(pod: Pod, limits: Limits) -> None:
    """Refuse pods that would cost far more than any real one."""
    if len(pod.constraints) > limits.constraints:
        text = f"{len(pod.constraints)} constraints, at most {limits.constraints} are judged"
        path = "spec.topologySpreadConstraints"
        raise InvalidPod.at(path, text, "Too many")
    if _terms(pod) > limits.terms:
        raise too_many_terms(limits.terms).of_pod()


def _terms(pod: Pod) -> int:
    total = len(pod.requirements.node_selector) + len(pod.tolerations)
    for term in pod.requirements.terms or ():
        of_term = (*term.match_expressions, *term.match_fields)
        total += max(1, sum(1 + len(e.values) for e in of_term))  # an empty term, too
    for constraint in pod.constraints:
        total += len(constraint.match_label_keys)
        if constraint.label_selector is not None:
            total += len(constraint.label_selector.match_labels)
            expressions = constraint.label_selector.match_expressions
            total += sum(1 + len(e.values) for e in expressions)
    return total


def read_pod(encoded: bytes) -> FramedPod:
    """The frame of a pod: its shape's key and its name, without parsing the rest."""
    try:
        return framed(encoded)
    except InvalidRequest as wrong:
        raise wrong.of_pod() from wrong
