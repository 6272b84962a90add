"""What /metrics shows of a server's parts each time that it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.cache import BUDGETS
from topospread.telemetry.families import (
    CacheGauges,
    ClusterConstraints,
    ClusterGauges,
    ConstraintGauges,
    cache_families,
    constraint_families,
    pool_families,
    sync_families,
)
from topospread.telemetry.metrics import settings_families
from topospread_proto.v1.inspector_service_pb2 import SpreadState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.app.parts import ServerParts
    from topospread.replica.replica import Replica
    from topospread.service.inspecting.monitoring import ConstraintMonitor
    from topospread.service.inspecting.statuses import ConstraintStatus


def watch_parts(parts: ServerParts) -> None:
    """Show the gauges of a server's parts."""
    metrics, budgets = parts.metrics, {**BUDGETS, "groups": parts.group_budget}
    metrics.watch(settings_families, parts.configuration.digest)
    metrics.watch(pool_families, parts.pools.gauges)
    metrics.watch(
        cache_families,
        lambda: [
            CacheGauges(name, budget.size, budget.most, budget.evicted)
            for name, budget in budgets.items()
        ],
    )
    metrics.watch_clusters(lambda: [_cluster(replica) for replica in parts.replicas.running()])
    if (sync := parts.sync) is not None:
        metrics.watch(sync_families, lambda: [sync.gauges()])
    if (monitor := parts.monitor) is not None:
        metrics.watch(constraint_families, lambda: _constraints(monitor))
    if (unschedulable := parts.unschedulable) is not None:
        metrics.watch_refused(parts.settings.sync_cluster, unschedulable.__len__)


def _cluster(replica: Replica) -> ClusterGauges:
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


def _constraints(monitor: ConstraintMonitor) -> Iterator[ClusterConstraints]:
    for seen in monitor.constraints():
        yield ClusterConstraints(
            seen.cluster,
            {_state_name(state): count for state, count in seen.totals.items()},
            {_state_name(state): count for state, count in seen.omitted.items()},
            seen.age_seconds,
            [_constraint(each) for each in seen.shown],
            "" if seen.missing is None else seen.missing.value,
        )


def _state_name(state: SpreadState.ValueType) -> str:
    return SpreadState.Name(state).removeprefix("SPREAD_STATE_").lower()


def _constraint(status: ConstraintStatus) -> ConstraintGauges:
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
