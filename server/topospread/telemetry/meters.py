"""What each decision counts with; what is counted less often, Prometheus' client library counts.

They cost a call tens of nanoseconds and take no lock: it appends to a deque or draws from an
``itertools.count``, one C call each, so no observation is ever lost, whichever threads race. Who
reads (a scrape) does the arithmetic, under a lock that calls never wait for.

``scheduler_*`` has the names, labels, help texts and buckets of kube-scheduler (1.36,
pkg/scheduler/metrics), so that its dashboards and alerts work. Two things differ in substance: a
Filter or Score of all nodes is one observation (kube-scheduler counts each node), and nothing is
sampled (kube-scheduler observes one plugin run in ten).
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

Result = Literal["scheduled", "unschedulable", "error"]

Labels = tuple[str, ...]
_Series = TypeVar("_Series")
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)

FOLD_AT = 512
"""Observations kept before a call folds them: bounds memory without scrapes."""

Series = Mapping[Labels, "Distribution"]

PLUGIN: Final = "PodTopologySpread"
SKIP: Final = "Skip"
EVALUATED: Final = ("PreFilter", "Filter", "PreScore", "Score")
"""The extension points whose runs scheduler_plugin_evaluation_total counts."""

FIRST_CODES: Final = ("OK", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE")
"""Of each method from the beginning: answers, and what a server ends calls with when it is at
fault or at its limits. Codes that blame the caller come with the first such call."""

_MILLISECONDS_OF_CALLS: Final = (
    *(0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000),
)
CALL_BOUNDS: Final = tuple(each / 1000 for each in _MILLISECONDS_OF_CALLS)
"""Dense around the target of a few hundred µs; up to the longest deadlines for waits."""

WAIT_BOUNDS: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""The bound 0 counts the calls that did not wait; the rest is around a change's 5 to 30 ms."""

QUEUE_BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 10.0),
)
"""From a call that found a thread to one that waited for most of its deadline."""


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds computed in upstream's way, so that ``le`` is the same to the last digit."""
    factors = itertools.repeat(factor, count - 1)
    return tuple(itertools.accumulate(factors, lambda bound, by: bound * by, initial=start))


PLUGIN_BOUNDS: Final = exponential(0.00001, 1.5, 20)
FRAMEWORK_BOUNDS: Final = exponential(0.0001, 2, 12)
POINT_BOUNDS: Final = tuple(sorted({*PLUGIN_BOUNDS, *FRAMEWORK_BOUNDS}))
"""One observation serves both families of an extension point."""


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


class HistogramsByStatus(dict[str, Histogram]):
    """The series of one method, or of one extension point and profile, by status."""

    def __init__(self, series_of: Callable[[str], Histogram]) -> None:
        super().__init__()
        self._series_of = series_of

    def __missing__(self, status: str) -> Histogram:
        series = self[status] = self._series_of(status)
        return series

    def observe(self, status: str, seconds: float) -> None:
        """A call or run took so long and ended with a status, ``OK`` or ``Success`` for example."""
        self[status].observe(seconds)


class Attempts(ByLabels[Counter]):
    """Counts the pods that were judged as a whole."""

    def add_one(self, result: Result, profile: str) -> None:
        """A pod was judged by this profile."""
        self[result, profile].add_one()


def counter(
    name: str, text: str, labels: Labels, values: Mapping[Labels, float]
) -> CounterMetricFamily:
    """A counter by label values; ``name`` without ``_total``."""
    return _with_samples(CounterMetricFamily(name, text, labels=labels), values)


def gauge(
    name: str, text: str, labels: Labels, values: Mapping[Labels, float]
) -> GaugeMetricFamily:
    """A gauge by label values."""
    return _with_samples(GaugeMetricFamily(name, text, labels=labels), values)


def _with_samples(family: _Family, values: Mapping[Labels, float]) -> _Family:
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def histogram(
    name: str, text: str, labels: Labels, bounds: tuple[float, ...], series: Series
) -> HistogramMetricFamily:
    """A histogram family out of distributions whose bounds contain ``bounds``."""
    family = HistogramMetricFamily(name, text, labels=labels)
    # As Go writes them, for bounds that are no whole numbers.
    ends = [repr(bound) for bound in bounds]
    for values, seen in series.items():
        count = seen.count
        below = zip(ends, map(float, seen.cumulated(bounds)), strict=True)
        family.add_metric(values, [*below, ("+Inf", float(count))], seen.total)
    return family


def scheduler_families(points: Series, attempts: Mapping[Labels, int]) -> Iterator[Metric]:
    """kube-scheduler's families.

    Args:
        points: by (extension point, status, profile), with POINT_BOUNDS.
        attempts: by (result, profile).
    """
    by_plugin: dict[Labels, Distribution] = {}
    evaluations: dict[Labels, float] = {}
    for (point, status, profile), seen in points.items():
        plugin_labels = (PLUGIN, point, status)
        known = by_plugin.get(plugin_labels)
        by_plugin[plugin_labels] = known.plus(seen) if known else seen
        if point in EVALUATED and status != SKIP:
            run_labels = (PLUGIN, point, profile)
            evaluations[run_labels] = evaluations.get(run_labels, 0.0) + seen.count
    yield histogram(
        "scheduler_plugin_execution_duration_seconds",
        "Duration for running a plugin at a specific extension point.",
        ("plugin", "extension_point", "status"),
        PLUGIN_BOUNDS,
        by_plugin,
    )
    yield counter(
        "scheduler_plugin_evaluation",
        "Number of attempts to schedule pods by each plugin and the extension point (available"
        " only in PreFilter, Filter, PreScore, and Score).",
        ("plugin", "extension_point", "profile"),
        evaluations,
    )
    yield histogram(
        "scheduler_framework_extension_point_duration_seconds",
        "Latency for running all plugins of a specific extension point.",
        ("extension_point", "status", "profile"),
        FRAMEWORK_BOUNDS,
        points,
    )
    yield counter(
        "scheduler_schedule_attempts",
        "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not"
        " be scheduled, while 'error' means an internal scheduler problem.",
        ("result", "profile"),
        attempts,
    )


def call_families(calls: Series, expected: Mapping[Labels, int]) -> Iterator[Metric]:
    """Calls by (method, code); those that are expected are 0 before the first one."""
    labels = ("method", "code")
    totals = dict(expected) | {values: seen.count for values, seen in calls.items()}
    yield counter("topospread_calls", "Calls answered.", labels, totals)
    yield histogram(
        "topospread_call_duration_seconds",
        "From a call's arrival to its answer.",
        labels,
        CALL_BOUNDS,
        calls,
    )
