"""Pod shapes: all of a pod that decisions depend on, parsed once for all pods that have it.

The pods of a workload differ in name and little else. A shape keeps what follows from the rest: the
parsed pod, its constraints under the rules and workloads at hand, and the groups they count. Each
is worked out again when what it rests on is another object; threads may do so at once with equal
results, and no lock is taken. The plan for a node table is kept by the table, so that shapes that
are not asked for again do not keep old tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topospread.bounded import Bounded, Budget
from topospread.kube.workloads import default_selector
from topospread.spread.constraints import (
    ConstraintSet,
    PodConstraints,
    needs_default_selector,
    pod_constraints,
)
from topospread.spread.plans import Plan, plan
from topospread.spread.verdicts import SKIP, SUCCESS, Status, error

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.index.groups import Group
    from topospread.index.snapshot import Snapshot
    from topospread.index.workloads import NamespaceWorkloads
    from topospread.kube.objects import Pod
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey


class Judgeable:
    """A shape's constraints under certain rules and workloads.

    Attributes:
        constraints: the effective ones.
        pre_filter: Success; Skip without hard constraints; Error when one does not parse.
        pre_score: the same of soft constraints.
        groups: what must be counted to judge them.
        nbytes: about: of constraints with their selectors, and of conditions on nodes.
    """

    __slots__ = ("constraints", "groups", "nbytes", "pre_filter", "pre_score")

    def __init__(self, constraints: PodConstraints) -> None:
        self.constraints = constraints
        self.pre_filter = _status(constraints.hard)
        self.pre_score = _status(constraints.soft)
        both = (*constraints.hard.constraints, *constraints.soft.constraints)
        groups = (c.group for c in both if not c.group.counts_nothing)
        self.groups: tuple[GroupKey, ...] = tuple(dict.fromkeys(groups))
        # Constraints of one pod share their conditions on nodes.
        shared = {id(c.eligibility.requirements): c.eligibility.nbytes for c in both}
        own = [500 + len(c.topology_key) + c.group.nbytes for c in both]
        self.nbytes = 800 + sum(own) + sum(shared.values())

    def versions(self, snapshot: Snapshot) -> tuple[Group, ...]:
        """The groups as they are in a snapshot that counts them all."""
        return tuple([snapshot.groups[group] for group in self.groups])

    def plan(self, snapshot: Snapshot) -> Plan | None:
        """How to judge node classes; None when nodes must be judged one by one."""
        return snapshot.nodes.plan(self, lambda: plan(self.constraints, snapshot))


def _status(constraints: ConstraintSet) -> Status:
    if constraints.error:
        return error(constraints.error)
    return SUCCESS if constraints.constraints else SKIP


class Shape:
    """A pod without what makes it unlike its siblings.

    Args:
        pod: one pod of this shape; its name means nothing.
        encoded: bytes of what it was parsed from; a shape that is remembered has its key, too.
    """

    __slots__ = ("_judgeable", "pod", "size")

    def __init__(self, pod: Pod, encoded: int = 0) -> None:
        self.pod = pod
        self.size = pod_size(pod) + 2 * encoded
        self._judgeable: tuple[Rules, NamespaceWorkloads, Judgeable] | None = None

    def judgeable(self, rules: Rules, snapshot: Snapshot) -> Judgeable:
        """The constraints; they depend on the state only through the namespace's workloads."""
        workloads = snapshot.namespace(self.pod.namespace)
        made = self._judgeable
        if made is None or made[0] is not rules or made[1] is not workloads:
            deduced = None
            if needs_default_selector(self.pod, rules):
                deduced = default_selector(self.pod, workloads.services, workloads.lookup)
            judgeable = Judgeable(pod_constraints(self.pod, rules, deduced))
            made = self._judgeable = (rules, workloads, judgeable)
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
    """One pod: its shape, and who it is."""

    shape: Shape
    name: str
    uid: str


class Shapes:
    """Shapes by key, the ones used lately.

    Attributes:
        get: the shape with a key, if it is remembered.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self._kept: Bounded[Hashable, Shape] = Bounded(budget or Budget.usual("shapes"))
        self.get = self._kept.get

    def put(self, key: Hashable, shape: Shape) -> None:
        """Remember a shape."""
        self._kept.put(key, shape, shape.size)
