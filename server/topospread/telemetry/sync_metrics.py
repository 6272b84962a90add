"""Metrics of the sync: how far the state is behind the cluster, and what became of its changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from topospread.telemetry.families import counter
from topospread.telemetry.meters import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

EVENTS: Final = ("added", "modified", "deleted", "bookmark")
WRITTEN: Final = ("applied", "deleted", "skipped", "refused")
"""Changes written; heartbeats that were not worth one; objects that cannot be stored."""

REASONS: Final = ("initial", "expired", "state_lost")
"""Why a kind was listed: at the beginning; the API server has compacted the version that the watch
began at; the state was lost."""


@dataclass(frozen=True, slots=True)
class KindCounters:
    """Counters of one kind."""

    events: Mapping[str, Counter] = field(
        default_factory=lambda: {name: Counter() for name in EVENTS}
    )
    changes: Mapping[str, Counter] = field(
        default_factory=lambda: {name: Counter() for name in WRITTEN}
    )
    lists: Mapping[str, Counter] = field(
        default_factory=lambda: {name: Counter() for name in REASONS}
    )
    failures: Counter = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class KindGauges:
    """Gauges of one kind that is synced.

    Attributes:
        kind: Kubernetes' name, for example ``Pod``.
        watching: it is listed, and a watch is open.
        lag_seconds: for how long the state may have lacked something that the cluster has: the age
            of the oldest change not written yet, or of the last contact while there is no watch.
        objects: known to be in the cluster.
        counters: counted since the process began.
    """

    kind: str
    watching: bool
    lag_seconds: float
    objects: int
    counters: KindCounters


@dataclass(frozen=True, slots=True)
class SyncGauges:
    """Gauges of one cluster that is synced.

    Attributes:
        cluster: its name.
        active: this process is the leader; otherwise it stands by.
        kinds: each kind; while it stands by, only what was counted before means anything.
    """

    cluster: str
    active: bool
    kinds: tuple[KindGauges, ...]


def sync_families(clusters: Iterable[SyncGauges]) -> Iterator[Metric]:
    """All families of the sync."""
    clusters = list(clusters)
    active = GaugeMetricFamily(
        "topospread_sync_active",
        "1 while this process syncs the cluster, 0 while it stands by.",
        labels=("cluster",),
    )
    for one in clusters:
        active.add_metric((one.cluster,), one.active)
    yield active
    of_kinds = [(one, kind) for one in clusters for kind in one.kinds]
    for name, text, read in (
        ("lag_seconds", "For how long the state may have lacked a change.", "lag_seconds"),
        ("watching", "1 while the kind is listed and watched.", "watching"),
        ("objects", "Objects of the kind in the cluster.", "objects"),
    ):
        family = GaugeMetricFamily(f"topospread_sync_{name}", text, labels=("cluster", "kind"))
        for one, kind in of_kinds:
            if one.active:
                family.add_metric((one.cluster, kind.kind), getattr(kind, read))
        yield family
    for name, text, label, which in (
        ("events", "Events that the API server sent.", "type", "events"),
        ("changes", "What became of changes; skipped: nothing kept differs.", "result", "changes"),
        ("lists", "Times that a kind was listed.", "reason", "lists"),
    ):
        yield counter(
            f"topospread_sync_{name}",
            text,
            ("cluster", "kind", label),
            {
                (one.cluster, kind.kind, value): total.read()
                for one, kind in of_kinds
                for value, total in getattr(kind.counters, which).items()
            },
        )
    yield counter(
        "topospread_sync_failures",
        "Times that the API server was out of reach, refused, or broke off.",
        ("cluster", "kind"),
        {(one.cluster, kind.kind): kind.counters.failures.read() for one, kind in of_kinds},
    )
