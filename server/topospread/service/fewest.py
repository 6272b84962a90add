"""The fewest nodes of some groups with which all pods of a simulation fit.

A node more is not always a step forward: one in a new domain lowers the minimum that all others are
measured by. So no bound follows from one number of nodes for the next, and *proved* means that
every smaller number was simulated, in every mixture of the groups, or lacks the room for so many
pods. Where that takes too long, the search goes on from some number that works, as far down as it
comes with steps that mostly help: *best found*.

The search is measured in pods placed, not in seconds, so that its result follows from the question.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.usage import PODS
from topospread.service.fit import Fit, suited
from topospread.service.simulated import with_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.service.scenario import Scenario
    from topospread.service.simulate import Batch

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


@dataclass(frozen=True, slots=True)
class Fewest:
    """What was found.

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


def fewest(scenario: Scenario, effort: int = EFFORT) -> Fewest:
    """Search.

    Args:
        scenario: the groups' counts are the most that may join; None is MOST, or an equal share
            of MOST_IN_ALL.
        effort: pods to place at most, about.

    Raises:
        DeadlineExceeded: and what else the scenario's pause raises.
    """
    groups = scenario.question.groups
    share = max(1, min(MOST, MOST_IN_ALL // len(groups)))
    most = tuple(share if group.count is None else group.count for group in groups)
    search = _Search(scenario, effort)
    lowest = _least(scenario)
    if lowest is None or lowest > sum(most):
        return Fewest(most, all_fit=False, proved=True, simulations=0)
    for total in range(lowest, sum(most) + 1):
        for counts in mixtures(total, most):
            if search.spent > effort // 2:
                return _best_found(search, most, total)
            if search.fits(counts):
                return Fewest(counts, True, True, len(search.known))
    return Fewest(most, all_fit=False, proved=True, simulations=len(search.known))


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
    """Simulations that were made.

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


def _best_found(search: _Search, most: Counts, total: int) -> Fewest:
    """From some number that works downwards."""
    upper = max(1, total)
    found: Counts | None = None
    while found is None and not search.over():
        upper = min(upper * 2, sum(most))
        shapes = (counts for counts in _shapes(upper, most) if not search.over())
        found = next(filter(search.fits, shapes), None)
        if upper == sum(most):
            break
    if found is None:
        return Fewest(most, all_fit=False, proved=False, simulations=len(search.known))
    step = max(found)
    while step and not search.over():
        lower = _lower(search, found, step)
        if lower is None:
            step //= 2
        else:
            found = lower
    return Fewest(found, True, False, len(search.known))


def _shapes(total: int, most: Counts) -> Iterator[Counts]:
    """So many nodes, or as many as may be: of all groups alike, then of each alone."""
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


# ------------------------------ room


def _least(scenario: Scenario) -> int | None:
    """Fewer nodes than these lack the room, however pods spread; None: no number has it."""
    question, batches = scenario.question, scenario.batches
    state = with_nodes(scenario, [0] * len(question.groups), place=False).simulation.changed
    if question.fit is not Fit.NODE_AND_RESOURCES or _holds(state, batches):
        return 0
    least = 0
    wanted: dict[str, int] = {}
    for batch in batches:
        for name, amount in ((PODS, 1), *batch.demand.requests):
            wanted[name] = wanted.get(name, 0) + amount * len(batch.names)
    usable = _usable(state, batches)
    for name, amount in wanted.items():
        lacking = amount - _left(state, usable, name)
        offers = [_offer(group.template.allocatable, name) for group in question.groups]
        if lacking <= 0 or None in offers:
            continue
        largest = max(offer for offer in offers if offer is not None)
        if not largest:
            return None
        least = max(least, -(-lacking // largest))
    return least


def _holds(state: Snapshot, batches: Sequence[Batch]) -> bool:
    """Whether something is held for one of the pods, which is room of its own."""
    held = state.reservations
    return len(held) > 0 and any(
        held.of(batch.namespace, name, batch.uid) for batch in batches for name in batch.names
    )


def _usable(
    state: Snapshot, batches: Sequence[Batch]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[slots] nodes that one of the pods could go to, were they empty."""
    found = np.zeros_like(state.alive)
    for batch in batches:
        judgeable = batch.shape.judgeable(batch.rules, state)
        found |= suited(
            state,
            batch.shape.pod,
            judgeable.constraints.requirements,
            batch.demand,
            Fit.NODE,
            comparison_operators=batch.rules.gates.taint_comparison_operators,
        ).nodes
    return found & state.alive


def _left(state: Snapshot, usable: np.ndarray[tuple[int], np.dtype[np.bool_]], name: str) -> int:
    """What the nodes have left in all; of nodes that say nothing, more than anybody wants."""
    nodes = state.nodes
    if (usable & ~nodes.says_allocatable).any():
        return 1 << 62
    left = nodes.allocatable(name) - state.usage.taken(name, nodes.capacity)
    return int(np.maximum(left[usable], 0).sum())


def _offer(allocatable: Sequence[tuple[str, int]], name: str) -> int | None:
    """What a node has; None when it says nothing, so that there is enough."""
    return dict(allocatable).get(name, 0) if allocatable else None
