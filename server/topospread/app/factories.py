"""Factories of a server's parts, and the settings as far as its open files allow them."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc

from topospread.app.http_servers import MAX_CONNECTIONS as HTTP_CONNECTIONS
from topospread.calls.access import AccessControl
from topospread.calls.executor import Executor
from topospread.calls.pipeline import Pipeline
from topospread.checkpoints import Turn
from topospread.errors import ConfigError
from topospread.http import extender, webhook
from topospread.http.calls import HttpCalls
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Freshness
from topospread.rpc.self_check import self_check
from topospread.rpc.server import Credentials, Pools, ServerOptions, credentials
from topospread.service.decisions.pods import Limits
from topospread.service.inspecting.monitoring import ConstraintMonitor
from topospread.service.state.write import StateWriter, WriteLimits
from topospread.spread.linting.engine import RULES
from topospread.store.urls import SqliteURL
from topospread.telemetry.constraint_metrics import ClusterConstraints, ConstraintGauges
from topospread.telemetry.families import CacheGauges, ClusterGauges
from topospread_proto.v1.inspector_service_pb2 import SpreadState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread.app.credentials import CredentialWatcher
    from topospread.cache import Budget
    from topospread.calls.memory import Sweeper
    from topospread.calls.pipeline import Parts
    from topospread.config.settings import ServerSettings
    from topospread.replica.replica import Replica
    from topospread.rpc.completion_queue import CompletionQueue
    from topospread.service.decisions.engine import Engine
    from topospread.service.extender.unschedulable_pods import UnschedulablePods
    from topospread.service.inspecting.inspector import Inspector
    from topospread.service.inspecting.statuses import ConstraintStatus
    from topospread.service.placement.places import Places
    from topospread.store.api import Store
    from topospread.store.urls import StoreURL
    from topospread.telemetry.metrics import Metrics


LOG: Final = logging.getLogger(__name__)

COMPLETION_QUEUE: Final = "grpcio"
THREADS: Final = "grpcio-threads"
"""How decisions come, in topospread_transport_info."""

STATE_THREADS: Final = 32
"""They wait for the store more than they compute; a thread that waits takes some 50 KiB."""

STATE_QUEUE: Final = 256

LIST_THREADS: Final = 4
LIST_QUEUE: Final = 48
"""Calls whose answers grow with the cluster: each takes several times the answer's size."""

DECISION_THREADS: Final = 64
"""Decisions that may wait for a revision, a first load or the store at once."""

PLANNER_THREADS: Final = 8
PLANNER_QUEUE: Final = 16
"""Of these one computes at a time; they take turns of 20 ms. The others wait for the store.
A caller has half of the threads: what is long must not keep another's call from its turn.
"""

MAX_STREAMS: Final = 64
"""Open streams (WatchObjects, WatchConstraints), each with a thread."""

MAX_WATCHES: Final = 64
"""Open watches of health, which anybody may open; a client with health checks has one."""

OTHER_THREADS: Final = 2
OTHER_QUEUE: Final = 256
"""For health and for unknown methods: answered in microseconds. gRPC's core takes in a message of
the largest size for each thread that waits for one.
"""

EXPANDER_THREADS: Final = 2
EXPANDER_QUEUE: Final = 2
"""Calls of autoscalers at once: each has one under way, with a message of up to 128 MiB."""

OWN_FILES: Final = 320
"""Open files of a process without clusters and connections: libraries, its store's connections for
reads and writes, files that are read again, syncs.
"""

REDIS_CLUSTER_FILES: Final = 3
"""Of each cluster that is followed in Redis: a connection that waits, and a socket pair to end it.
"""


