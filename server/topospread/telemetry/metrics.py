"""The metrics of a process, on a registry of its own.

Calls touch only :mod:`~topospread.telemetry.meters`; families are made at a scrape.
A label's values must be few: profiles and methods that exist, clusters that are followed.
Series whose labels are known are there from the beginning, at 0: Prometheus' rate() and increase()
see only what is added to a series that was there before.
"""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, get_args

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from topospread.telemetry.constraint_metrics import ClusterConstraints, constraint_families
from topospread.telemetry.families import (
    CALL_BOUNDS,
    DROPPED,
    EVALUATED,
    FIRST_CODES,
    POINT_BOUNDS,
    QUEUE_BOUNDS,
    WAIT_BOUNDS,
    CacheGauges,
    ClusterGauges,
    PoolGauges,
    cache_families,
    call_families,
    cluster_families,
    counter,
    dropped_family,
    gauge,
    histogram,
    pool_families,
    scheduler_families,
)
from topospread.telemetry.logs import lost_lines
from topospread.telemetry.meters import (
    Attempts,
    ByLabels,
    CallMeter,
    Counter,
    Histogram,
    Labels,
    PointMeter,
    Result,
)
from topospread.telemetry.sync_metrics import SyncGauges, sync_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Placed = Literal["held", "refused", "bound"]
Woken = Literal["woken", "gone", "failed"]

_RELOADS: Final = ("accepted", "refused")

_Series = TypeVar("_Series")
_Seen = TypeVar("_Seen")
_Seen_co = TypeVar("_Seen_co", covariant=True)


class _Readable(Protocol[_Seen_co]):
    def read(self) -> _Seen_co: ...


def _begin(series: ByLabels[_Series], known: Iterable[Labels]) -> None:
    """Have these series at 0 before anything is counted."""
    for labels in known:
        series[labels]


def _read(series: Iterable[tuple[Labels, _Readable[_Seen]]]) -> dict[Labels, _Seen]:
    return {labels: one.read() for labels, one in series}


