"""Simulate: what would happen, the fewest nodes for it, and why pods stay pending."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.usage import PODS
from topospread.service.decisions.node_fit import Fit, suited
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.service.simulation.request import NodeGroup, expand_groups
from topospread.service.simulation.run import PlacementOptions, place_batches
from topospread.service.simulation.scenario import between_pods
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Node
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.simulation.request import SimulationRequest
    from topospread.service.simulation.run import PendingPods, PodBatch, SimulationResult
    from topospread.service.simulation.scenario import Scenario, ScenarioBuilder
    from topospread_proto.v1.explanation_pb2 import Explanation


EFFORT: Final = 20_000
"""Pods that a search may place: some seconds on thousands of nodes."""

OVERHEAD: Final = 20
"""What a simulation takes beside placing, in pods."""

MOST: Final = 1000
"""Nodes of a group where no number is given: what cluster-autoscaler adds at once at most."""

MOST_IN_ALL: Final = 5000
"""Nodes of all such groups together."""

Counts = tuple[int, ...]
"""Nodes of each group."""

HELPING: Final = 500
"""The effort for advice that was not requested, and the pods that it may be about: some tenths of
a second on thousands of nodes."""

MOST_LIKE: Final = 500
"""Nodes that such an advice may speak of."""


@dataclass(slots=True, eq=False)
class SimulatedScenario:
    """A scenario with its simulation.

    Attributes:
        joined: for each node group, the names of its nodes.
    """

    scenario: Scenario
    simulation: SimulationResult
    joined: Sequence[Sequence[str]]

    @property
    def group_of(self) -> Mapping[str, str]:
        """The node group of each node that joined, by the node's name."""
        groups = self.scenario.request.groups
        return {
            name: group.name
            for group, names in zip(groups, self.joined, strict=True)
            for name in names
        }


def with_nodes(
    scenario: Scenario,
    counts: Sequence[int],
    *,
    all_or_nothing: bool = False,
    place: bool = True,
) -> SimulatedScenario:
    """Simulate with so many nodes of each group.

    Args:
        scenario: what is asked.
        counts: nodes of each group.
        all_or_nothing: stop at the first pod that fits nowhere.
        place: False changes the nodes only.
    """
    request, view = scenario.request, scenario.view
    batches = scenario.batches if place else ()
    nodes = expand_groups(request.groups, counts, lambda name: view.snapshot.slot(name) >= 0)
    changes = replace(scenario.changes, joined=[node for group in nodes for node in group])
    options = PlacementOptions(request.fit, request.seed, all_or_nothing, between_pods(request))
    simulation = place_batches(view, changes, batches, options)
    return SimulatedScenario(
        scenario, simulation, [[node.name for node in group] for group in nodes]
    )


@dataclass(frozen=True, slots=True)
class MinimumNodes:
    """The fewest nodes with which all pods fit, as far as the search got.

    Attributes:
        counts: nodes of each group; with `all_fit` False the most that may join.
        all_fit: whether all pods fit with these.
        proved: nothing smaller does; without `all_fit`: nothing at all does.
        simulations: how many were made.
    """

    counts: Counts
    all_fit: bool
    proved: bool
    simulations: int


