"""A serving process: the composition root of all packages."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self

from topospread.api.api import Api, UseCases, Writing
from topospread.api.server_info import ServerFacts, server_limits, settings_digest
from topospread.app import factories
from topospread.app.cluster_sync import make_cluster_sync, make_pod_waking
from topospread.app.credentials import CredentialWatcher
from topospread.app.expander import (
    EXPANDER_FLAG,
    expander_credentials,
    expander_methods,
    expander_server,
)
from topospread.app.factories import make_extender, make_webhook, within_open_files
from topospread.app.http_servers import make_http_servers
from topospread.app.stop_event import StopEvent
from topospread.app.stores import open_store
from topospread.cache import BUDGETS, Budget
from topospread.calls.access import AccessControl
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts, Pipeline
from topospread.calls.sizes import MessageLimits
from topospread.checkpoints import waiting
from topospread.codec.scheduler_config import read_rules
from topospread.config.loading import changed_settings
from topospread.config.reloading import FileWatcher, Loaded
from topospread.config.settings import ALL_CLUSTERS
from topospread.config.values import Address
from topospread.errors import TopospreadError
from topospread.http.app import EXTENDER, WEBHOOK
from topospread.replica.replicas import seconds_from_now
from topospread.rpc.server import GrpcServer
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.request import ProfileRegistry
from topospread.service.inspecting.inspector import Inspector
from topospread.service.placement.places import Places
from topospread.service.state.leases import Leases
from topospread.store.observed import OPERATIONS, observed_store
from topospread.store.urls import parse_store_url
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from topospread.config.settings import ServerSettings
    from topospread.http.server import HttpServer
    from topospread.replica.replica import Replica
    from topospread.service.extender.unschedulable_pods import UnschedulablePods
    from topospread.spread.settings import ConfiguredRules
    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)

EXPANDER_GRACE: Final = 5.0
"""Seconds: cluster-autoscaler waits no longer for an answer."""

PRELOAD_SECONDS: Final = 300.0
"""How long a first load may take before the server gives up being ready for it."""

SYNCED_LOAD_SECONDS: Final = 5.0
"""The same for a cluster that has just been listed: its sync must go on, and calls wait anyway."""


class Server:
    """One serving process. A context manager: entered it serves, left it has stopped.

    Args:
        settings: what was configured.
        environ: the environment, for the store's user and password.
        store: opened already, and the server's to close; None opens the one of the settings.

    Attributes:
        address: host:port of gRPC.
        expander_address: host:port of the expander where it has one of its own; else empty.
        pools: the threads that carry out calls, by kind of call.
        grpc: the gRPC server.

    Raises:
        ConfigError: something in the settings cannot be used.
        StoreUnavailable: the store is out of reach.
    """

    def __init__(
        self,
        settings: ServerSettings,
        environ: Mapping[str, str] = os.environ,
        *,
        store: Store | None = None,
    ) -> None:
        url = parse_store_url(settings.store, environ)
        self.settings = settings = within_open_files(settings, url)
        self.version = version("topospread")
        self.metrics = Metrics(self.version, scheduler_metrics=settings.scheduler_metrics)
        groups = Budget(settings.max_group_bytes)
        self._started = time.time()
        self._ready = False
        self._stopping = False
        self._hurry = StopEvent()
        self._http_port = self._extender_port = 0
        self.expander_address = ""
        self._closing = ExitStack()
        # What is made last is closed first.
        with ExitStack() as made:
            self._rules = self._watched_rules()
            self._file_at_start = self._rules.current.value.settings
            made.callback(self._rules.close)
            self._watcher = CredentialWatcher(settings, self.metrics.file_read)
            made.callback(self._watcher.close)
            self._tracing = tracing_from_environment(self.version)
            made.callback(self._tracing.close)
            self._store = observed_store(
                store or open_store(settings.store, environ, settings.wait_replicas),
                self.metrics.store_error,
                waiting,
            )
            made.callback(self._store.close)
            self.metrics.expect_store_operations(OPERATIONS)
            sweeper = Sweeper()
            self.pools: Final = factories.make_pools(settings, self.metrics, sweeper)
            made.callback(self.pools.shutdown)
            self._parts = self._call_parts(sweeper)
            sweeper.start()
            made.callback(sweeper.close)
            self._replicas = factories.make_replicas(settings, self._store, self.metrics, groups)
            made.callback(self._replicas.close)
            self._writes = factories.make_writes(settings, self._store, self._replicas)
            self._leases = Leases(self._store, settings.max_clusters)
            self._sync = make_cluster_sync(
                settings, self._writes, self._leases, self._on_synced, self._on_standby
            )
            self._cycles = CycleCache()
            self._engine = self._make_engine()
            self._inspector = Inspector(
                self._engine, settings.max_cluster_constraints, self.pools.turn
            )
            self._monitor = factories.make_constraint_monitor(
                settings,
                self._inspector,
                self._replicas,
                self._store,
                exposed=settings.http is not None,
            )
            if self._monitor is not None:
                made.callback(self._monitor.stop)
            self._placement = Places(self._engine, self._store)
            self._unschedulable = self._unschedulable_pods()
            self.grpc: Final = self._grpc_server()
            self._web = self._web_servers(made)
            self.address = self._listen()
            self._expander = self._expander_server()
            if self._sync is not None:
                made.callback(self._sync.stop)
            if self._unschedulable is not None:
                made.callback(self._unschedulable.stop)
            self._closing = made.pop_all()
        self.metrics.watch_settings(self._settings_digest)
        self.metrics.watch_pools(self.pools.gauges)
        self.metrics.watch_connections(self._connections)
        self.metrics.watch_caches(lambda: factories.cache_gauges({**BUDGETS, "groups": groups}))
        if (sync := self._sync) is not None:
            self.metrics.watch_sync(lambda: [sync.gauges()])
        self.metrics.watch_clusters(
            lambda: [factories.gauges(replica) for replica in self._replicas.running()]
        )
        if (monitor := self._monitor) is not None:
            self.metrics.watch_constraints(lambda: factories.constraint_gauges(monitor))

    @property
    def http_address(self) -> str:
        """host:port of /metrics and health; empty when that is off."""
        http = self.settings.http
        return "" if http is None else str(Address(http.host, self._http_port))

    @property
    def extender_address(self) -> str:
        """host:port of the extender where it has one of its own; else empty."""
        own = self.settings.extender_listen
        if own is None or not self._extender_port:
            return ""
        return str(Address(own.host, self._extender_port))

    def start(self) -> None:
        """Serve, and be ready when the clusters to preload are loaded."""
        self.grpc.start()
        if self._expander is not None:
            self._expander.start()
        for server in self._web.values():
            server.start()
        self._rules.start()
        self._watcher.start()
        self._preload()
        if self._sync is not None:
            self._sync.start()
        if self._unschedulable is not None:
            self._unschedulable.start()
        if self._monitor is not None:
            self._monitor.start()
        if self._sync is None or self._has_synced():
            self._become_ready()

    def stop(self, grace: float | None = None) -> None:
        """Reject new calls, let running ones end within the grace period, release all.

        A server that was ready says first that it is not, and takes calls for --shutdown-delay:
        until balancers have noticed, what they send must not fail.
        """
        was_ready = self._ready
        self._ready, self._stopping = False, True
        if was_ready and self.settings.shutdown_delay:
            self.grpc.health.set_not_serving()
            if self._expander is not None:
                self._expander.health.set_not_serving()
            self._hurry.wait(self.settings.shutdown_delay)
        grace = self.settings.shutdown_grace_period if grace is None else grace
        with self._closing:
            if self._expander is not None:
                self._expander.stop(min(grace, EXPANDER_GRACE))
            self.grpc.stop(grace)

    def force_stop(self) -> None:
        """Cancel the calls that stop() waits for in another thread."""
        self._hurry.set()
        self.grpc.cancel()
        if self._expander is not None:
            self._expander.cancel()

    def reload(self) -> bool:
        """Read the watched files again; returns whether their content is in force."""
        kept = self._watcher.reload()
        return self._rules.reload() and kept

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether calls should come here, and if not, the reasons."""
        if self._stopping:
            return False, ("stopping",)
        if not self._ready:
            unsynced_kinds = () if self._sync is None else self._sync.unsynced_kinds
            return False, [f"{name} of the cluster not listed yet" for name in unsynced_kinds] or (
                "loading",
            )
        if self.settings.unready_when_stale:
            stale = [replica for replica in self._replicas.running() if replica.stale_for]
            if stale:
                return False, [_staleness(replica) for replica in stale]
        return True, ()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(0.0)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------ parts

    def _watched_rules(self) -> FileWatcher[ConfiguredRules]:
        settings = self.settings
        name = settings.config or "configuration"
        watched = FileWatcher(
            settings.config,
            lambda text: read_rules(text, name, settings.feature_gates),
            on_reload=self._rules_changed,
        )
        self._profiles = ProfileRegistry(watched.current.value)
        self._expect_profiles(watched.current.value)
        return watched

    def _rules_changed(self, loaded: Loaded[ConfiguredRules]) -> None:
        self.metrics.config_reloaded(loaded.generation, accepted=not loaded.error)
        if not loaded.error:
            self._profiles.replace(loaded.value)
            self._expect_profiles(loaded.value)
            changed = changed_settings(
                self._file_at_start, loaded.value.settings, self.settings.overriding
            )
            if changed:
                LOG.warning("settings of the file wait for a restart: %s", ", ".join(changed))

    def _settings_digest(self) -> str:
        return settings_digest(self.settings, self._rules.current.value)

    def _expect_profiles(self, rules: ConfiguredRules) -> None:
        for profile in rules.profiles:
            self.metrics.expect_profile(profile)

    def _config_state(self) -> tuple[int, str]:
        loaded = self._rules.current
        return loaded.generation, loaded.error

    def _make_engine(self) -> Engine:
        settings = self.settings
        return Engine(
            self._replicas,
            self._store,
            self._profiles,
            self._cycles,
            factories.make_limits(settings),
            remembers=settings.cache_results,
        )

    def _unschedulable_pods(self) -> UnschedulablePods | None:
        cluster, metrics = self.settings.sync_cluster, self.metrics
        unschedulable = make_pod_waking(
            self.settings, self._engine, lambda result: metrics.wake(cluster, result)
        )
        if unschedulable is not None:
            metrics.watch_refused(cluster, unschedulable.__len__)
        return unschedulable

    def _web_servers(self, made: ExitStack) -> Mapping[str, HttpServer]:
        """The HTTP servers: metrics and health, calls beside them or on a port of their own."""
        extender = make_extender(
            self.settings,
            engine=self._engine,
            placement=self._placement,
            unschedulable=self._unschedulable,
            parts=self._parts,
            metrics=self.metrics,
            pools=self.pools,
        )
        webhook = make_webhook(
            self.settings, engine=self._engine, parts=self._parts, pools=self.pools
        )
        served = {EXTENDER: extender, WEBHOOK: webhook}
        servers = make_http_servers(
            self.settings,
            self.version,
            made,
            metrics=self.metrics.expose,
            ready=self.ready,
            watcher=self._watcher,
            on_dropped=self.metrics.http_dropped,
            calls={path: calls for path, calls in served.items() if calls is not None},
        )
        if servers.pages is not None:
            self._http_port = servers.pages.port
        if servers.calls is not None:
            self._extender_port = servers.calls.port
        named = {"http": servers.pages, "extender": servers.calls}
        return {name: server for name, server in named.items() if server is not None}

    def _connections(self) -> dict[str, int]:
        counts = {name: server.connections for name, server in self._web.items()}
        for name, served in (("grpc", self.grpc), ("expander", self._expander)):
            if served is not None and (count := served.connections) is not None:
                counts[name] = count
        return counts

    def _call_parts(self, sweeper: Sweeper) -> Parts:
        settings, watcher = self.settings, self._watcher
        return Parts(
            self._tracing,
            self.metrics,
            AccessControl(watcher.authenticator, watcher.rate_limiter, watcher.denials),
            MessageLimits(
                request=settings.max_request_bytes,
                decision=settings.max_decision_bytes,
                response=settings.max_response_bytes,
            ),
            MemoryGuard(settings.max_held_bytes),
            sweeper,
        )

    def _api(self) -> Api:
        settings = self.settings
        facts = ServerFacts(
            self.version,
            self._store.address,
            self._started,
            factories.features(settings),
            server_limits(settings),
            self._config_state,
            self._settings_digest,
        )
        return Api(
            UseCases(
                engine=self._engine,
                store=self._store,
                metrics=self.metrics,
                inspector=lambda: self._inspector,
                facts=lambda: facts,
                writing=Writing(
                    placement=self._placement,
                    writes=self._writes,
                    leases=self._leases,
                    metrics=self.metrics,
                ),
            )
        )

    def _grpc_server(self) -> GrpcServer:
        settings = self.settings
        methods = {**self._api().methods, **expander_methods(settings, self._engine)}
        return GrpcServer(
            Pipeline(self._parts), methods, self.pools, factories.grpc_options(settings)
        )

    def _listen(self) -> str:
        """Bind gRPC's address; returns it, with the port that 0 became."""
        settings = self.settings
        credentials = factories.grpc_credentials(settings, self._watcher)
        port = self.grpc.listen(settings.listen, credentials)
        return str(Address(settings.listen.host, port))

    def _expander_server(self) -> GrpcServer | None:
        address = self.settings.expander_listen
        if address is None:
            return None
        server = expander_server(
            self.settings,
            self._engine,
            parts=self._parts,
            pools=self.pools,
        )
        credentials = expander_credentials(self.settings, self._watcher)
        port = server.listen(address, credentials, EXPANDER_FLAG)
        self.expander_address = str(Address(address.host, port))
        return server

    def _has_synced(self) -> bool:
        """Whether the store has a full list of each kind already, maybe an older one."""
        try:
            return self._store.head(self.settings.sync_cluster).complete
        except TopospreadError as error:
            LOG.warning(
                "cannot check whether cluster %s is synced: %s", self.settings.sync_cluster, error
            )
            return False

    def _on_synced(self) -> None:
        """The cluster was listed: load it, and become ready."""
        self._load((self.settings.sync_cluster,), SYNCED_LOAD_SECONDS)
        self._become_ready()

    def _on_standby(self) -> None:
        """Another process syncs the cluster: become ready if it has listed it."""
        if not self._ready and self._has_synced():
            self._on_synced()

    def _become_ready(self) -> None:
        if not self._stopping:
            self.grpc.health.set_serving()
            if self._expander is not None:
                self._expander.health.set_serving()
            self._ready = True

    def _preload(self) -> None:
        """Load what is configured; a cluster that cannot be loaded now is loaded at first use."""
        chosen: Iterable[str] = self.settings.preload
        try:
            if ALL_CLUSTERS in chosen:
                chosen = self._store.clusters()[: self.settings.max_preload]
        except TopospreadError as error:
            LOG.warning("cannot list the clusters to preload: %s", error)
        else:
            self._load(chosen)

    def _load(self, clusters: Iterable[str], seconds: float = PRELOAD_SECONDS) -> None:
        try:
            self._replicas.preload(tuple(clusters), seconds_from_now(seconds))
        except TopospreadError as error:
            LOG.warning("not all clusters are loaded yet: %s", error)


def _staleness(replica: Replica) -> str:
    """Why a cluster's state grows old, for /readyz."""
    lost = replica.identity_changed
    return f"{replica.cluster}: " + ("store changed" if lost else "store out of reach")
