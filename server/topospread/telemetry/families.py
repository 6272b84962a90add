"""The metric families: names, labels, buckets, and how they are made from what was counted.

``scheduler_*`` has the names, labels, help texts and buckets of kube-scheduler (1.36,
pkg/scheduler/metrics), so that its dashboards and alerts work. Two things differ in substance: a
Filter or Score of all nodes is one observation (kube-scheduler counts each node), and nothing is
sampled (kube-scheduler observes one plugin run in ten).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from topospread.telemetry.meters import Distribution

PLUGIN: Final = "PodTopologySpread"
SKIP: Final = "Skip"
EVALUATED: Final = ("PreFilter", "Filter", "PreScore", "Score")
"""The extension points whose runs scheduler_plugin_evaluation_total counts."""

POINT_LABELS: Final = ("extension_point", "status", "profile")

FIRST_CODES: Final = ("OK", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE")
"""Of each method from the beginning: answers, and what a server ends calls with when it is at
fault or at its limits. Codes that blame the caller come with the first such call."""

DROPPED: Final = ("over_limit", "handshake", "malformed", "slow")
"""Why an HTTP connection was dropped."""

CALL_BOUNDS: Final = (
    0.0001,
    0.0002,
    0.0003,
    0.0005,
    0.00075,
    0.001,
    0.0015,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Dense around the target of a few hundred µs; up to the longest deadlines for waits."""

WAIT_BOUNDS: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""The bound 0 counts the calls that did not wait; the rest is around a change's 5 to 30 ms."""

QUEUE_BOUNDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""From a call that found a thread to one that waited for most of its deadline."""

Series = Mapping[tuple[str, ...], Distribution]
"""Label values to what was observed under them."""


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds computed in upstream's way, so that ``le`` is the same to the last digit."""
    factors = itertools.repeat(factor, count - 1)
    return tuple(itertools.accumulate(factors, lambda bound, by: bound * by, initial=start))


PLUGIN_BOUNDS: Final = exponential(0.00001, 1.5, 20)
FRAMEWORK_BOUNDS: Final = exponential(0.0001, 2, 12)
POINT_BOUNDS: Final = tuple(sorted({*PLUGIN_BOUNDS, *FRAMEWORK_BOUNDS}))
"""One observation serves both families of an extension point."""


@dataclass(frozen=True, slots=True)
class CacheGauges:
    """Gauges of the caches of one kind: how full they are.

    Attributes:
        cache: the kind.
        size: bytes that they hold together.
        most: bytes that one of them may hold.
        evicted: entries that had to go for lack of room, until now.
    """

    cache: str
    size: int
    most: int
    evicted: int


@dataclass(frozen=True, slots=True)
class ClusterGauges:
    """Gauges of one cluster that is followed.

    Attributes:
        cluster: its name.
        objects: objects in the snapshot by kind, for example ``{"Node": 5000}``.
        groups: selectors whose counts are kept.
        revision_lag: transactions that the store's head, as last seen, is ahead of the snapshot.
        stale_seconds: for how long the store has been out of reach; 0 when it is not.
        snapshot_age_seconds: since the snapshot was last known to be the newest state.
        corrupt_values: stored values that cannot be read and are left out.
        identity_changed: the store has another history than the snapshot, or none.
        label_sets: different label sets of counted pods.
    """

    cluster: str
    objects: Mapping[str, int]
    groups: int
    revision_lag: int
    stale_seconds: float
    snapshot_age_seconds: float
    corrupt_values: int
    identity_changed: bool = False
    label_sets: int = 0


@dataclass(frozen=True, slots=True)
class PoolGauges:
    """Gauges of one thread pool: how busy it is.

    Attributes:
        pool: its name, for example ``decisions``.
        queued: calls that no thread has begun.
        busy: calls being worked on.
        waiting: calls that wait for a revision or a first load.
    """

    pool: str
    queued: int
    busy: int
    waiting: int = 0


def histogram(
    name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...], series: Series
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


