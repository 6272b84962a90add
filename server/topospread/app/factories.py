"""Factories of a server's parts, and the settings as far as its open files allow them."""

from __future__ import annotations

import logging
import resource
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc

from topospread.codec.parsing import NODES
from topospread.errors import ConfigError, QueueFull
from topospread.http import extender, webhook
from topospread.http.calls import HttpCalls
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Freshness
from topospread.service.decisions.pods import Limits
from topospread.service.inspecting.monitoring import ConstraintMonitor
from topospread.service.state.write import StateWriter, WriteLimits
from topospread.spread.linting.catalog import RULES
from topospread.store.urls import SqliteURL
from topospread.telemetry.constraint_metrics import ClusterConstraints, ConstraintGauges
from topospread.telemetry.families import CacheGauges, ClusterGauges
from topospread.threads.executor import BoundedExecutor, StreamExecutor
from topospread.threads.pool import arrival, lend_place, overloaded
from topospread.threads.turns import decided
from topospread.transports.grpc.completion_queue import CompletionQueueTransport
from topospread.transports.grpc.self_check import self_check
from topospread.transports.grpc.server import (
    OTHER_AWAY,
    OTHER_QUEUE,
    OTHER_THREADS,
    Credentials,
    Pools,
    ServerOptions,
    credentials,
)
from topospread.transports.grpc.thread_transport import ThreadTransport
from topospread_proto.v1.server_service_pb2 import ServerLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from topospread.app.credentials import CredentialWatcher
    from topospread.bounded import Budgets
    from topospread.config.settings import ServerSettings
    from topospread.http.calls import CallResponse, Submit
    from topospread.replica.replica import Replica
    from topospread.service.decisions.engine import Engine
    from topospread.service.extender.unschedulable_pods import UnschedulablePods
    from topospread.service.inspecting.inspector import Inspector
    from topospread.service.inspecting.statuses import ConstraintStatus
    from topospread.service.placement.coordinator import PlacementCoordinator
    from topospread.store.api import Store
    from topospread.store.urls import StoreURL
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Tracing
    from topospread.threads.pool import Pool
    from topospread.transports.grpc.transport import Transport


LOG: Final = logging.getLogger(__name__)

COMPLETION_QUEUE: Final = "grpcio"
THREADS: Final = "grpcio-threads"
"""The values of --transport."""

EXPANDER_THREADS: Final = 2
"""Calls of autoscalers at once: each has one under way, with a message of up to 128 MiB."""

EXPANDER_QUEUE: Final = 2

EXTENDER_THREADS: Final = 2
"""kube-scheduler asks for one pod after the other; a second thread is for a second scheduler."""

OWN_FILES: Final = 320
"""Open files of a process without clusters and connections: libraries, its store's connections for
reads and writes, files that are read again, syncs.
"""

REDIS_CLUSTER_FILES: Final = 3
"""Of each cluster that is followed in Redis: a connection that waits, and a socket pair to end it.
"""


def usable_transport(configured: str, metrics: Metrics) -> str:
    """The transport of decisions: the configured one, or what can be used instead of it."""
    used, reason = configured, ""
    if configured == COMPLETION_QUEUE and (reason := self_check()):
        used = THREADS
        LOG.warning(
            "--transport %s: grpcio %s is not as expected (%s); decisions take --transport %s,"
            " which costs more processor time: use a version of grpcio that topospread is tested"
            " with",
            configured,
            grpc.__version__,
            reason,
            used,
        )
    metrics.transport(configured, used, reason)
    return used


def make_pools(settings: ServerSettings, transport: str) -> Pools:
    """The threads that carry out calls, of which decisions come by this transport."""
    waiting = settings.max_waiting_calls
    queue = settings.decision_queue
    streams = StreamExecutor("stream", settings.max_streams, waiting)
    threads = settings.decision_threads
    decisions: Pool
    brings: Transport
    if transport == COMPLETION_QUEUE:
        decisions = brings = CompletionQueueTransport("decide", threads, queue, waiting)
    else:
        decisions = executor = BoundedExecutor("decide", threads, queue, waiting)
        brings = ThreadTransport(executor, streams)
    return Pools(
        decisions=decisions,
        decision_transport=brings,
        extender=BoundedExecutor("extend", EXTENDER_THREADS, queue, waiting),
        state=BoundedExecutor("state", settings.state_threads, settings.state_queue, waiting),
        planner=BoundedExecutor(
            "planner", settings.planner_threads, settings.planner_queue, waiting
        ),
        expander=BoundedExecutor("expander", EXPANDER_THREADS, EXPANDER_QUEUE, waiting),
        streams=streams,
        other=BoundedExecutor("other", OTHER_THREADS, OTHER_QUEUE, waiting=0, away=OTHER_AWAY),
    )


