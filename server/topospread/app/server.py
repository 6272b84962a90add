"""One serving process: all rooms put together."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self

from topospread.app import parts
from topospread.app.doors import Doors
from topospread.app.expander import (
    FLAG as EXPANDER_FLAG,
)
from topospread.app.expander import (
    expander_credentials,
    expander_methods,
    expander_server,
)
from topospread.app.extender import make_extender
from topospread.app.feeding import FED_KINDS, make_feed, make_refused
from topospread.app.files import within_open_files
from topospread.app.ports import check_free
from topospread.app.shared_settings import SharedSettings
from topospread.app.stores import open_store
from topospread.app.web import make_extender_http, make_http
from topospread.bounded import CLUSTER, PROCESS, budgets
from topospread.codec.scheduler_config import ConfiguredRules, read_rules
from topospread.config.following import ALL_CLUSTERS
from topospread.config.reloading import Loaded, Reloading
from topospread.config.values import Address
from topospread.errors import TopospreadError
from topospread.replica.replicas import seconds_from_now
from topospread.service.cycles import Cycles
from topospread.service.engine import Engine
from topospread.service.holding import Holding
from topospread.service.leases import Leases
from topospread.service.rank import Ranks
from topospread.service.read import Reads
from topospread.service.rebalancing.plan import Rebalances
from topospread.service.rules_book import RulesBook
from topospread.service.scenario import Scenarios
from topospread.store.observed import ObservedStore
from topospread.store.urls import parse_store_url
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.metrics import Metrics
from topospread.transports.expander import best_options
from topospread.transports.grpc import (
    cluster_state,
    decision,
    lease,
    placement,
    rank,
    server_info,
)
from topospread.transports.grpc.auditing import audited
from topospread.transports.grpc.budget import MemoryBudget
from topospread.transports.grpc.cluster_state import ClusterStateServicer
from topospread.transports.grpc.decision import DecisionServicer
from topospread.transports.grpc.explain import ExplainServicer
from topospread.transports.grpc.frame import Frame
from topospread.transports.grpc.lease import LeaseServicer
from topospread.transports.grpc.observe import Observer
from topospread.transports.grpc.packing import RequestBytes
from topospread.transports.grpc.placement import PlacementServicer
from topospread.transports.grpc.pool import away, lend_place
from topospread.transports.grpc.rank import RankServicer
from topospread.transports.grpc.rebalance import RebalanceServicer
from topospread.transports.grpc.server import GrpcServer
from topospread.transports.grpc.server_info import ServerFacts, ServerInfoServicer
from topospread.transports.grpc.simulate import SimulateServicer
from topospread.transports.grpc.unoffered import completed
from topospread.transports.grpc.untaken import Untaken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from topospread.config.settings import ServerSettings
    from topospread.service.refused import RefusedPods
    from topospread.store.api import Store
    from topospread.transports.http.server import HttpServer

LOG: Final = logging.getLogger(__name__)

EXPANDER_GRACE: Final = 5.0
"""Seconds: cluster-autoscaler waits no longer for an answer."""

PRELOAD_SECONDS: Final = 300.0
"""How long a first load may take before the server gives up being ready for it."""

FED_SECONDS: Final = 5.0
"""The same for a cluster that has just been listed: its feed must go on, and calls wait anyway."""


class Server:
    """One serving process. A context manager: entered it serves, left it has stopped.

    Args:
        settings: what was configured.
        environ: the environment, for the store's user and password.
        reuse_port: share gRPC's port with other processes (one of several workers).
        store: opened already, and the server's to close; None opens the one of the settings.

    Attributes:
        address: host:port of gRPC.
        expander_address: host:port of the expander where it has one of its own; else empty.

    Raises:
        ConfigError: something in the settings cannot be used.
        StoreUnavailable: the store is out of reach.
    """

    def __init__(
        self,
        settings: ServerSettings,
        environ: Mapping[str, str] = os.environ,
        *,
        reuse_port: bool = False,
        store: Store | None = None,
    ) -> None:
        url = parse_store_url(settings.store, environ)
        self.settings = settings = within_open_files(settings, url)
        self.version = version("topospread")
        self.metrics = Metrics(self.version, scheduler_metrics=settings.scheduler_metrics)
        self._budgets = budgets(PROCESS, settings.max_cache_bytes) | budgets(
            CLUSTER, settings.max_cluster_cache_bytes
        )
        self._reuse_port = reuse_port
        self._started = time.time()
        self._ready = False
        self._stopping = False
        self._http_port = self._extender_port = 0
        self.expander_address = ""
        self._closing = ExitStack()
        # What is made last is closed first.
        with ExitStack() as made:
            self._rules = self._watched_rules()
            made.callback(self._rules.close)
            self._doors = Doors(settings, self.metrics.file_read)
            made.callback(self._doors.close)
            self._tracing = tracing_from_environment(self.version)
            made.callback(self._tracing.close)
            self._store = ObservedStore(
                store or open_store(settings.store, environ, settings.wait_replicas),
                self.metrics.store_error,
                away,
            )
            made.callback(self._store.close)
            self._shared = SharedSettings(self._store, settings, self._rules.current.value)
            made.callback(self._shared.stop)
            self._pools = parts.make_pools(settings)
            made.callback(self._pools.shutdown)
            self._replicas = parts.make_replicas(settings, self._store, self.metrics, self._budgets)
            made.callback(self._replicas.close)
            self._writes = parts.make_writes(settings, self._store, self._replicas)
            self._leases = Leases(self._store)
            self._feed = make_feed(
                settings, self._writes, self._leases, self._note_fed, self._stand_by
            )
            self._cycles = Cycles(
                settings.cycle_ttl, settings.max_cycles, budget=self._budgets["cycles"]
            )
            made.callback(self._cycles.close)
            self._engine = self._make_engine()
            self._holding = Holding(self._engine, self._store, entering_wait=lend_place)
            self._refused = self._refused_pods()
            self._grpc = self._grpc_server()
            self._web = self._web_servers(made)
            if not reuse_port:
                check_free(settings.listen)
            port = self._grpc.listen(
                str(settings.listen), parts.grpc_credentials(settings, self._doors)
            )
            self.address = str(Address(settings.listen.host, port))
            self._expander = self._expander_server()
            if self._feed is not None:
                made.callback(self._feed.stop)
            if self._refused is not None:
                made.callback(self._refused.stop)
            self._closing = made.pop_all()
        self.metrics.watch_settings(lambda: (self._shared.digest, bool(self._shared.differing)))
        self.metrics.watch_pools(self._pools.gauges)
        self.metrics.watch_caches(lambda: parts.cache_gauges(self._budgets))
        if (own := self._feed) is not None:
            self.metrics.watch_feeds(lambda: [own.gauges()])
        self.metrics.watch_clusters(
            lambda: [parts.gauges(replica) for replica in self._replicas.running()]
        )

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
        """Serve, and be ready when the clusters are loaded that are to be there from the start."""
        self._grpc.start()
        if self._expander is not None:
            self._expander.start()
        for server in self._web:
            server.start()
        self._rules.start()
        self._shared.start()
        self._doors.start()
        self._preload()
        if self._feed is not None:
            self._feed.start()
        if self._refused is not None:
            self._refused.start()
        if self._feed is None or self._was_fed():
            self._begin_answering()

    def stop(self, grace: float | None = None) -> None:
        """Turn away new calls, let running ones end within the grace time, release all."""
        self._ready, self._stopping = False, True
        grace = self.settings.grace if grace is None else grace
        with self._closing:
            if self._expander is not None:
                self._expander.stop(min(grace, EXPANDER_GRACE))
            self._grpc.stop(grace)

    def hurry(self) -> None:
        """Cancel the calls that stop() waits for in another thread."""
        self._grpc.cancel()
        if self._expander is not None:
            self._expander.cancel()

    def reload(self) -> bool:
        """Read the files that may change again; returns whether what they hold is in force."""
        kept = self._doors.reload()
        return self._rules.reload() and kept

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether calls are welcome, and if not, why."""
        if self._stopping:
            return False, ("stopping",)
        if not self._ready:
            lacking = () if self._feed is None else self._feed.lacking
            return False, [f"{name} of the cluster not listed yet" for name in lacking] or (
                "loading",
            )
        if self.settings.unready_when_stale:
            stale = [replica for replica in self._replicas.running() if replica.stale_for]
            if stale:
                return False, [f"{replica.cluster}: store out of reach" for replica in stale]
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

    def _watched_rules(self) -> Reloading[ConfiguredRules]:
        settings = self.settings
        name = settings.config or "configuration"
        watched = Reloading(
            settings.config,
            lambda text: read_rules(text, name, settings.feature_gates),
            on_reload=self._rules_changed,
        )
        self._book = RulesBook(watched.current.value)
        return watched

    def _rules_changed(self, loaded: Loaded[ConfiguredRules]) -> None:
        self.metrics.config_reloaded(loaded.generation, accepted=not loaded.error)
        if not loaded.error:
            self._book.replace(loaded.value)
            self._shared.replace(loaded.value)

    def _config_state(self) -> tuple[int, str]:
        loaded = self._rules.current
        return loaded.generation, loaded.error

    def _make_engine(self) -> Engine:
        settings = self.settings
        return Engine(
            self._replicas,
            self._store,
            self._book,
            self._cycles,
            parts.make_limits(settings),
            remembers=settings.remember_results,
            budgets=self._budgets,
        )

    def _refused_pods(self) -> RefusedPods | None:
        cluster, metrics = self.settings.sync_cluster, self.metrics
        refused = make_refused(
            self.settings, self._engine, lambda result: metrics.wake(cluster, result)
        )
        if refused is not None:
            metrics.watch_refused(cluster, refused.__len__)
        return refused

    def _web_servers(self, made: ExitStack) -> Sequence[HttpServer]:
        """Those of HTTP: metrics and health, the extender beside them or by itself."""
        extender = make_extender(
            self.settings,
            (self._engine, self._holding),
            self._refused,
            (self._tracing, self.metrics),
            self._pools,
        )
        ended = self.metrics.http_ended
        pages = make_http(
            *(self.settings, self.version, self.metrics.expose, self.ready, self._doors),
            *(ended, extender),
        )
        if pages is not None:
            made.callback(pages.stop)
            self._http_port = pages.port
        own = make_extender_http(
            self.settings, extender, self._doors, ended, reuse_port=self._reuse_port
        )
        if own is not None:
            made.callback(own.stop)
            self._extender_port = own.port
        return [server for server in (pages, own) if server is not None]

    def _grpc_server(self) -> GrpcServer:
        settings = self.settings
        facts = ServerFacts(
            *(self.version, self._store.address, self._started),
            parts.features(settings),
            parts.limits(settings),
            self._config_state,
            lambda: (self._shared.digest, self._shared.differing),
        )
        reads = Reads(self._store, self._replicas)
        lists = MemoryBudget(settings.max_replace_bytes, "--max-replace-bytes")
        state = ClusterStateServicer(reads, self._writes, lists)
        observer = Observer(self.metrics)
        decisions = DecisionServicer(self._engine, observer)
        explains = ExplainServicer(self._engine, observer)
        places = PlacementServicer(self._holding, self.metrics)
        ranks = RankServicer(Ranks(self._store, self._replicas, self._book))
        simulations = SimulateServicer(Scenarios(self._engine, self._store))
        rebalances = RebalanceServicer(Rebalances(self._store, self._engine))
        offered = {
            decision.SERVICE: decisions.methods() | explains.methods(),
            cluster_state.SERVICE: state.methods(),
            placement.SERVICE: places.methods(),
            rank.SERVICE: ranks.methods() | simulations.methods() | rebalances.methods(),
            lease.SERVICE: LeaseServicer(self._leases).methods(),
            server_info.SERVICE: ServerInfoServicer(facts).methods(),
        }
        expander = {best_options.SERVICE: expander_methods(settings, self._engine)}
        doors = self._doors
        return GrpcServer(
            Frame(
                self._tracing,
                self.metrics,
                doors.gate,
                doors.rates,
                doors.refusals,
                RequestBytes(
                    settings.max_request_bytes,
                    settings.max_decision_bytes,
                    settings.max_response_bytes,
                ),
                Untaken(2 * settings.max_response_bytes, settings.max_response_bytes),
            ),
            completed(audited(offered), self.version) | expander,
            self._pools,
            parts.grpc_options(settings, reuse_port=self._reuse_port),
        )

    def _expander_server(self) -> GrpcServer | None:
        """The expander by itself, where it has an address of its own."""
        address = self.settings.expander_listen
        if address is None:
            return None
        server = expander_server(
            self.settings,
            self._engine,
            (self._tracing, self.metrics),
            self._pools,
            reuse_port=self._reuse_port,
        )
        if not self._reuse_port:
            check_free(address, EXPANDER_FLAG)
        port = server.listen(
            str(address), expander_credentials(self.settings, self._doors), EXPANDER_FLAG
        )
        self.expander_address = str(Address(address.host, port))
        return server

    def _was_fed(self) -> bool:
        """Whether the store has a full list of each kind already, if an older one."""
        try:
            return set(self._store.head(self.settings.sync_cluster).vouched) >= FED_KINDS
        except TopospreadError as error:
            LOG.warning("whether cluster %s is there: %s", self.settings.sync_cluster, error)
            return False

    def _note_fed(self) -> None:
        """The cluster was listed: load it, and answer."""
        self._load((self.settings.sync_cluster,), FED_SECONDS)
        self._begin_answering()

    def _stand_by(self) -> None:
        """Another process feeds the cluster: what it listed is there for all."""
        if not self._ready and self._was_fed():
            self._note_fed()

    def _begin_answering(self) -> None:
        if not self._stopping:
            self._grpc.ready()
            if self._expander is not None:
                self._expander.ready()
            self._ready = True

    def _preload(self) -> None:
        """Load what is configured; a cluster that cannot be loaded now is loaded at first use."""
        chosen: Iterable[str] = self.settings.preload
        try:
            if ALL_CLUSTERS in chosen:
                chosen = self._store.clusters()[: self.settings.max_preload]
        except TopospreadError as error:
            LOG.warning("which clusters there are: %s", error)
        else:
            self._load(chosen)

    def _load(self, clusters: Iterable[str], seconds: float = PRELOAD_SECONDS) -> None:
        try:
            self._replicas.preload(tuple(clusters), seconds_from_now(seconds))
        except TopospreadError as error:
            LOG.warning("not all clusters are loaded yet: %s", error)
