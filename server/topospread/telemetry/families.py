"""Metric families that are made at a scrape of what is so then: gauges of clusters, pools, caches.

Series of single constraints come and go with these, so there is a limit on them; the totals, and
how many constraints have no series of their own, are always there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.telemetry.meters import Counter, Labels, counter, gauge

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Rows = Iterable[tuple[Labels, object]]
"""Label values, and an object whose attributes are the values."""

DROPPED: Final = ("over_limit", "handshake", "malformed", "slow")
"""Why an HTTP connection was dropped."""

STATES: Final = ("blocked", "violated", "ineffective", "satisfied")

MISSING: Final = ("not_followed", "loading", "too_many", "failed")
"""Reasons why constraints are not counted."""

CONSTRAINT_LABELS: Final = (
    "cluster",
    "namespace",
    "owner_kind",
    "owner_name",
    "topology_key",
    "when_unsatisfiable",
    "constraint_id",
)
"""The id tells apart what is otherwise alike, such as two selectors of one owner."""

MOST_BYTES: Final = 253
"""Of a label's value: as many as most names of Kubernetes may have. Owners' names, which come with
pods, have no bound there.
"""

EVENTS: Final = ("added", "modified", "deleted", "bookmark")
WRITTEN: Final = ("applied", "deleted", "skipped", "refused")
"""Changes written; heartbeats that were not worth one; objects that cannot be stored."""

REASONS: Final = ("initial", "renewed", "lost", "expired", "state_lost")
"""Why a kind was listed: at the beginning; after some minutes, as always; contact with the API
server was lost; it has compacted the version that the watch began at; the state was lost."""


@dataclass(frozen=True, slots=True)
class CacheGauges:
    """How full the caches of one kind are; ``most`` bytes are for each of them."""

    cache: str
    size: int
    most: int
    evicted: int


@dataclass(frozen=True, slots=True)
class ClusterGauges:
    """How a cluster is followed.

    Attributes:
        objects: objects in the snapshot by kind, for example ``{"Node": 5000}``.
        stale_seconds: for how long the store has been out of reach; 0 when it is not.
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
    """How busy a thread pool is, in calls."""

    pool: str
    queued: int
    busy: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ConstraintGauges:
    """How one constraint is.

    Attributes:
        labels: the values of CONSTRAINT_LABELS but the first.
        state: one of STATES.
    """

    labels: Labels
    state: str
    skew: int
    max_skew: int
    blocked: int


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """How the constraints of one cluster are.

    Attributes:
        totals: constraints by state; empty before they were counted.
        omitted: those of them by state that were chosen and are more than the limit.
        age_seconds: since they were last worked out, or the cluster was seen to be unchanged.
        constraints: with series of their own.
        missing: why they are not counted at the newest state; empty where they are.
    """

    cluster: str
    totals: Mapping[str, int]
    omitted: Mapping[str, int]
    age_seconds: float
    constraints: Sequence[ConstraintGauges]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class KindCounters:
    """What the sync counted of one kind."""

    events: Mapping[str, Counter] = field(default_factory=lambda: _counters(EVENTS))
    changes: Mapping[str, Counter] = field(default_factory=lambda: _counters(WRITTEN))
    lists: Mapping[str, Counter] = field(default_factory=lambda: _counters(REASONS))
    failures: Counter = field(default_factory=Counter)


def _counters(names: Iterable[str]) -> Mapping[str, Counter]:
    return {name: Counter() for name in names}