def make_pools(settings: ServerSettings, metrics: Metrics, sweeper: Sweeper) -> Pools:
    """What carries out calls; decisions come from gRPC's completion queue where that works."""
    queue = settings.decision_queue
    turn = Turn()
    decisions: CompletionQueue | Executor
    unlike = self_check()
    if unlike:
        LOG.warning(
            "grpcio %s is not as expected (%s): decisions come by its threads, which costs more "
            "processor time: use a version of grpcio that topospread is tested with",
            grpc.__version__,
            unlike,
        )
        decisions = Executor("decisions", DECISION_THREADS, queue)
    else:
        # Not before: it imports names of grpcio that may be missing.
        from topospread.rpc.completion_queue import CompletionQueue

        slow = Executor("decide-slowly", DECISION_THREADS, queue, turn)
        decisions = CompletionQueue(queue, slow, sweeper)
    metrics.transport(THREADS if unlike else COMPLETION_QUEUE, unlike)
    executors = (
        Executor("extender", PLANNER_THREADS, queue),
        Executor("state", STATE_THREADS, STATE_QUEUE),
        Executor("lists", LIST_THREADS, LIST_QUEUE),
        Executor("planner", PLANNER_THREADS, PLANNER_QUEUE, share=PLANNER_THREADS // 2),
        Executor("webhook", PLANNER_THREADS, PLANNER_QUEUE),
        Executor("expander", EXPANDER_THREADS, EXPANDER_QUEUE),
        Executor("streams", MAX_STREAMS, 0),
        Executor("watches", MAX_WATCHES, 0),
        Executor("other", OTHER_THREADS, OTHER_QUEUE),
    )
    return Pools(turn, decisions, {each.name: each for each in executors})


def make_replicas(
    settings: ServerSettings, store: Store, metrics: Metrics, group_budget: Budget
) -> Replicas:
    """The replicas of the clusters that are asked about."""
    return Replicas(
        store,
        ReplicaOptions(
            coalesce=settings.coalesce_interval,
            max_groups=settings.max_groups,
            max_group_idle=settings.max_group_idle,
            group_budget=group_budget,
            end_due=lambda cluster, identity: store.apply(cluster, (), identity=identity),
        ),
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
    settings: ServerSettings,
    inspector: Inspector,
    replicas: Replicas,
    store: Store,
    *,
    exposed: bool,
) -> ConstraintMonitor | None:
    """What looks at all constraints; None where nobody would see what it found."""
    chosen = settings.constraint_metrics
    if not exposed or chosen == "none":
        return None
    limit = settings.max_constraint_series
    return ConstraintMonitor(inspector, replicas, chosen, limit, store.clusters)


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
            {_state_name(state): count for state, count in seen.totals.items()},
            {_state_name(state): count for state, count in seen.omitted.items()},
            seen.age_seconds,
            [_constraint_gauges(each) for each in seen.shown],
            "" if seen.missing is None else seen.missing.value,
        )


def _state_name(state: SpreadState.ValueType) -> str:
    return SpreadState.Name(state).removeprefix("SPREAD_STATE_").lower()


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
        labels, _state_name(status.state), status.spread.skew, constraint.max_skew, status.blocked
    )


def cache_gauges(budgets: Mapping[str, Budget]) -> Iterator[CacheGauges]:
    """The gauges of the caches: how full they are."""
    for name, budget in budgets.items():
        yield CacheGauges(name, budget.size, budget.most, budget.evicted)


def make_extender(
    settings: ServerSettings,
    *,
    engine: Engine,
    placement: Places,
    unschedulable: UnschedulablePods | None,
    parts: Parts,
    metrics: Metrics,
    pools: Pools,
) -> HttpCalls | None:
    """The extender's calls; None when that is off.

    Args:
        settings: what was configured.
        engine: judges pods.
        placement: holds places.
        unschedulable: remembers pods that Filter refuses.
        parts: of the pipeline that calls pass.
        metrics: counts results.
        pools: threads that carry out calls.
    """
    if settings.extender == "off":
        return None
    service = extender.Extender(
        engine,
        placement,
        metrics,
        extender.Executors(pools.executors["extender"], pools.executors["state"], pools.turn),
        lifetime=round(settings.extender_reservation_ttl * 1000),
        unschedulable=unschedulable,
        places=settings.extender == "place",
    )
    return HttpCalls(
        service.method,
        extender.OTHER,
        http_pipeline(parts),
        max_body_bytes=settings.http_max_body_bytes,
    )


def make_webhook(
    settings: ServerSettings,
    *,
    engine: Engine,
    parts: Parts,
    pools: Pools,
) -> HttpCalls | None:
    """The validating webhook's calls; None when that is off.

    Raises:
        ConfigError: it is to refuse for a code that there is not.
    """
    if not settings.webhook:
        return None
    known = {"error", *(each.code for each in RULES.values())}
    if unknown := sorted({*settings.webhook_refuse} - known):
        raise ConfigError(
            f"--webhook-refuse: there is no code {unknown[0]!r}: write error, or codes of "
            "docs/lint.md"
        )
    threads, refused = pools.executors["webhook"], frozenset(settings.webhook_refuse)
    return HttpCalls(
        webhook.Webhook(engine, threads, pools.turn, refused).method,
        webhook.LABEL,
        http_pipeline(parts),
        max_body_bytes=min(settings.http_max_body_bytes, webhook.MAX_BYTES),
    )


def http_pipeline(parts: Parts) -> Pipeline:
    """The pipeline of calls over HTTP, whose callers are known and counted for all pages."""
    return Pipeline(replace(parts, access=AccessControl(denials=parts.access.denials)))


def within_open_files(settings: ServerSettings, url: StoreURL) -> ServerSettings:
    """The settings with as many clusters and connections as files may be open.

    Where that is fewer than was configured, it is logged what would be needed.

    Args:
        settings: what was configured.
        url: of the store.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    each = 0 if isinstance(url, SqliteURL) else REDIS_CLUSTER_FILES
    listeners = (settings.http, settings.extender_listen, settings.expander_listen)
    ports = 1 + len([address for address in listeners if address is not None])
    clusters, connections = settings.max_clusters, settings.max_connections
    others = (ports - 1) * min(HTTP_CONNECTIONS, connections)
    needed = OWN_FILES + clusters * each + connections + others
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