def make_replicas(
    settings: ServerSettings, store: Store, metrics: Metrics, budgets: Budgets
) -> Replicas:
    """The replicas; calls that wait for one lend their threads."""
    return Replicas(
        store,
        ReplicaOptions(
            coalesce=settings.coalesce_interval,
            max_groups=settings.max_groups,
            max_group_idle=settings.max_group_idle,
            budgets=budgets,
        ),
        entering_wait=lend_place,
        on_waited={mode: metrics.consistency(mode.name.lower()).observe for mode in Freshness},
        max_clusters=settings.max_clusters,
    )


def make_writes(settings: ServerSettings, store: Store, replicas: Replicas) -> StateWriter:
    """The use case that writes to the store."""
    limits = WriteLimits(
        batch=settings.max_batch_objects,
        replace=settings.max_replace_objects,
        clusters=settings.max_clusters,
    )
    return StateWriter(store, replicas, limits)


def make_constraint_monitor(
    settings: ServerSettings, inspector: Inspector, replicas: Replicas, *, exposed: bool
) -> ConstraintMonitor | None:
    """What looks at all constraints; None where nobody would see what it found."""
    chosen = settings.constraint_metrics
    if not exposed or chosen == "none":
        return None
    return ConstraintMonitor(inspector, replicas, chosen, settings.max_constraint_series)


def make_limits(settings: ServerSettings) -> Limits:
    """Make the limits of what one request may carry."""
    return Limits(
        groups=settings.max_groups,
        constraints=settings.max_constraints,
        terms=settings.max_selector_terms,
        batch_pods=settings.max_batch_pods,
        what_ifs=settings.max_what_if_pods,
        simulated_pods=settings.max_simulated_pods,
        simulated_nodes=settings.max_simulated_nodes,
    )


def features(settings: ServerSettings) -> list[str]:
    """The features of the server beside topospread.v1, as docs/api.md lists them."""
    served = {
        "expander": True,
        "extender": settings.extender != "off" and bool(settings.http or settings.extender_listen),
        "reflection": settings.reflection,
        "sync": settings.sync,
        "webhook": settings.webhook and bool(settings.http or settings.extender_listen),
    }
    return [name for name, on in served.items() if on]


def limits(settings: ServerSettings) -> ServerLimits:
    """The limits of one request, as GetServerInfo reports them."""
    return ServerLimits(
        max_batch_objects=settings.max_batch_objects,
        max_batch_pods=settings.max_batch_pods,
        max_what_if_pods=settings.max_what_if_pods,
        max_request_bytes=settings.max_request_bytes,
        max_clusters=settings.max_clusters,
        max_simulated_pods=settings.max_simulated_pods,
        max_simulated_nodes=settings.max_simulated_nodes,
        max_decision_bytes=settings.max_decision_bytes,
        max_replace_objects=settings.max_replace_objects,
        max_constraints=settings.max_constraints,
        max_selector_terms=settings.max_selector_terms,
        max_named_nodes=NODES,
    )


def grpc_options(settings: ServerSettings) -> ServerOptions:
    """The options of the gRPC server."""
    return ServerOptions(
        max_request_bytes=settings.max_request_bytes,
        max_response_bytes=settings.max_response_bytes,
        max_connection_age=settings.max_connection_age,
        reflection=settings.reflection,
        reuse_port=settings.reuse_port,
        max_connections=settings.max_connections,
        max_calls_per_connection=settings.max_calls_per_connection,
    )


def grpc_credentials(settings: ServerSettings, watcher: CredentialWatcher) -> Credentials | None:
    """TLS of the gRPC listener; None serves plain text."""
    return credentials(watcher.current_pem) if settings.tls else None


def gauges(replica: Replica) -> ClusterGauges:
    """The gauges of a cluster that is followed."""
    view = replica.view
    objects: dict[str, int] = {}
    if view is not None:
        snapshot = view.snapshot
        objects = {
            "Node": snapshot.node_count,
            "Pod": snapshot.pods,
            "Workload": snapshot.workload_count,
            "Reservation": len(snapshot.reservations),
        }
    return ClusterGauges(
        cluster=replica.cluster,
        objects=objects,
        groups=0 if view is None else len(view.snapshot.groups),
        revision_lag=replica.lag,
        stale_seconds=replica.stale_for,
        snapshot_age_seconds=replica.age,
        corrupt_values=replica.corrupt,
        identity_changed=replica.identity_changed,
        label_sets=0 if view is None else view.snapshot.label_sets,
    )


def constraint_gauges(monitor: ConstraintMonitor) -> Iterator[ClusterConstraints]:
    """The gauges of the constraints of each cluster."""
    for seen in monitor.constraints():
        yield ClusterConstraints(
            seen.cluster,
            {state.name.lower(): count for state, count in seen.totals.items()},
            {state.name.lower(): count for state, count in seen.omitted.items()},
            seen.age_seconds,
            [_constraint_gauges(each) for each in seen.shown],
        )