@dataclass(frozen=True, slots=True)
class KindGauges:
    """How far the sync of one kind is.

    Attributes:
        kind: Kubernetes' name, for example ``Pod``.
        watching: it is listed, and a watch is open.
        lag_seconds: for how long the state may have lacked something that the cluster has: the age
            of the oldest change not written yet, or since contact was lost until it is listed.
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
    """How far the sync of one cluster is.

    Attributes:
        active: this process is the leader; otherwise it stands by.
        kinds: each kind; while it stands by, only what was counted before means anything.
    """

    cluster: str
    active: bool
    kinds: tuple[KindGauges, ...]


def _gauges(labels: Labels, rows: Rows, *families: tuple[str, str, str]) -> Iterator[Metric]:
    """A gauge for each attribute of the rows, given as (name, text, attribute)."""
    rows = list(rows)
    for name, text, attribute in families:
        values = {of: getattr(row, attribute) for of, row in rows}
        yield gauge(f"topospread_{name}", text, labels, values)


def cluster_families(clusters: Iterable[ClusterGauges]) -> Iterator[Metric]:
    """The families of the followed clusters."""
    clusters = list(clusters)
    yield gauge(
        "topospread_objects",
        "Objects in the snapshot.",
        ("cluster", "kind"),
        {(one.cluster, kind): n for one in clusters for kind, n in one.objects.items()},
    )
    yield from _gauges(
        ("cluster",),
        (((one.cluster,), one) for one in clusters),
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
        (
            "corrupt_values",
            "Stored values that are left out: they cannot be read, or have too much.",
            "corrupt_values",
        ),
        (
            "store_identity_changed",
            "1 while the store has another history than the snapshot, or none: writes are refused.",
            "identity_changed",
        ),
    )


def pool_families(pools: Iterable[PoolGauges]) -> Iterator[Metric]:
    """The families of the thread pools."""
    yield from _gauges(
        ("pool",),
        (((one.pool,), one) for one in pools),
        ("queue_depth", "Calls that no thread has begun.", "queued"),
        ("inflight_calls", "Calls that a thread is working on.", "busy"),
        ("waiting_calls", "Calls that wait for a revision or a first load.", "waiting"),
    )


def cache_families(caches: Iterable[CacheGauges]) -> Iterator[Metric]:
    """The families of the caches."""
    caches = list(caches)
    yield from _gauges(
        ("cache",),
        (((one.cache,), one) for one in caches),
        ("cache_bytes", "Memory that is kept, about; of all clusters together.", "size"),
        (
            "cache_limit_bytes",
            "Memory that may be kept; of counts and nodes, for each cluster.",
            "most",
        ),
    )
    yield counter(
        "topospread_cache_evictions",
        "Entries that went because there was no room for others.",
        ("cache",),
        {(one.cache,): one.evicted for one in caches},
    )


def constraint_families(clusters: Iterable[ClusterConstraints]) -> Iterator[Metric]:
    """The families of constraints."""
    clusters = list(clusters)
    for name, text, attribute in (
        ("constraints", "Spread constraints in force, by state: the worst that holds.", "totals"),
        (
            "constraints_omitted",
            "Constraints of --constraint-metrics without series, for --max-constraint-series.",
            "omitted",
        ),
    ):
        counted: dict[Labels, float] = {
            (one.cluster, state): getattr(one, attribute).get(state, 0)
            for one in clusters
            if one.totals
            for state in STATES
        }
        yield gauge(f"topospread_{name}", text, ("cluster", "state"), counted)
    yield gauge(
        "topospread_constraints_age_seconds",
        "Since the constraints were last counted, or nothing had changed; before, since the "
        "cluster is known.",
        ("cluster",),
        {(one.cluster,): one.age_seconds for one in clusters},
    )
    yield gauge(
        "topospread_constraints_missing",
        "1 for the reason why the constraints of the newest state are not counted: "
        f"{', '.join(MISSING)}.",
        ("cluster", "reason"),
        {(one.cluster, each): one.missing == each for one in clusters for each in MISSING},
    )
    shown = [
        ((one.cluster, *map(label_value, each.labels)), each)
        for one in clusters
        for each in one.constraints
    ]
    yield from _gauges(
        CONSTRAINT_LABELS,
        shown,
        (
            "constraint_skew",
            "Pods in the fullest eligible domain, less the global minimum.",
            "skew",
        ),
        ("constraint_max_skew", "maxSkew of the constraint.", "max_skew"),
        (
            "constraint_blocked_pods",
            "Waiting pods that a node could take without this constraint.",
            "blocked",
        ),
    )
    yield gauge(
        "topospread_constraint_state",
        "1 for the state that the constraint is in, 0 for the others.",
        (*CONSTRAINT_LABELS, "state"),
        {(*labels, state): each.state == state for labels, each in shown for state in STATES},
    )


def label_value(text: str) -> str:
    """The beginning of a text that came with an object, with "?" for what cannot be printed."""
    cut = text[:MOST_BYTES].encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore")
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)


def sync_families(clusters: Iterable[SyncGauges]) -> Iterator[Metric]:
    """The families of the sync."""
    clusters = list(clusters)
    yield from _gauges(
        ("cluster",),
        (((one.cluster,), one) for one in clusters),
        (
            "sync_active",
            "1 while this process syncs the cluster, 0 while it stands by.",
            "active",
        ),
    )
    of_kinds = [(one, kind) for one in clusters for kind in one.kinds]
    yield from _gauges(
        ("cluster", "kind"),
        (((one.cluster, kind.kind), kind) for one, kind in of_kinds if one.active),
        ("sync_lag_seconds", "For how long the state may have lacked a change.", "lag_seconds"),
        ("sync_watching", "1 while the kind is listed and watched.", "watching"),
        ("sync_objects", "Objects of the kind in the cluster.", "objects"),
    )
    for name, text, label in (
        ("events", "Events that the API server sent.", "type"),
        ("changes", "What became of changes; skipped: nothing kept differs.", "result"),
        ("lists", "Times that a kind was listed.", "reason"),
    ):
        counted: dict[Labels, float] = {
            (one.cluster, kind.kind, value): total.read()
            for one, kind in of_kinds
            for value, total in getattr(kind.counters, name).items()
        }
        yield counter(f"topospread_sync_{name}", text, ("cluster", "kind", label), counted)
    yield counter(
        "topospread_sync_failures",
        "Times that the API server was out of reach, refused, or broke off.",
        ("cluster", "kind"),
        {(one.cluster, kind.kind): kind.counters.failures.read() for one, kind in of_kinds},
    )
