"""Between which skews it ends where any of some equal pods may go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.spread.deletion import domain_counts, domain_numbers, minimum_is_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.spread.deletion import DeletionConstraint
    from topospread.spread.topology import Ints


@dataclass(frozen=True, slots=True)
class DeletionCut:
    """Who goes in one order of deletion whose order among equal pods is open.

    Attributes:
        certain: positions of the pods that go.
        equal: positions of pods of which some go.
        chosen: how many of these go.
    """

    certain: Sequence[int]
    equal: Sequence[int] = ()
    chosen: int = 0


class SkewRange:
    """The lowest and the highest skew of a constraint that cuts may leave, each of which one can.

    Any of the equal pods may go: what counts is how many of them each domain has.

    Args:
        spread: the constraint.
        certain: positions of the pods that go in each cut, beside its own.
        equal: positions of pods that are among the equal ones of each cut, beside its own.

    Attributes:
        low: of the cuts so far.
        high: of the cuts so far.
    """

    def __init__(
        self, spread: DeletionConstraint, certain: Sequence[int] = (), equal: Sequence[int] = ()
    ) -> None:
        counts = domain_counts(spread)
        self._domains = domain_numbers(spread, counts)
        self._size = len(counts)
        self._zero = minimum_is_zero(spread)
        self._eligible = np.array([domain in spread.eligible for domain in counts], dtype=np.bool_)
        there = np.fromiter(counts.values(), np.int64, self._size)
        self._pods = there - self._by_domain(certain)
        self._equal, self._number = self._by_domain(equal), len(equal)
        self.low: int = np.iinfo(np.int64).max
        self.high = 0

    def add(self, cut: DeletionCut) -> None:
        """Widen it by what a cut may leave."""
        checkpoint()
        low = high = 0
        if self._size:
            pods = self._pods - self._by_domain(cut.certain)
            equal = self._equal + self._by_domain(cut.equal)
            there = _DomainKinds.of(pods, equal, self._eligible)
            uncounted = self._number + len(cut.equal) - int(equal.sum())
            low = _lowest(there, uncounted, cut.chosen, zero=self._zero)
            high = _highest(there, uncounted, cut.chosen, zero=self._zero)
        self.low, self.high = min(self.low, low), max(self.high, high)

    def _by_domain(self, positions: Sequence[int]) -> Ints:
        """[domains] how many of the pods count there."""
        domains = self._domains[np.array(positions, dtype=np.int64)]
        return np.bincount(domains[domains >= 0], minlength=self._size)


@dataclass(frozen=True, slots=True, eq=False)
class _DomainKinds:
    """Domains, alike ones together.

    Attributes:
        pods: [kinds] pods that each has, before any of the equal ones go.
        equal: [kinds] how many of these are equal ones.
        eligible: [kinds] whether the global minimum looks at them.
        number: [kinds] how many domains are so.
    """

    pods: Ints
    equal: Ints
    eligible: np.ndarray
    number: Ints

    @classmethod
    def of(cls, pods: Ints, equal: Ints, eligible: np.ndarray) -> _DomainKinds:
        """Group domains; there is one at least."""
        most = int(equal.max()) + 1
        kinds, number = np.unique((pods * most + equal) * 2 + eligible, return_counts=True)
        rest, alike = np.divmod(kinds, 2)
        return cls(*np.divmod(rest, most), alike > 0, number)


def _lowest(there: _DomainKinds, uncounted: int, chosen: int, *, zero: bool) -> int:
    """Level from the top: the lowest maximum and the highest minimum can be had together."""
    pods, equal, eligible, number = there.pods, there.equal, there.eligible, there.number
    bottom, top = int((pods - equal).max()), int(pods.max())
    while bottom < top:
        middle = (bottom + top) // 2
        if int(number @ np.maximum(pods - middle, 0)) <= chosen:
            top = middle
        else:
            bottom = middle + 1
    if zero:
        return top
    low, high = 0, int(pods[eligible].min())
    elsewhere = uncounted + int((number * equal)[~eligible].sum())
    while low < high:
        middle = (low + high + 1) // 2
        most = int((number * np.minimum(equal, pods - middle))[eligible].sum())
        if most + elsewhere >= chosen:
            low = middle
        else:
            high = middle - 1
    return max(0, top - low)


def _highest(there: _DomainKinds, uncounted: int, chosen: int, *, zero: bool) -> int:
    """Take all from one domain, and as few as possible from another."""
    pods, equal = there.pods, there.equal
    every = int(there.number @ equal) + uncounted
    if zero:
        return int((pods - np.maximum(0, chosen - (every - equal))).max())
    taken = np.minimum(equal, chosen)
    emptiest = pods - taken
    highest = 0
    for fullest in range(pods.size):
        checkpoint()
        others = every - equal[fullest] - equal
        skews = pods[fullest] - np.maximum(0, chosen - taken - others) - emptiest
        if there.number[fullest] == 1:
            skews[fullest] = 0  # it is not the emptiest as well
        highest = max(highest, int(skews[there.eligible].max(initial=0)))
    return highest
