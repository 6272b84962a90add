"""Simulations with so many nodes more, and the fewest of these with which all pods fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.snapshot import PODS
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.service.simulation.request import expand_groups
from topospread.service.simulation.run import PlacementOptions, place_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.service.simulation.run import PodBatch, SimulationResult
    from topospread.service.simulation.scenario import Scenario


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


def with_nodes(
    scenario: Scenario,
    counts: Sequence[int],
    *,
    all_or_nothing: bool = False,
    place: bool = True,
) -> SimulationResult:
    """Simulate with so many nodes of each group.

    Args:
        scenario: what is asked.
        counts: nodes of each group.
        all_or_nothing: stop at the first pod that fits nowhere.
        place: False changes the nodes only.
    """
    question, view = scenario.question, scenario.view
    batches = scenario.batches if place else ()
    nodes = expand_groups(question.groups, counts, lambda name: view.snapshot.slot(name) >= 0)
    changes = replace(scenario.changes, joined=[node for group in nodes for node in group])
    seed = question.message.scenario.seed
    options = PlacementOptions(question.fit, seed, all_or_nothing)
    simulation = place_batches(view, changes, batches, options)
    simulation.joined = [[node.name for node in group] for group in nodes]
    return simulation


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
        DeadlineExceeded, CallerGone: see checkpoint().
    """
    groups = scenario.question.groups
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
        return self.spent > self.effort

    def fits(self, counts: Counts) -> bool:
        checkpoint()
        known = self.known.get(counts)
        if known is None:
            simulation = with_nodes(self.scenario, counts, all_or_nothing=True)
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


def _least(scenario: Scenario) -> int | None:
    """Fewer nodes than these lack the room, however pods spread; None: no number is enough."""
    groups, batches = scenario.question.groups, scenario.batches
    state = with_nodes(scenario, [0] * len(groups), place=False).changed
    if scenario.question.fit is not Fit.ALL or _holds(state, batches):
        return 0
    least = 0
    wanted: dict[str, int] = {}
    for batch in batches:
        for name, amount in ((PODS, 1), *batch.demand.requests):
            wanted[name] = wanted.get(name, 0) + amount * len(batch.names)
    usable = _usable(state, batches)
    for name, amount in wanted.items():
        lacking = amount - _left(state, usable, name)
        if lacking <= 0:
            continue
        largest = max(dict(group.template.allocatable).get(name, 0) for group in groups)
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
        if batch.names_claims and len(batch.names) > 1:
            return state.alive  # each has claims of its own
        effective = batch.shape.effective_constraints(batch.rules, state)
        requirements = effective.constraints.requirements
        pod, name = batch.shape.pod, batch.pod.name
        uid = batch.judged_uid
        asked = FitQuestion(state, pod, requirements, batch.demand, batch.rules, name, uid)
        found |= suited(asked, Fit.NODE).nodes
    return found & state.alive


def _left(state: Snapshot, usable: np.ndarray[tuple[int], np.dtype[np.bool_]], name: str) -> int:
    """The free amount of a resource on all nodes."""
    nodes = state.nodes
    left = nodes.allocatable(name) - state.usage.taken(name, nodes.capacity)
    return int(np.maximum(left[usable], 0).sum())