class _Families(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @override
    def collect(self) -> Iterator[Metric]:
        for family in self._metrics.families():
            # Writing a family is a Python loop; calls must not wait for one after the other.
            time.sleep(0)
            yield family


class Metrics:
    """All counters of a process. Methods may be called from any thread.

    Args:
        version: the server's, for ``topospread_build_info``.
        scheduler_metrics: off leaves the ``scheduler_*`` families out.

    Attributes:
        attempt: count a pod that was judged as a whole, by result and profile.
    """

    def __init__(self, version: str, *, scheduler_metrics: bool = True) -> None:
        self._version = version
        self._scheduler_metrics = scheduler_metrics
        self._calls = ByLabels(lambda: Histogram(CALL_BOUNDS))
        self._expected_calls = ByLabels(Counter)
        self._points = ByLabels(lambda: Histogram(POINT_BOUNDS))
        self._waits = ByLabels(lambda: Histogram(WAIT_BOUNDS))
        self._attempts = Attempts(Counter)
        self.attempt = self._attempts.add_one
        self._store_errors = ByLabels(Counter)
        self._rejections = ByLabels(Counter)
        self._queue_waits = ByLabels(lambda: Histogram(QUEUE_BOUNDS))
        self._transport: tuple[str, str] | None = None
        self._reloads = ByLabels(Counter)
        self._placements = ByLabels(Counter)
        self._conflicts = ByLabels(Counter)
        self._unknown_nodes = ByLabels(Counter)
        self._stale_decisions = ByLabels(Counter)
        self._wakes = ByLabels(Counter)
        self._refused: dict[str, Callable[[], int]] = {}
        self._dropped = ByLabels(Counter)
        self._config = (1, True)
        self._settings: Callable[[], str] = lambda: ""
        self._files = {"access": True, "certificates": True}
        self._clusters: Callable[[], Iterable[ClusterGauges]] = tuple
        self._constraints: Callable[[], Iterable[ClusterConstraints]] | None = None
        self._pools: Callable[[], Iterable[PoolGauges]] = tuple
        self._caches: Callable[[], Iterable[CacheGauges]] = tuple
        self._connections: Callable[[], Mapping[str, int]] = dict
        self._sync: Callable[[], Iterable[SyncGauges]] = tuple
        _begin(self._reloads, ((result,) for result in _RELOADS))
        _begin(self._dropped, ((reason,) for reason in DROPPED))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def call(self, method: str) -> CallMeter:
        """The meter of a method, for example ``DecisionService/EvaluatePod``; keep it."""
        self._calls[method, "OK"]
        _begin(self._expected_calls, ((method, code) for code in FIRST_CODES))
        return CallMeter(self._calls, method)

    def extension_point(self, point: str, profile: str) -> PointMeter:
        """The meter of an extension point (upstream's name) under a profile; keep it."""
        return PointMeter(self._points, point, profile)

    def expect_profile(self, profile: str) -> None:
        """Pods will be judged by this profile."""
        _begin(self._points, ((point, "Success", profile) for point in EVALUATED))
        _begin(self._attempts, ((result, profile) for result in get_args(Result)))

    def consistency(self, mode: str) -> Histogram:
        """The series of a consistency mode, to keep: observe() seconds waited, 0 when fresh."""
        return self._waits[(mode,)]

    def store_error(self, operation: str) -> None:
        """The store failed to answer an operation, for example ``apply``."""
        self._store_errors[(operation,)].add_one()

    def expect_store_operations(self, operations: Iterable[str]) -> None:
        """The store will be asked for these."""
        _begin(self._store_errors, ((operation,) for operation in operations))

    def expect_placements(self, call: str) -> None:
        """Places will be held for this call, for example ``PlacePod``."""
        _begin(self._placements, ((call, result) for result in get_args(Placed)))
        _begin(self._conflicts, ((call,),))

    def placement(self, call: str, result: Placed) -> None:
        """A PlacePod or ReserveNode was answered: ``held``, ``bound`` or ``refused``."""
        self._placements[call, result].add_one()

    def placement_conflict(self, call: str) -> None:
        """Concurrent changes made a decision of PlacePod or ReserveNode void."""
        self._conflicts[(call,)].add_one()

    def unknown_nodes(self, cluster: str) -> None:
        """A scheduler named nodes that are not in the cluster's state."""
        self._unknown_nodes[(cluster,)].add_one()

    def stale_decision(self, cluster: str) -> None:
        """The extender decided for a pod before the state had the pod before it."""
        self._stale_decisions[(cluster,)].add_one()

    def wake(self, cluster: str, result: str) -> None:
        """A pod that was refused fits, and was ``woken``; it was ``gone``, or that ``failed``."""
        self._wakes[cluster, result].add_one()

    def watch_refused(self, cluster: str, read: Callable[[], int]) -> None:
        """Ask this at each scrape how many refused pods of a cluster are remembered."""
        self._refused[cluster] = read
        _begin(self._wakes, ((cluster, result) for result in get_args(Woken)))

    def http_dropped(self, reason: str) -> None:
        """An HTTP connection was dropped for what its peer did, for example ``malformed``."""
        self._dropped[(reason,)].add_one()

    def rejection(self, pool: str) -> None:
        """A call of a pool was refused for want of room."""
        self._rejections[(pool,)].add_one()

    def queue_wait(self, pool: str) -> Histogram:
        """The series of a pool, to keep: observe() seconds from a call's arrival to its begin."""
        self._rejections[(pool,)]
        return self._queue_waits[(pool,)]

    def transport(self, used: str, reason: str) -> None:
        """Decisions come by ``used``; ``reason`` says why not from the completion queue."""
        self._transport = used, reason

    def config_reloaded(self, generation: int, *, accepted: bool) -> None:
        """The configuration file was read again; generation is that of the settings in force."""
        self._reloads["accepted" if accepted else "refused",].add_one()
        self._config = (generation, accepted)

    def file_read(self, name: str, accepted: bool) -> None:
        """The files named so, for example "certificates", were read again."""
        self._files[name] = accepted

    def watch_settings(self, read: Callable[[], str]) -> None:
        """Ask this at each scrape for the settings' digest."""
        self._settings = read

    def watch_clusters(self, read: Callable[[], Iterable[ClusterGauges]]) -> None:
        """Ask this at each scrape how the clusters are followed."""
        self._clusters = read

    def watch_constraints(self, read: Callable[[], Iterable[ClusterConstraints]]) -> None:
        """Ask this at each scrape what was last seen of the clusters' constraints."""
        self._constraints = read

    def watch_pools(self, read: Callable[[], Iterable[PoolGauges]]) -> None:
        """Ask this at each scrape how busy the thread pools are."""
        self._pools = read

    def watch_caches(self, read: Callable[[], Iterable[CacheGauges]]) -> None:
        """Ask this at each scrape how full the caches are."""
        self._caches = read

    def watch_connections(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Ask this at each scrape how many connections the ports have."""
        self._connections = read

    def watch_sync(self, read: Callable[[], Iterable[SyncGauges]]) -> None:
        """Ask this at each scrape how clusters are synced from their API servers."""
        self._sync = read

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that an Accept header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def families(self) -> Iterator[Metric]:
        """All families with what was counted until now."""
        clusters = list(self._clusters())
        followed = {(each.cluster,): 0 for each in clusters}
        if self._scheduler_metrics:
            yield from scheduler_families(
                _read(self._points.known()), _read(self._attempts.known())
            )
        yield from call_families(_read(self._calls.known()), _read(self._expected_calls.known()))
        yield histogram(
            "topospread_consistency_wait_seconds",
            "How long calls waited for the revision they asked for; le=0 did not wait.",
            ("mode",),
            WAIT_BOUNDS,
            _read(self._waits.known()),
        )
        yield histogram(
            "topospread_queue_wait_seconds",
            "How long calls waited in a queue, from their arrival until they were begun.",
            ("pool",),
            QUEUE_BOUNDS,
            _read(self._queue_waits.known()),
        )
        if self._transport is not None:
            yield gauge(
                "topospread_transport_info",
                "How decisions come from gRPC: from its completion queue (grpcio), or by its own"
                " threads (grpcio-threads) and why.",
                ("used", "reason"),
                {self._transport: 1},
            )
        for name, text, label, counters in (
            ("store_errors", "Store operations that failed.", "operation", self._store_errors),
            (
                "queue_rejections",
                "Calls refused for want of room: a full queue, or too many that wait or take long.",
                "pool",
                self._rejections,
            ),
            ("config_reloads", "Times the configuration was read.", "result", self._reloads),
            (
                "placement_conflicts",
                "Decisions of PlacePod and ReserveNode that concurrent changes made void.",
                "call",
                self._conflicts,
            ),
        ):
            yield counter(f"topospread_{name}", text, (label,), _read(counters.known()))
        yield counter(
            "topospread_placements",
            "Placements requested: held, refused, or the pod was bound already.",
            ("call", "result"),
            _read(self._placements.known()),
        )
        yield counter(
            "topospread_extender_unknown_nodes",
            "Calls of a scheduler that named nodes which are not in the state.",
            ("cluster",),
            followed | _read(self._unknown_nodes.known()),
        )
        yield counter(
            "topospread_extender_stale_decisions",
            "Pods of mode filter that were decided before the state had the pod before them: they"
            " may break maxSkew.",
            ("cluster",),
            followed | _read(self._stale_decisions.known()),
        )
        yield from self._refused_families()
        yield gauge(
            "topospread_connections",
            "Connections that are open, by port: grpc and expander (on Linux, as of the last 10 s),"
            " http or extender.",
            ("port",),
            {(port,): count for port, count in self._connections().items()},
        )
        yield dropped_family(_read(self._dropped.known()))
        yield counter(
            "topospread_log_lines_lost",
            "Lines of the log that were lost because stderr was not read, or could not be written.",
            (),
            {(): lost_lines()},
        )
        yield from self._config_families()
        yield from cluster_families(clusters)
        if self._constraints is not None:
            yield from constraint_families(self._constraints())
        yield from pool_families(self._pools())
        yield from cache_families(self._caches())
        if sync := list(self._sync()):
            yield from sync_families(sync)

    def _refused_families(self) -> Iterator[Metric]:
        if not self._refused:
            return
        yield gauge(
            "topospread_extender_refused_pods",
            "Pods that the extender refused and that it will wake when they fit.",
            ("cluster",),
            {(cluster,): read() for cluster, read in self._refused.items()},
        )
        yield counter(
            "topospread_extender_wakes",
            "Refused pods that fit: woken by a write to the pod, gone, or the write failed.",
            ("cluster", "result"),
            _read(self._wakes.known()),
        )

    def _config_families(self) -> Iterator[Metric]:
        generation, accepted = self._config
        yield GaugeMetricFamily(
            "topospread_config_generation", "Generation of the settings in force.", generation
        )
        yield GaugeMetricFamily(
            "topospread_config_last_reload_successful",
            "1 when the configuration file was accepted when last read, else 0.",
            float(accepted),
        )
        yield gauge(
            "topospread_settings_info",
            "Always 1; servers of one store that answer by the same settings have the same digest.",
            ("digest",),
            {(self._settings(),): 1},
        )
        yield gauge(
            "topospread_file_last_reload_successful",
            "1 when these files, if there are any, were accepted when last read, else 0.",
            ("files",),
            {(name,): in_force for name, in_force in self._files.items()},
        )
        version = (self._version, platform.python_version())
        yield gauge(
            "topospread_build_info", "Always 1.", ("version", "python_version"), {version: 1}
        )
