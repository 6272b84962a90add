"""The parts of a server, put together: all that answers, but for what listens and what runs it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Final

from topospread.api.api import ApiMethods, UseCases, Writing
from topospread.api.server_info import ServerFacts, server_limits
from topospread.app.capacity import make_pools, within_open_files
from topospread.app.cluster_sync import make_cluster_sync, make_pod_waking
from topospread.app.files import CredentialWatcher, WatchedConfiguration
from topospread.app.stores import open_store
from topospread.cache import Budget
from topospread.calls.access import AccessControl
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts
from topospread.calls.sizes import MessageLimits
from topospread.checkpoints import waiting
from topospread.codec.scheduler_config import configured_version
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Freshness
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.engine import Engine
from topospread.service.inspecting.inspector import Inspector
from topospread.service.inspecting.monitoring import ConstraintMonitor
from topospread.service.placement.places import Places
from topospread.service.state.write import StateWriter, WriteLimits
from topospread.spread.settings import known_version, known_versions
from topospread.store.observed import OPERATIONS, observed_store
from topospread.store.urls import parse_store_url
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from topospread.config.settings import ServerSettings
    from topospread.kubernetes.cluster_sync import ClusterSync
    from topospread.rpc.server import Pools
    from topospread.service.extender.unschedulable_pods import UnschedulablePods
    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What a server is made of.

    Attributes:
        settings: what was configured, as far as its open files allow.
        files: the access file and certificates.
        group_budget: of the counts of selectors.
        calls: what all calls pass.
        pools: the threads that carry out calls, by kind of call.
        monitor: looks at all constraints; None where nobody would see what it found.
        sync: of a cluster into the store; None when that is off.
        unschedulable: pods that the extender wakes; None when that is off.
    """

    settings: ServerSettings
    version: str
    metrics: Metrics
    configuration: WatchedConfiguration
    files: CredentialWatcher
    store: Store
    pools: Pools
    calls: Parts
    group_budget: Budget
    replicas: Replicas
    engine: Engine
    inspector: Inspector
    placement: Places
    api: ApiMethods
    monitor: ConstraintMonitor | None
    sync: ClusterSync | None
    unschedulable: UnschedulablePods | None


def build(
    settings: ServerSettings,
    environ: Mapping[str, str],
    made: ExitStack,
    *,
    store: Store | None = None,
    on_synced: Callable[[], None],
    on_standby: Callable[[], None],
) -> ServerParts:
    """Make the parts of a server; none of them runs yet.

    They are closed by `made`, what was made last first, also a store that is given. The cluster to
    sync calls back when it was listed for the first time, and when another process syncs it.

    Raises:
        ConfigError: something in the settings cannot be used.
        StoreUnavailable: the store is out of reach.
    """
    settings = within_open_files(settings, parse_store_url(settings.store, environ))
    version, group_budget = version_of("topospread"), Budget(settings.max_group_bytes)
    metrics = Metrics(version, scheduler_metrics=settings.scheduler_metrics)
    configuration = WatchedConfiguration(settings, metrics)
    made.callback(configuration.close)
    files = CredentialWatcher(settings, metrics.file_read)
    made.callback(files.close)
    tracing = tracing_from_environment(version)
    made.callback(tracing.close)
    store = observed_store(
        store or open_store(settings.store, environ, settings.wait_replicas),
        metrics.store_error,
        waiting,
    )
    made.callback(store.close)
    metrics.expect_store_operations(OPERATIONS)
    sweeper = Sweeper()
    pools = make_pools(settings, metrics, sweeper)
    made.callback(pools.shutdown)
    sweeper.start()
    made.callback(sweeper.close)
    replicas = _replicas(settings, store, metrics, group_budget)
    made.callback(replicas.close)
    engine = Engine(
        replicas,
        store,
        configuration.profiles,
        CycleCache(),
        remembers=settings.cache_results,
    )
    inspector = Inspector(engine, settings.max_cluster_constraints, pools.turn)
    monitor = _constraint_monitor(settings, inspector, replicas, store)
    if monitor is not None:
        made.callback(monitor.stop)
    placement = Places(engine, store)
    writes = StateWriter(store, replicas, WriteLimits(clusters=settings.max_clusters))
    facts = ServerFacts(
        version,
        store.address,
        time.time(),
        features(settings),
        server_limits(settings),
        configuration.state,
        configuration.digest,
    )
    return ServerParts(
        settings=settings,
        version=version,
        metrics=metrics,
        configuration=configuration,
        files=files,
        store=store,
        pools=pools,
        calls=Parts(
            tracing,
            metrics,
            AccessControl(files.authenticator, files.rate_limiter, files.denials),
            MessageLimits(settings.max_request_bytes, settings.max_decision_bytes),
            MemoryGuard(settings.max_held_bytes),
            sweeper,
        ),
        group_budget=group_budget,
        replicas=replicas,
        engine=engine,
        inspector=inspector,
        placement=placement,
        api=ApiMethods(
            UseCases(
                engine=engine,
                store=store,
                metrics=metrics,
                inspector=lambda: inspector,
                facts=lambda: facts,
                writing=Writing(placement=placement, writes=writes, metrics=metrics),
            )
        ),
        monitor=monitor,
        sync=make_cluster_sync(settings, writes, store, on_synced, on_standby),
        unschedulable=make_pod_waking(
            settings, engine, lambda result: metrics.wake(settings.sync_cluster, result)
        ),
    )


def features(settings: ServerSettings) -> list[str]:
    """The features of the server beside topospread.v1, as docs/api.md lists them."""
    over_http = bool(settings.http or settings.extender_listen)
    served = {
        "expander": True,
        "extender": settings.extender != "off" and over_http,
        "reflection": settings.reflection,
        "sync": settings.sync,
        "webhook": settings.webhook and over_http,
    }
    return [name for name, on in served.items() if on]


def _replicas(
    settings: ServerSettings, store: Store, metrics: Metrics, group_budget: Budget
) -> Replicas:
    version = configured_version(settings.kubernetes_version)
    if (known := known_version(version)) != version:
        LOG.warning(
            "Kubernetes %s is not known here (%s are): clusters that report none are judged by the"
            " rules of %s",
            version,
            known_versions(),
            known,
        )
    return Replicas(
        store,
        ReplicaOptions(
            version=known,
            max_group_idle=settings.max_group_idle,
            group_budget=group_budget,
            end_due=lambda cluster, identity: store.apply(cluster, (), identity=identity),
        ),
        on_waited={mode: metrics.consistency(mode.name.lower()).observe for mode in Freshness},
        max_clusters=settings.max_clusters,
    )


def _constraint_monitor(
    settings: ServerSettings, inspector: Inspector, replicas: Replicas, store: Store
) -> ConstraintMonitor | None:
    chosen = settings.constraint_metrics
    if settings.http is None or chosen == "none":
        return None
    limit = settings.max_constraint_series
    return ConstraintMonitor(inspector, replicas, chosen, limit, store.clusters)
