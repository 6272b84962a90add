"""What calls count with: counters, histograms, and meters of their series.

They cost a call tens of nanoseconds and take no lock: it appends to a deque or draws from an
``itertools.count``, one C call each, so no observation is ever lost, whichever threads race. Who
reads (a scrape) does the arithmetic, under a lock that calls never wait for.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = Literal["scheduled", "unschedulable", "error"]

Labels = tuple[str, ...]
_Series = TypeVar("_Series")

FOLD_AT = 512
"""Observations kept before a call folds them: bounds memory without scrapes."""


class Counter:
    """A counter: ``add_one()`` on the hot path, ``read()`` elsewhere."""

    __slots__ = ("_lock", "_reads", "_ticks", "add_one")

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._reads = 0
        self._lock = threading.Lock()
        self.add_one = self._ticks.__next__

    def read(self) -> int:
        """The number of calls of add_one()."""
        with self._lock:
            # Reading draws from the count as well, so former reads are taken off again.
            total = next(self._ticks) - self._reads
            self._reads += 1
            return total


@dataclass(frozen=True, slots=True)
class Distribution:
    """The content of a histogram series at one moment.

    Attributes:
        bounds: upper bounds, ascending, without +Inf; a value equal to a bound lies below it.
        counts: observations per interval, one more than bounds: the last is above all of them.
        total: sum of the observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)

    def cumulated(self, bounds: Sequence[float]) -> list[int]:
        """Observations up to each of some of the bounds."""
        sums = dict(zip(self.bounds, itertools.accumulate(self.counts), strict=False))
        return [sums[bound] for bound in bounds]

    def plus(self, other: Distribution) -> Distribution:
        """Both together; the bounds must be the same."""
        counts = tuple(
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        )
        return Distribution(self.bounds, counts, self.total + other.total)


class Histogram:
    """A histogram series: ``observe()`` on the hot path, ``read()`` elsewhere."""

    __slots__ = ("_bounds", "_counts", "_lock", "_pending", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._pending: deque[float] = deque()
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """Count one value."""
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= FOLD_AT and self._lock.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._lock.release()

    def read(self) -> Distribution:
        """Everything observed so far."""
        with self._lock:
            self._fold()
            return Distribution(self._bounds, tuple(self._counts), self._total)

    def _fold(self) -> None:
        values = sorted([self._pending.popleft() for _ in range(len(self._pending))])
        below = 0
        for position, bound in enumerate(self._bounds):
            upto = bisect_right(values, bound, below)
            self._counts[position] += upto - below
            below = upto
        self._counts[-1] += len(values) - below
        self._total += sum(values)


class ByLabels(dict[Labels, _Series]):
    """Series by label values, made when first asked for."""

    def __init__(self, make: Callable[[], _Series]) -> None:
        super().__init__()
        self._make = make
        self._lock = threading.Lock()

    def __missing__(self, labels: Labels) -> _Series:
        with self._lock:
            if (series := self.get(labels)) is None:
                series = self[labels] = self._make()
            return series

    def known(self) -> list[tuple[Labels, _Series]]:
        """A copy of the series by labels, as of now."""
        with self._lock:
            return list(self.items())


class CallMeter:
    """Counts the calls of one method."""

    __slots__ = ("_by_code", "_calls", "_method")

    def __init__(self, calls: ByLabels[Histogram], method: str) -> None:
        self._calls = calls
        self._method = method
        self._by_code: dict[str, Histogram] = {}

    def done(self, code: str, seconds: float) -> None:
        """A call ended with this status code, for example ``OK``, after so many seconds."""
        series = self._by_code.get(code)
        if series is None:
            series = self._by_code[code] = self._calls[self._method, code]
        series.observe(seconds)


class PointMeter:
    """Counts the runs of one extension point under one profile."""

    __slots__ = ("_by_status", "_point", "_points", "_profile")

    def __init__(self, points: ByLabels[Histogram], point: str, profile: str) -> None:
        self._points = points
        self._point = point
        self._profile = profile
        self._by_status: dict[str, Histogram] = {}

    def observe(self, status: str, seconds: float) -> None:
        """A run took so long and ended with the framework's status, for example ``Success``."""
        series = self._by_status.get(status)
        if series is None:
            series = self._points[self._point, status, self._profile]
            self._by_status[status] = series
        series.observe(seconds)


class Attempts(ByLabels[Counter]):
    """Counts the pods that were judged as a whole."""

    def add_one(self, result: Result, profile: str) -> None:
        """A pod was judged by this profile."""
        self[result, profile].add_one()
