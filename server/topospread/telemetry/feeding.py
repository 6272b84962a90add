"""What is counted of feeds: how far the state is behind the cluster, what came and what became."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from topospread.telemetry.accumulators import Tally
from topospread.telemetry.families import counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

EVENTS: Final = ("added", "modified", "deleted", "bookmark")
WRITTEN: Final = ("applied", "deleted", "skipped", "refused")
"""Changes written; heartbeats that were not worth one; objects that cannot be stored."""

REASONS: Final = ("first", "expired", "asked")
"""Why a kind was listed: at the beginning; the API server forgot our place; the state was lost."""


@dataclass(frozen=True, slots=True)
class KindTallies:
    """What was counted of one kind."""

    events: Mapping[str, Tally] = field(default_factory=lambda: {name: Tally() for name in EVENTS})
    changes: Mapping[str, Tally] = field(
        default_factory=lambda: {name: Tally() for name in WRITTEN}
    )
    lists: Mapping[str, Tally] = field(default_factory=lambda: {name: Tally() for name in REASONS})
    failures: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class KindGauges:
    """How one kind is fed, at this moment.

    Attributes:
        kind: Kubernetes' name, for example ``Pod``.
        watching: it is listed, and a watch is open.
        lag_seconds: for how long the state may have lacked something that the cluster has: the age
            of the oldest change not written yet, or of the last contact while there is no watch.
        objects: known to be in the cluster.
        tallies: counted since the process began.
    """

    kind: str
    watching: bool
    lag_seconds: float
    objects: int
    tallies: KindTallies


@dataclass(frozen=True, slots=True)
class FeedGauges:
    """How one cluster is fed, at this moment.

    Attributes:
        cluster: its name.
        active: this process feeds it; otherwise it stands by.
        kinds: each kind; while it stands by, only what was counted before means anything.
    """

    cluster: str
    active: bool
    kinds: tuple[KindGauges, ...]


def feed_families(feeds: Iterable[FeedGauges]) -> Iterator[Metric]:
    """All families of feeds."""
    feeds = list(feeds)
    active = GaugeMetricFamily(
        "topospread_sync_active",
        "1 while this process feeds the cluster, 0 while it stands by.",
        labels=("cluster",),
    )
    for feed in feeds:
        active.add_metric((feed.cluster,), feed.active)
    yield active
    of_kinds = [(feed, kind) for feed in feeds for kind in feed.kinds]
    for name, text, read in (
        ("lag_seconds", "For how long the state may have lacked a change.", "lag_seconds"),
        ("watching", "1 while the kind is listed and watched.", "watching"),
        ("objects", "Objects of the kind in the cluster.", "objects"),
    ):
        family = GaugeMetricFamily(f"topospread_sync_{name}", text, labels=("cluster", "kind"))
        for feed, kind in of_kinds:
            if feed.active:
                family.add_metric((feed.cluster, kind.kind), getattr(kind, read))
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
                (feed.cluster, kind.kind, value): tally.read()
                for feed, kind in of_kinds
                for value, tally in getattr(kind.tallies, which).items()
            },
        )
    yield counter(
        "topospread_sync_failures",
        "Times that the API server was out of reach, refused, or broke off.",
        ("cluster", "kind"),
        {(feed.cluster, kind.kind): kind.tallies.failures.read() for feed, kind in of_kinds},
    )