def _constraint_gauges(status: ConstraintStatus) -> ConstraintGauges:
    key, constraint = status.key, status.key.constraint
    labels = (
        key.namespace,
        key.owner.kind,
        key.owner.name,
        constraint.topology_key,
        constraint.when_unsatisfiable,
        key.id,
    )
    return ConstraintGauges(
        labels, status.state.name.lower(), status.spread.skew, constraint.max_skew, status.blocked
    )


def cache_gauges(budgets: Budgets) -> Iterator[CacheGauges]:
    """The gauges of the caches: how full they are."""
    for name, budget in budgets.items():
        yield CacheGauges(name, budget.size, budget.most, budget.evicted)


def make_extender(
    settings: ServerSettings,
    *,
    engine: Engine,
    placement: PlacementCoordinator,
    unschedulable: UnschedulablePods | None,
    tracing: Tracing,
    metrics: Metrics,
    pools: Pools,
) -> HttpCalls | None:
    """The extender's calls; None when that is off.

    Args:
        settings: what was configured.
        engine: judges pods.
        placement: holds places.
        unschedulable: remembers pods that Filter refuses.
        tracing: traces calls.
        metrics: counts calls and results.
        pools: threads that carry out calls.
    """
    if settings.extender == "off":
        return None
    service = extender.Extender(
        engine,
        placement,
        metrics,
        extender.Executors(
            decide=_submit(pools.extender, "extender", metrics),
            wait=_submit(pools.state, "state", metrics),
            run_decision=decided,
        ),
        lifetime=round(settings.extender_reservation_ttl * 1000),
        unschedulable=unschedulable,
        places=settings.extender == "place",
    )
    return HttpCalls(
        service.method,
        extender.LABELS,
        tracing,
        metrics,
        max_body_bytes=settings.http_max_body_bytes,
        bodies=extender.BODIES,
    )


def make_webhook(
    settings: ServerSettings,
    *,
    engine: Engine,
    tracing: Tracing,
    metrics: Metrics,
    pools: Pools,
) -> HttpCalls | None:
    """The validating webhook's calls; None when that is off.

    Raises:
        ConfigError: it is to refuse for a code that there is not.
    """
    if not settings.webhook:
        return None
    known = {"error", *(code.value for code in RULES)}
    if unknown := sorted({*settings.webhook_refuse} - known):
        raise ConfigError(
            f"--webhook-refuse: there is no code {unknown[0]!r}: write error, or codes of "
            "docs/lint.md"
        )
    submit = _submit(pools.planner, "planner", metrics)
    return HttpCalls(
        webhook.Webhook(engine, submit, frozenset(settings.webhook_refuse)).method,
        [webhook.LABEL],
        tracing,
        metrics,
        max_body_bytes=min(settings.http_max_body_bytes, webhook.MAX_BYTES),
        bodies=webhook.BODIES,
    )


def _submit(pool: BoundedExecutor, name: str, metrics: Metrics) -> Submit:
    """The gRPC server's pool does HTTP's work as well, so that one bound holds for both."""
    queue_wait = metrics.queue_wait(name)

    def submit(work: Callable[[], CallResponse], /) -> Future[CallResponse]:
        def done() -> CallResponse:
            if overloaded():
                metrics.rejection(name)
                raise QueueFull.of(name)
            queue_wait.observe(time.perf_counter() - arrival())
            return work()

        return pool.submit(done)

    return submit


def within_open_files(
    settings: ServerSettings, url: StoreURL, limit: int | None = None
) -> ServerSettings:
    """The settings with as many clusters and connections as files may be open.

    Where that is fewer than was configured, it is logged what would be needed.

    Args:
        settings: what was configured.
        url: of the store.
        limit: files that may be open; None: of this process.
    """
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    each = 0 if isinstance(url, SqliteURL) else REDIS_CLUSTER_FILES
    listeners = (settings.http, settings.extender_listen, settings.expander_listen)
    ports = 1 + len([address for address in listeners if address is not None])
    clusters, connections = settings.max_clusters, settings.max_connections
    needed = OWN_FILES + clusters * each + connections * ports
    if limit == resource.RLIM_INFINITY or needed <= limit:
        return settings
    left = max(0, limit - OWN_FILES)
    if each:
        clusters = max(1, min(clusters, left // 2 // each))
    connections = max(1, min(connections, (left - clusters * each) // ports))
    LOG.warning(
        "%d files may be open here (ulimit -n), and --max-clusters and --max-connections need %d:"
        " until that is raised, or they are lowered, %d clusters are followed at most, and each"
        " port has %d connections",
        limit,
        needed,
        clusters,
        connections,
    )
    return replace(settings, max_clusters=clusters, max_connections=connections)