def gauge(
    name: str, text: str, labels: Iterable[str], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    """A gauge by label values."""
    family = GaugeMetricFamily(name, text, labels=tuple(labels))
    for each, value in values.items():
        family.add_metric(each, value)
    return family


def counter(
    name: str, text: str, labels: tuple[str, ...], series: Mapping[tuple[str, ...], float]
) -> CounterMetricFamily:
    """A counter family; ``name`` without ``_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, total in series.items():
        family.add_metric(values, total)
    return family


def scheduler_families(points: Series, attempts: Mapping[tuple[str, ...], int]) -> Iterator[Metric]:
    """kube-scheduler's families.

    Args:
        points: by (extension point, status, profile), with POINT_BOUNDS.
        attempts: by (result, profile).
    """
    by_plugin: dict[tuple[str, ...], Distribution] = {}
    evaluations: dict[tuple[str, ...], float] = {}
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
        POINT_LABELS,
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


def call_families(calls: Series, expected: Mapping[tuple[str, ...], int]) -> Iterator[Metric]:
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


def dropped_family(dropped: Mapping[tuple[str, ...], float]) -> CounterMetricFamily:
    """HTTP connections by the reason why they were dropped."""
    return counter(
        "topospread_http_connections_dropped",
        "HTTP connections that were dropped for what the peer did: over_limit, handshake, malformed"
        " or slow.",
        ("reason",),
        dropped,
    )


def cluster_families(clusters: Iterable[ClusterGauges]) -> Iterator[Metric]:
    """The families of the followed clusters."""
    clusters = list(clusters)
    yield gauge(
        "topospread_objects",
        "Objects in the snapshot.",
        ("cluster", "kind"),
        {(one.cluster, kind): n for one in clusters for kind, n in one.objects.items()},
    )
    for name, text, read in (
        ("groups", "Selectors whose counts are kept.", "groups"),
        ("label_sets", "Different label sets of counted pods.", "label_sets"),
        ("revision_lag", "Transactions between the snapshot and the store's head.", "revision_lag"),
        (
            "store_unreachable_seconds",
            "For how long the store has been out of reach.",
            "stale_seconds",
        ),
        (
            "snapshot_age_seconds",
            "Since the snapshot was last known to be the newest state.",
            "snapshot_age_seconds",
        ),
        ("corrupt_values", "Stored values that cannot be read.", "corrupt_values"),
        (
            "store_identity_changed",
            "1 while the store has another history than the snapshot, or none: writes are refused.",
            "identity_changed",
        ),
    ):
        values: dict[tuple[str, ...], float] = {
            (one.cluster,): getattr(one, read) for one in clusters
        }
        yield gauge(f"topospread_{name}", text, ("cluster",), values)


def pool_families(pools: Iterable[PoolGauges]) -> Iterator[Metric]:
    """The families of the thread pools."""
    pools = list(pools)
    for name, text, read in (
        ("queue_depth", "Calls that no thread has begun.", "queued"),
        ("inflight_calls", "Calls that a thread is working on.", "busy"),
        ("waiting_calls", "Calls that wait for a revision or a first load.", "waiting"),
    ):
        values: dict[tuple[str, ...], float] = {(one.pool,): getattr(one, read) for one in pools}
        yield gauge(f"topospread_{name}", text, ("pool",), values)


def cache_families(caches: Iterable[CacheGauges]) -> Iterator[Metric]:
    """The families of the caches."""
    caches = list(caches)
    for name, text, read in (
        ("bytes", "Memory that is kept, about; of all clusters together.", "size"),
        ("limit_bytes", "Memory that may be kept; of counts and nodes, for each cluster.", "most"),
    ):
        values: dict[tuple[str, ...], float] = {(one.cache,): getattr(one, read) for one in caches}
        yield gauge(f"topospread_cache_{name}", text, ("cache",), values)
    yield counter(
        "topospread_cache_evictions",
        "Entries that went because there was no room for others.",
        ("cache",),
        {(cache.cache,): cache.evicted for cache in caches},
    )
