"""The metrics of a process, on a registry of its own.

What decisions count stands in :mod:`~topospread.telemetry.meters` and becomes families at a scrape;
all else is counted by Prometheus' client library, or asked for at a scrape. A label's values must
be few: profiles and methods that exist, clusters that are followed. Series whose labels are known
are there from the beginning, at 0: Prometheus' rate() and increase() see only what is added to a
series that was there before.
"""

from __future__ import annotations

import platform
import time
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from topospread.telemetry.families import DROPPED, ClusterGauges, cluster_families
from topospread.telemetry.logs import lost_lines
from topospread.telemetry.meters import (
    CALL_BOUNDS,
    EVALUATED,
    FIRST_CODES,
    POINT_BOUNDS,
    QUEUE_BOUNDS,
    WAIT_BOUNDS,
    Attempts,
    ByLabels,
    Counter,
    Histogram,
    HistogramsByStatus,
    Labels,
    Result,
    Series,
    call_families,
    counter,
    gauge,
    histogram,
    scheduler_families,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

Placed = Literal["held", "refused", "bound"]
Woken = Literal["woken", "gone", "failed"]
Reloaded = Literal["accepted", "refused"]

_T = TypeVar("_T")

# No series `…_created` beside each counter: a second one for all that is counted.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # it has no types


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
    """All metrics of a process. Methods may be called from any thread.

    Args:
        version: the server's, for ``topospread_build_info``.
        scheduler_metrics: off leaves the ``scheduler_*`` families out.

    Attributes:
        attempt: count a pod that was judged as a whole, by result and profile.
    """

    def __init__(self, version: str, *, scheduler_metrics: bool = True) -> None:
        self._scheduler_metrics = scheduler_metrics
        self._calls = ByLabels(lambda: Histogram(CALL_BOUNDS))
        self._expected_calls: dict[Labels, int] = {}
        self._points = ByLabels(lambda: Histogram(POINT_BOUNDS))
        self._waits = ByLabels(lambda: Histogram(WAIT_BOUNDS))
        self._attempts = Attempts(Counter)
        self.attempt = self._attempts.add_one
        self._queue_waits = ByLabels(lambda: Histogram(QUEUE_BOUNDS))
        self._unknown_nodes = ByLabels(Counter)
        self._stale_decisions = ByLabels(Counter)
        self._clusters: Callable[[], Iterable[ClusterGauges]] = tuple
        self._watched: list[Callable[[], Iterable[Metric]]] = []

        self._own = CollectorRegistry(auto_describe=False)
        counted = partial(prometheus_client.Counter, namespace="topospread", registry=self._own)
        measured = partial(prometheus_client.Gauge, namespace="topospread", registry=self._own)
        self._transport = measured(
            "transport_info",
            "How decisions come from gRPC: from its completion queue (grpcio), or by its own"
            " threads (grpcio-threads) and why.",
            ("used", "reason"),
        )
        self._store_errors = counted(
            "store_errors", "Store operations that failed.", ("operation",)
        )
        self._rejections = counted(
            "queue_rejections",
            "Calls refused for want of room: a full queue, or too many that wait or take long.",
            ("pool",),
        )
        self._placements = counted(
            "placements",
            "Placements requested: held, refused, or the pod was bound already.",
            ("call", "result"),
        )
        self._conflicts = counted(
            "placement_conflicts",
            "Decisions of PlacePod and ReserveNode that concurrent changes made void.",
            ("call",),
        )
        self._refused = measured(
            "extender_refused_pods",
            "Pods that the extender refused and that it will wake when they fit.",
            ("cluster",),
        )
        self._wakes = counted(
            "extender_wakes",
            "Refused pods that fit: woken by a write to the pod, gone, or the write failed.",
            ("cluster", "result"),
        )
        self._dropped = counted(
            "http_connections_dropped",
            "HTTP connections that were dropped for what the peer did: over_limit, handshake,"
            " malformed or slow.",
            ("reason",),
        )
        self._reloads = counted("config_reloads", "Times the configuration was read.", ("result",))
        self._generation = measured("config_generation", "Generation of the settings in force.")
        self._reload_successful = measured(
            "config_last_reload_successful",
            "1 when the configuration file was accepted when last read, else 0.",
        )
        self._file_successful = measured(
            "file_last_reload_successful",
            "1 when these files, if there are any, were accepted when last read, else 0.",
            ("files",),
        )
        built = measured("build_info", "Always 1.", ("version", "python_version"))

        built.labels(version, platform.python_version()).set(1)
        self._generation.set(1)
        self._reload_successful.set(1)
        for files in ("access", "certificates"):
            self.file_read(files, accepted=True)
        for result in get_args(Reloaded):
            self._reloads.labels(result)
        for reason in DROPPED:
            self._dropped.labels(reason)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    # ------------------------------ what decisions count with

    def call(self, method: str) -> HistogramsByStatus:
        """The series of a method, for example ``DecisionService/EvaluatePod``; keep it."""
        self._calls[method, "OK"]
        self._expected_calls.update({(method, code): 0 for code in FIRST_CODES})
        return HistogramsByStatus(lambda code: self._calls[method, code])

    def extension_point(self, point: str, profile: str) -> HistogramsByStatus:
        """The series of an extension point (upstream's name) under a profile; keep it."""
        return HistogramsByStatus(lambda status: self._points[point, status, profile])

    def expect_profile(self, profile: str) -> None:
        """Pods will be judged by this profile."""
        for point in EVALUATED:
            self._points[point, "Success", profile]
        for result in get_args(Result):
            self._attempts[result, profile]

    def consistency(self, mode: str) -> Histogram:
        """The series of a consistency mode, to keep: observe() seconds waited, 0 when fresh."""
        return self._waits[(mode,)]

    def queue_wait(self, pool: str) -> Histogram:
        """The series of a pool, to keep: observe() seconds from a call's arrival to its begin."""
        self._rejections.labels(pool)
        return self._queue_waits[(pool,)]

    # ------------------------------ what happens less often

    def rejection(self, pool: str) -> None:
        """A call of a pool was refused for want of room."""
        self._rejections.labels(pool).inc()

    def store_error(self, operation: str) -> None:
        """The store failed to answer an operation, for example ``apply``."""
        self._store_errors.labels(operation).inc()

    def expect_store_operations(self, operations: Iterable[str]) -> None:
        """The store will be asked for these."""
        for operation in operations:
            self._store_errors.labels(operation)

    def expect_placements(self, call: str) -> None:
        """Places will be held for this call, for example ``PlacePod``."""
        for result in get_args(Placed):
            self._placements.labels(call, result)
        self._conflicts.labels(call)

    def placement(self, call: str, result: Placed) -> None:
        """A PlacePod or ReserveNode was answered: ``held``, ``bound`` or ``refused``."""
        self._placements.labels(call, result).inc()

    def placement_conflict(self, call: str) -> None:
        """Concurrent changes made a decision of PlacePod or ReserveNode void."""
        self._conflicts.labels(call).inc()

    def unknown_nodes(self, cluster: str) -> None:
        """A scheduler named nodes that are not in the cluster's state."""
        self._unknown_nodes[(cluster,)].add_one()

    def stale_decision(self, cluster: str) -> None:
        """Filter of the extender decided for a pod before the state had those before it."""
        self._stale_decisions[(cluster,)].add_one()

    def wake(self, cluster: str, result: str) -> None:
        """A pod that was refused fits, and was ``woken``; it was ``gone``, or that ``failed``."""
        self._wakes.labels(cluster, result).inc()

    def watch_refused(self, cluster: str, read: Callable[[], int]) -> None:
        """Ask this at each scrape how many refused pods of a cluster are remembered."""
        self._refused.labels(cluster).set_function(read)
        for result in get_args(Woken):
            self._wakes.labels(cluster, result)

    def http_dropped(self, reason: str) -> None:
        """An HTTP connection was dropped for what its peer did, for example ``malformed``."""
        self._dropped.labels(reason).inc()

    def transport(self, used: str, reason: str) -> None:
        """Decisions come by ``used``; ``reason`` says why not from the completion queue."""
        self._transport.labels(used, reason).set(1)

    def config_reloaded(self, generation: int, *, accepted: bool) -> None:
        """The configuration file was read again; generation is that of the settings in force."""
        self._reloads.labels("accepted" if accepted else "refused").inc()
        self._generation.set(generation)
        self._reload_successful.set(accepted)

    def file_read(self, name: str, accepted: bool) -> None:
        """The files named so, for example "certificates", were read again."""
        self._file_successful.labels(name).set(accepted)

    # ------------------------------ what a scrape asks for

    def watch(self, families: Callable[[_T], Iterable[Metric]], read: Callable[[], _T]) -> None:
        """Expose these families of what is read at each scrape."""
        self._watched.append(lambda: families(read()))

    def watch_clusters(self, read: Callable[[], Iterable[ClusterGauges]]) -> None:
        """Ask this at each scrape how the clusters are followed."""
        self._clusters = read

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that an Accept header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def families(self) -> Iterator[Metric]:
        """All families with what was counted until now."""
        if self._scheduler_metrics:
            attempts = _counts(self._attempts)
            yield from scheduler_families(_read(self._points), attempts)
        yield from call_families(_read(self._calls), self._expected_calls)
        yield histogram(
            "topospread_consistency_wait_seconds",
            "How long calls waited for the revision they asked for; le=0 did not wait.",
            ("mode",),
            WAIT_BOUNDS,
            _read(self._waits),
        )
        yield histogram(
            "topospread_queue_wait_seconds",
            "How long calls waited in a queue, from their arrival until they were begun.",
            ("pool",),
            QUEUE_BOUNDS,
            _read(self._queue_waits),
        )
        clusters = list(self._clusters())
        yield from cluster_families(clusters)
        # Of clusters that are followed from 0 on, and no longer: a registry would keep the series.
        followed: dict[Labels, int] = {(one.cluster,): 0 for one in clusters}
        yield counter(
            "topospread_extender_unknown_nodes",
            "Calls of a scheduler that named nodes which are not in the state.",
            ("cluster",),
            followed | _counts(self._unknown_nodes),
        )
        yield counter(
            "topospread_extender_stale_decisions",
            "Pods of mode filter that were decided before the state had those before them, which"
            " were counted where they are assumed to go.",
            ("cluster",),
            followed | _counts(self._stale_decisions),
        )
        for families in self._watched:
            yield from families()
        yield counter(
            "topospread_log_lines_lost",
            "Lines of the log that were lost because stderr was not read, or could not be written.",
            (),
            {(): lost_lines()},
        )
        yield from self._own.collect()


def _read(series: ByLabels[Histogram]) -> Series:
    return {labels: one.read() for labels, one in series.known()}


def _counts(series: ByLabels[Counter]) -> dict[Labels, int]:
    return {labels: one.read() for labels, one in series.known()}


def connection_families(by_port: Mapping[str, int]) -> Iterator[Metric]:
    """The family of the connections."""
    yield gauge(
        "topospread_connections",
        "Connections that are open, by port: grpc and expander (on Linux, as of the last 10 s),"
        " http or extender.",
        ("port",),
        {(port,): count for port, count in by_port.items()},
    )


def settings_families(digest: str) -> Iterator[Metric]:
    """The family of the settings' digest."""
    yield gauge(
        "topospread_settings_info",
        "Always 1; servers of one store that answer by the same settings have the same digest.",
        ("digest",),
        {(digest,): 1},
    )
