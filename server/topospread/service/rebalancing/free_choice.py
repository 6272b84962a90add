"""How far off a plan may end where the scheduler chooses other nodes than those planned.

It may put each replacement on any node that its filters let in. So the states are walked that it
can make: after each eviction those of the step before, with the replacement on each place that the
hard constraints of its pod allow. What else decides is taken for the worse: a node that may have
room has it, and a replacement that may find none anywhere ends the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.service.rebalancing.places import CountedLimit, NodePlaces, PodKind, kinds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topospread.checkpoints import CooperativeYield
    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.service.rebalancing.evictions import EvictionSequence
    from topospread.service.rebalancing.inventory import ConstraintComponent
    from topospread.service.rebalancing.model import RebalanceModel
    from topospread.spread.topology import Bools, Ints

    Arrivals = NDArray[np.int16]
    """[kinds, places] replacements that are there; never more than MOST_STEPS."""

MOST_STEPS: Final = 3_000
MOST_CELLS: Final = 5_000_000
"""Replacements that are put somewhere in one plan's walk, and these times the numbers that a state
has: some tenths of a second, and 10 MB. Beyond, a bound is told that needs no walk."""


class WorstEnd(NamedTuple):
    """What a plan may leave at most.

    Attributes:
        skews: for each constraint the highest.
        may_wait: a replacement may find no node, and the plan ends there.
    """

    skews: Sequence[int]
    may_wait: bool


def worst_end(
    component: ConstraintComponent,
    model: RebalanceModel,
    sequence: EvictionSequence,
    state: Snapshot,
    spoiled: Sequence[Demand],
    turn: CooperativeYield,
) -> WorstEnd:
    """What a plan for a component may leave at most.

    Args:
        component: the constraints.
        model: of their pods.
        sequence: the plan.
        state: before it.
        spoiled: what replacements of other groups demand, which may be anywhere by then.
        turn: called for each state.
    """
    limits = [CountedLimit(limit, state) for limit in component.limits]
    kinds = kinds_of([*component.limits], model, sequence.steps)
    steps = [(kind, step.movable.slot) for kind, step in zip(kinds, sequence.steps, strict=True)]
    places = NodePlaces(limits, steps, model, state, spoiled)
    walk = _ChoiceWalk(limits, steps, places, turn, at_once=sequence.at_once)
    return walk.worst() or WorstEnd([walk.bound(n) for n in range(len(limits))], may_wait=True)


class _TooFarError(Exception):
    """There are more states than are walked."""


@dataclass(slots=True, eq=False)
class _ChoiceWalk:
    """The states that the scheduler can make of a plan.

    Attributes:
        gone: pods that were evicted by now, for each limit by domain.
    """

    limits: Sequence[CountedLimit]
    steps: Sequence[tuple[PodKind, int]]
    places: NodePlaces
    turn: CooperativeYield
    at_once: bool
    gone: Sequence[Ints] = ()
    walked: int = 0

    def worst(self) -> WorstEnd | None:
        """The worst of all ends; None where there are too many states."""
        if self.at_once and len({kind.number for kind, _ in self.steps}) > 1:
            return None  # the scheduler may take them in any order
        self.gone = [np.zeros_like(limit.counts) for limit in self.limits]
        shape = len(self.places.kinds), self.places.size
        if len(self.steps) > MOST_STEPS or len(self.steps) * shape[0] * shape[1] > MOST_CELLS:
            return None  # each step puts a replacement somewhere
        states = [np.zeros(shape, dtype=np.int16)]
        highest = [0] * len(self.limits)
        may_wait = False
        try:
            for kind, slot in self.steps if self.at_once else ():
                self._evict(kind, slot)
            for kind, slot in self.steps:
                if not self.at_once:
                    self._evict(kind, slot)
                made: dict[bytes, None] = {}
                for state in states:
                    counts = self._counts(state)
                    fits = self.places.fits(kind, counts)
                    if not (fits & (kind.capacity > state[kind.number])).any():
                        may_wait = True  # for good
                        highest = self._highest(highest, counts)
                    for each in self._put(state, kind, fits):
                        made[each.tobytes()] = None
                # A state is no more than its key.
                states = [np.frombuffer(key, dtype=np.int16).reshape(shape) for key in made]
        except _TooFarError:
            return None
        for state in states:
            highest = self._highest(highest, self._counts(state))
        return WorstEnd(highest, may_wait)

    def _highest(self, found: Sequence[int], counts: Sequence[Ints]) -> list[int]:
        """For each limit the highest skew so far, with one more end."""
        return [
            max(before, limit.skew(pods))
            for before, limit, pods in zip(found, self.limits, counts, strict=True)
        ]

    def bound(self, number: int) -> int:
        """A skew of one limit that no end is above, also of those that were not walked.

        What a limit binds comes to no domain that is above the minimum by more; the minimum is at
        most what all domains have on average, and no domain has fewer than what is never evicted.
        """
        limit = self.limits[number]
        counted = [(kind, slot) for kind, slot in self.steps if kind.matches[number]]
        free = sum(number not in kind.own for kind, _ in counted)
        left = limit.counts.copy()
        for _, slot in counted:
            if limit.counted[slot]:
                left[limit.ids[slot]] -= 1
        if not limit.present.any():
            return 0
        domains = int(np.count_nonzero(limit.present))
        average = 0 if limit.zero else (int(limit.counts.sum()) + len(counted)) // domains
        top = int(limit.counts.max())
        if len(counted) > free:
            top = max(top, average + limit.limit.max_skew)
        return top + free - limit.minimum(left)

    def _evict(self, kind: PodKind, slot: int) -> None:
        for number, limit in enumerate(self.limits):
            if kind.matches[number] and limit.counted[slot]:
                self.gone[number][limit.ids[slot]] += 1

    def _counts(self, state: Arrivals) -> list[Ints]:
        """For each limit the pods by domain."""
        self.turn()
        found = []
        for number, limit in enumerate(self.limits):
            matching = [kind.number for kind in self.places.kinds if kind.matches[number]]
            there = self.places.counted[number] & (state > 0).any(axis=0)
            came = np.bincount(
                self.places.domains[number][there],
                weights=state[matching][:, there].sum(axis=0),
                minlength=limit.counts.size,
            )
            found.append(limit.counts - self.gone[number] + came.astype(np.int64))
        return found

    def _put(self, state: Arrivals, kind: PodKind, fits: Bools) -> Iterator[Arrivals]:
        """The states with one more pod of a kind, on one of each places that are alike."""
        slots = np.flatnonzero(fits)
        alike = np.vstack([self.places.roles, state])[:, slots]
        first = np.ones(slots.size, dtype=np.bool_)
        first[1:] = (alike[:, 1:] != alike[:, :-1]).any(axis=0)
        for place in slots[first].tolist():
            self.walked += 1
            if self.walked > MOST_STEPS or self.walked * state.size > MOST_CELLS:
                raise _TooFarError
            made = state.copy()
            made[kind.number, place] += 1
            # Which of places that are alike has how many makes no difference.
            yield np.ascontiguousarray(made[:, np.lexsort((*made, self.places.roles))])