def minimum_nodes(scenario: Scenario, effort: int = EFFORT) -> MinimumNodes:
    """Find the fewest nodes of the groups with which all pods fit.

    Args:
        scenario: the groups' counts are the most that may join; None is MOST, or an equal share
            of MOST_IN_ALL.
        effort: pods to place at most, about.

    Raises:
        DeadlineExceeded: and what else the scenario's pause raises.
    """
    groups = scenario.request.groups
    share = max(1, min(MOST, MOST_IN_ALL // len(groups)))
    most = tuple(share if group.count is None else group.count for group in groups)
    search = _Search(scenario, effort)
    lowest = _least(scenario)
    if lowest is None or lowest > sum(most):
        return MinimumNodes(most, all_fit=False, proved=True, simulations=0)
    for total in range(lowest, sum(most) + 1):
        for counts in mixtures(total, most):
            if search.spent > effort // 2:
                return _best_found(search, most, total)
            if search.fits(counts):
                return MinimumNodes(counts, True, True, len(search.known))
    return MinimumNodes(most, all_fit=False, proved=True, simulations=len(search.known))


def mixtures(total: int, most: Sequence[int]) -> Iterator[Counts]:
    """All ways to take so many nodes, those with more of the first groups first."""
    if len(most) == 1:
        if total <= most[0]:
            yield (total,)
        return
    for first in range(min(total, most[0]), -1, -1):
        for others in mixtures(total - first, most[1:]):
            yield (first, *others)


@dataclass(slots=True)
class _Search:
    """The simulations of one search, within its effort.

    Attributes:
        spent: of the effort.
        known: whether all fit, by counts.
    """

    scenario: Scenario
    effort: int
    spent: int = 0
    known: dict[Counts, bool] = field(default_factory=dict)

    def over(self) -> bool:
        """Whether the effort is spent."""
        return self.spent > self.effort

    def fits(self, counts: Counts) -> bool:
        """Whether all pods fit with so many nodes."""
        checkpoint()
        known = self.known.get(counts)
        if known is None:
            simulation = with_nodes(self.scenario, counts, all_or_nothing=True).simulation
            self.spent += OVERHEAD + sum(counts) // 10 + len(simulation.placements)
            known = self.known[counts] = not simulation.pending
        return known


def _best_found(search: _Search, most: Counts, total: int) -> MinimumNodes:
    """Search downwards from a number of nodes that works."""
    upper = max(1, total)
    found: Counts | None = None
    while found is None and not search.over():
        upper = min(upper * 2, sum(most))
        shapes = (counts for counts in _shapes(upper, most) if not search.over())
        found = next(filter(search.fits, shapes), None)
        if upper == sum(most):
            break
    if found is None:
        return MinimumNodes(most, all_fit=False, proved=False, simulations=len(search.known))
    step = max(found)
    while step and not search.over():
        lower = _lower(search, found, step)
        if lower is None:
            step //= 2
        else:
            found = lower
    return MinimumNodes(found, True, False, len(search.known))


def _shapes(total: int, most: Counts) -> Iterator[Counts]:
    """Numbers of nodes to try, up to a total: of all groups alike, then of each alone."""
    share, rest = divmod(total, len(most))
    yield tuple(min(m, share + (n < rest)) for n, m in enumerate(most))
    for alone in range(len(most)):
        yield tuple(min(m, total) if n == alone else 0 for n, m in enumerate(most))


def _lower(search: _Search, counts: Counts, step: int) -> Counts | None:
    """Counts with fewer nodes of one group that still work; the last groups give way first."""
    for position in reversed(range(len(counts))):
        if counts[position] >= step and not search.over():
            less = (*counts[:position], counts[position] - step, *counts[position + 1 :])
            if search.fits(less):
                return less
    return None


# ------------------------------ resources


def _least(scenario: Scenario) -> int | None:
    """Fewer nodes than these lack the room, however pods spread; None: no number is enough."""
    request, batches = scenario.request, scenario.batches
    state = with_nodes(scenario, [0] * len(request.groups), place=False).simulation.changed
    if request.fit is not Fit.NODE_AND_RESOURCES or _holds(state, batches):
        return 0
    least = 0
    wanted: dict[str, int] = {}
    for batch in batches:
        for name, amount in ((PODS, 1), *batch.demand.requests):
            wanted[name] = wanted.get(name, 0) + amount * len(batch.names)
    usable = _usable(state, batches)
    for name, amount in wanted.items():
        lacking = amount - _left(state, usable, name)
        offers = [_offer(group.template.allocatable, name) for group in request.groups]
        if lacking <= 0 or None in offers:
            continue
        largest = max(offer for offer in offers if offer is not None)
        if not largest:
            return None
        least = max(least, -(-lacking // largest))
    return least


def _holds(state: Snapshot, batches: Sequence[PodBatch]) -> bool:
    """Whether something is held for one of the pods, which is room of its own."""
    held = state.reservations
    return len(held) > 0 and any(
        held.of(batch.namespace, name, batch.uid) for batch in batches for name in batch.names
    )


def _usable(
    state: Snapshot, batches: Sequence[PodBatch]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[slots] nodes that one of the pods could go to, were they empty."""
    found = np.zeros_like(state.alive)
    for batch in batches:
        effective = batch.shape.effective_constraints(batch.rules, state)
        found |= suited(
            state,
            batch.shape.pod,
            effective.constraints.requirements,
            batch.demand,
            Fit.NODE,
            comparison_operators=batch.rules.gates.taint_comparison_operators,
        ).nodes
    return found & state.alive


def _left(state: Snapshot, usable: np.ndarray[tuple[int], np.dtype[np.bool_]], name: str) -> int:
    """The free amount of a resource on all nodes; without allocatable, more than any request."""
    nodes = state.nodes
    if (usable & ~nodes.has_allocatable).any():
        return 1 << 62
    left = nodes.allocatable(name) - state.usage.taken(name, nodes.capacity)
    return int(np.maximum(left[usable], 0).sum())


def _offer(allocatable: Sequence[tuple[str, int]], name: str) -> int | None:
    """A node's allocatable amount of a resource; None, for enough, where it reports none."""
    return dict(allocatable).get(name, 0) if allocatable else None


@dataclass(slots=True, eq=False)
class SimulationReport:
    """The result of Simulate: the simulation, explanations and advice.

    Attributes:
        min_nodes: when it was asked for.
        explanations: of the first reasons for pending, in their order.
        advice: what would make all pods fit, each tried out.
    """

    found: SimulatedScenario
    min_nodes: MinimumNodes | None
    explanations: list[Explanation]
    advice: list[str]


def simulate(scenarios: ScenarioBuilder, request: SimulationRequest) -> SimulationReport:
    """Run a simulation.

    Raises:
        As ScenarioBuilder.make; DeadlineExceeded.
    """
    scenario = scenarios.make(request)
    smallest = minimum_nodes(scenario) if request.fewest else None
    counts = [group.count or 0 for group in request.groups]
    if smallest is not None:
        counts = [*smallest.counts]
    found = with_nodes(scenario, counts)
    pending = found.simulation.pending
    explanations = [
        _explained(each.cycle, each.batch, scenario) for each in pending if each.cycle is not None
    ]
    advice: list[str] = []
    if pending and not request.groups:
        advice = [text for text in [_more_nodes(scenario, pending[0])] if text]
    return SimulationReport(found, smallest, explanations, advice)


def _explained(cycle: Cycle, number: int, scenario: Scenario) -> Explanation:
    """The reason why a pod of a batch was refused, at the state it was refused at."""
    batch = scenario.batches[number]
    case = EvaluationContext(
        cycle.view.snapshot,
        cycle.pod,
        cycle.rules,
        cycle.constraints,
        batch.demand,
        scenario.request.fit,
        cycle.name,
        cycle.uid,
    )
    return explain_at(case)


def _more_nodes(scenario: Scenario, pending: PendingPods) -> str:
    """Advice on how many nodes like an existing one make all pods fit; empty if not found soon."""
    pods, cycle = sum(len(batch.names) for batch in scenario.batches), pending.cycle
    if cycle is None or cycle.pre_filter_status.code is Code.ERROR or pods > HELPING:
        return ""
    like = _template(cycle, scenario.batches[pending.batch].demand)
    if like is None:
        return ""
    group = NodeGroup("", like, MOST_LIKE)
    request = replace(scenario.request, groups=[group])
    found = minimum_nodes(replace(scenario, request=request), HELPING)
    if not found.all_fit:
        return ""
    (count,) = found.counts
    text = (
        f"{count} more node{'' if count == 1 else 's'} like {like.name}: all {pods} pods fit then"
    )
    return text if found.proved else f"{text}; fewer may do"


def _template(cycle: Cycle, demand: Demand) -> Node | None:
    """The first node by name that the pods could go to, were it empty."""
    snapshot = cycle.view.snapshot
    fitting = suited(
        snapshot,
        cycle.pod,
        cycle.constraints.requirements,
        demand,
        Fit.NODE,
        comparison_operators=cycle.rules.gates.taint_comparison_operators,
    ).nodes
    order = snapshot.nodes.order
    slots = order[fitting[order]]
    return snapshot.nodes.node(int(slots[0])) if slots.size else None
