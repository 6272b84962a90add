"""Makes the parts of a server out of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.bounds import NODES
from topospread.replica.replica import Replica, ReplicaOptions
from topospread.replica.replicas import Freshness, Replicas
from topospread.service.engine import Limits
from topospread.service.write import WriteLimits, Writes
from topospread.telemetry.families import CacheGauges, ClusterGauges
from topospread.transports.grpc.credentials import Credentials, credentials
from topospread.transports.grpc.direct import DirectCalls, supported
from topospread.transports.grpc.executor import BoundedExecutor, StreamExecutor
from topospread.transports.grpc.pool import lend_place
from topospread.transports.grpc.server import (
    OTHER_AWAY,
    OTHER_QUEUE,
    OTHER_THREADS,
    Pools,
    ServerOptions,
)
from topospread_proto.v1.server_service_pb2 import ServerLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.app.doors import Doors
    from topospread.bounded import Budgets
    from topospread.config.settings import ServerSettings
    from topospread.store.api import Store
    from topospread.telemetry.metrics import Metrics


EXPANDER_THREADS: Final = 2
"""Calls of autoscalers at once: each has one under way, with a message of up to 128 MiB."""

EXPANDER_QUEUE: Final = 2

EXTENDER_THREADS: Final = 2
"""kube-scheduler asks for one pod after the other; a second thread is for a second scheduler."""


def make_pools(settings: ServerSettings) -> Pools:
    """The threads that carry out calls."""
    waiting = settings.max_waiting
    decisions = DirectCalls if settings.direct_calls and supported() else BoundedExecutor
    deciding = (settings.decision_threads, settings.decision_queue, waiting)
    return Pools(
        decisions=decisions("decide", *deciding),
        extender=BoundedExecutor("extend", EXTENDER_THREADS, *deciding[1:]),
        state=BoundedExecutor("state", settings.state_threads, settings.state_queue, waiting),
        planner=BoundedExecutor(
            "planner", settings.planner_threads, settings.planner_queue, waiting
        ),
        expander=BoundedExecutor("expander", EXPANDER_THREADS, EXPANDER_QUEUE, waiting),
        streams=StreamExecutor("stream", settings.stream_threads, waiting),
        other=BoundedExecutor("other", OTHER_THREADS, OTHER_QUEUE, waiting=0, away=OTHER_AWAY),
    )


def make_replicas(
    settings: ServerSettings, store: Store, metrics: Metrics, budgets: Budgets
) -> Replicas:
    """The replicas; calls that wait for one lend their threads."""
    return Replicas(
        store,
        ReplicaOptions(
            coalesce=settings.coalesce,
            max_groups=settings.max_groups,
            max_group_idle=settings.max_group_idle,
            budgets=budgets,
        ),
        entering_wait=lend_place,
        waited={mode: metrics.consistency(mode.name.lower()).observe for mode in Freshness},
        most=settings.max_clusters,
    )


def make_writes(settings: ServerSettings, store: Store, replicas: Replicas) -> Writes:
    """What writes to the store."""
    limits = WriteLimits(
        batch=settings.max_batch_objects,
        replace=settings.max_replace_objects,
        clusters=settings.max_clusters,
    )
    return Writes(store, replicas, limits)


def make_limits(settings: ServerSettings) -> Limits:
    """What one request may carry."""
    return Limits(
        groups=settings.max_groups,
        constraints=settings.max_constraints,
        terms=settings.max_selector_terms,
        batch_pods=settings.max_batch_pods,
        what_ifs=settings.max_what_ifs,
        simulated_pods=settings.max_simulated_pods,
        simulated_nodes=settings.max_simulated_nodes,
    )


def features(settings: ServerSettings) -> list[str]:
    """What the server does beside topospread.v1, by name, as docs/api.md lists them."""
    served = {
        "expander": True,
        "extender": settings.extender != "off" and bool(settings.http or settings.extender_listen),
        "reflection": settings.reflection,
        "sync": settings.sync,
    }
    return [name for name, on in served.items() if on]


def limits(settings: ServerSettings) -> ServerLimits:
    """What one request may carry, as callers are told."""
    return ServerLimits(
        max_batch_objects=settings.max_batch_objects,
        max_batch_pods=settings.max_batch_pods,
        max_what_if_pods=settings.max_what_ifs,
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


def grpc_options(settings: ServerSettings, *, reuse_port: bool) -> ServerOptions:
    """How gRPC itself behaves."""
    return ServerOptions(
        max_request_bytes=settings.max_request_bytes,
        max_response_bytes=settings.max_response_bytes,
        max_connection_age=settings.max_connection_age,
        reflection=settings.reflection,
        reuse_port=reuse_port,
        max_connections=settings.max_connections,
        max_calls_per_connection=settings.max_calls_per_connection,
    )


def grpc_credentials(settings: ServerSettings, doors: Doors) -> Credentials | None:
    """TLS of the gRPC listener; None serves plain text."""
    return credentials(doors.current_pem) if settings.tls else None


def gauges(replica: Replica) -> ClusterGauges:
    """How a cluster is followed, for metrics."""
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


def cache_gauges(budgets: Budgets) -> Iterator[CacheGauges]:
    """How full the caches are, for metrics."""
    for name, budget in budgets.items():
        yield CacheGauges(name, budget.size, budget.most, budget.evicted)
