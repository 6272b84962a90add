"""Node fit apart from spreading: the verdicts of the scheduler's other filters.

Rules stand in the order of kube-scheduler's default profile, and a node has the reasons of the
first one that refuses it. What is not modelled is listed by
:attr:`~topospread.kube.demands.Demand.not_modelled`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.index.snapshot import PODS
from topospread.kube.affinity import NO_SCHEDULE, tolerated
from topospread.kube.objects import Taint
from topospread.spread.topology import Eligibility
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.kube.affinity import CompiledRequirements
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Pod
    from topospread.spread.topology import Bools

REASON_CORDONED: Final = "node(s) were unschedulable"
REASON_TAINTED: Final = "node(s) had untolerated taint(s)"
REASON_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_PODS: Final = "Too many pods"

CORDONED_TAINT: Final = Taint("node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)

Refused = tuple[Counter[str], Counter[Code]]
"""Nodes by reason, of which one may have several, and nodes by code."""


class Fit(Enum):
    """The checks beside spreading."""

    SPREAD_ONLY = auto()
    NODE = auto()
    NODE_AND_RESOURCES = auto()


NOT_ASKED: Final = {
    Fit.SPREAD_ONLY: ("cordons", "taints", "node affinity", "resources"),
    Fit.NODE: ("resources",),
    Fit.NODE_AND_RESOURCES: (),
}
"""What a fit leaves out of the modelled checks."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One of the scheduler's filters, and the nodes it refuses.

    Attributes:
        code: of its refusals.
        refusals: (reason, [slots] whether it refuses the node for it); a node may have several.
    """

    code: Code
    refusals: Sequence[tuple[str, Bools]]

    @property
    def refused(self) -> Bools:
        """[slots] whether the node is refused."""
        found = self.refusals[0][1]
        for _, refused in self.refusals[1:]:
            found = found | refused
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Suited:
    """The nodes that suit a pod.

    Attributes:
        nodes: [slots] those that do; slots without a node have any value.
        rules: in order, worked out when somebody asks why.
    """

    nodes: Bools
    rules: Callable[[], Iterable[Rule]]

    def reasons(self, slots: NDArray[np.intp]) -> Refused:
        """Refusals of nodes: nodes by reason, and by code of the first rule that refuses."""
        reasons: Counter[str] = Counter()
        codes: Counter[Code] = Counter()
        left = slots
        for rule in self.rules():
            refused = rule.refused[left]
            if not refused.any():
                continue
            here = left[refused]
            codes[rule.code] += int(here.size)
            for reason, by_slot in rule.refusals:
                reasons[reason] += int(np.count_nonzero(by_slot[here]))
            left = left[~refused]
        return +reasons, codes


def suited(
    snapshot: Snapshot,
    pod: Pod,
    requirements: CompiledRequirements,
    demand: Demand,
    fit: Fit,
    *,
    comparison_operators: bool = False,
) -> Suited:
    """Check all nodes by the filters beside spreading.

    Args:
        snapshot: the state.
        pod: for its tolerations.
        requirements: its node affinity, compiled.
        demand: what it takes from its node.
        fit: how much is asked.
        comparison_operators: tolerations may use Lt and Gt.
    """
    spared = Eligibility(tolerations=pod.tolerations, comparison_operators=comparison_operators)
    chosen = Eligibility(requirements=requirements)
    cordoned: Bools | None = snapshot.nodes.cordoned
    if not snapshot.nodes.cordoned.any() or tolerated((CORDONED_TAINT,), pod.tolerations):
        cordoned = None

    def rules() -> Iterator[Rule]:
        if fit is not Fit.SPREAD_ONLY:
            unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            if cordoned is not None:
                yield Rule(unresolvable, [(REASON_CORDONED, cordoned)])
            yield Rule(unresolvable, [(REASON_TAINTED, ~snapshot.mask(spared))])
            yield Rule(unresolvable, [(REASON_AFFINITY, ~snapshot.mask(chosen))])
        if fit is Fit.NODE_AND_RESOURCES:
            yield Rule(Code.UNSCHEDULABLE, list(_of_resources(snapshot, demand)))

    nodes = snapshot.alive
    if fit is not Fit.SPREAD_ONLY:
        nodes = snapshot.mask(spared)
        if not requirements.matches_all:
            nodes = nodes & snapshot.mask(chosen)
        if cordoned is not None:
            nodes = nodes & ~cordoned
    if fit is Fit.NODE_AND_RESOURCES:
        for _, lacking in _of_resources(snapshot, demand):
            nodes = nodes & ~lacking
    return Suited(nodes, rules)


def _of_resources(snapshot: Snapshot, demand: Demand) -> Iterator[tuple[str, Bools]]:
    """Requests against what is allocatable and not taken; nodes without allocatable have plenty."""
    nodes, usage = snapshot.nodes, snapshot.usage
    stated = nodes.has_allocatable
    for name, wanted in ((PODS, 1), *demand.requests):
        if not wanted:
            continue
        reason = REASON_PODS if name == PODS else f"Insufficient {name}"
        if wanted > 0 and not nodes.offers(name):
            # Callers name any: all share one array, without a sum over pods.
            yield reason, stated
            continue
        left = nodes.allocatable(name) - usage.taken(name, nodes.capacity)
        yield reason, (left < wanted) & stated
