"""The composition root: the only file that names concrete backends and puts the rooms together."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self

from topospread.codec.scheduler_config import ConfiguredRules, read_rules
from topospread.config.reloading import Loaded, Reloading
from topospread.config.settings import ALL_CLUSTERS, ServerSettings
from topospread.errors import ConfigError, TopospreadError
from topospread.replica.replica import Replica, ReplicaOptions
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.service.cycles import Cycles
from topospread.service.engine import Engine, Limits
from topospread.service.read import Reads
from topospread.service.rules_book import RulesBook
from topospread.service.write import Writes
from topospread.store.redis.open import open_store as open_redis
from topospread.store.sqlite.open import open_store as open_sqlite
from topospread.store.urls import RedisURL, SqliteURL, parse_store_url
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.families import ClusterGauges
from topospread.telemetry.logs import start_logging
from topospread.telemetry.metrics import Metrics
from topospread.transports.grpc import cluster_state, spread_engine
from topospread.transports.grpc.calls import Frame
from topospread.transports.grpc.cluster_state import ClusterStateServicer, ServerFacts
from topospread.transports.grpc.executor import BoundedExecutor, lend_place
from topospread.transports.grpc.observe import Observer
from topospread.transports.grpc.server import (
    OTHER_QUEUE,
    OTHER_THREADS,
    Credentials,
    GrpcServer,
    Pools,
    ServerOptions,
)
from topospread.transports.grpc.spread_engine import SpreadEngineServicer
from topospread.transports.http.routes import http_app
from topospread.transports.http.server import HttpServer, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType, TracebackType

    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)

PRELOAD_SECONDS: Final = 300.0
"""How long a first load may take before the server gives up being ready for it."""


def open_store(address: str, environ: Mapping[str, str]) -> Store:
    """Open the store that an address names.

    Raises:
        ConfigError: the address cannot be used, or the store must not be.
        StoreUnavailable: it is out of reach.
    """
    url = parse_store_url(address, environ)
    if isinstance(url, SqliteURL):
        return open_sqlite(url)
    assert isinstance(url, RedisURL)
    store = open_redis(url)
    for warning in store.warnings:
        LOG.warning("store %s: %s", store.address, warning)
    return store


class Server:
    """One serving process. A context manager: entered it serves, left it has stopped.

    Args:
        settings: what was configured.
        reuse_port: share the ports with other processes (one of several workers).

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
    ) -> None:
        self.settings = settings
        self.version = version("topospread")
        self._started = time.time()
        self._ready = False
        self._stopping = False
        self._closing = ExitStack()
        with ExitStack() as opened:
            self.metrics = Metrics(self.version, scheduler_metrics=settings.scheduler_metrics)
            self._rules = self._watched_rules()
            opened.callback(self._rules.close)
            self._tracing = tracing_from_environment(self.version)
            opened.callback(self._tracing.close)
            self._store = open_store(settings.store, environ)
            opened.callback(self._store.close)
            self._replicas = Replicas(
                self._store,
                ReplicaOptions(coalesce=settings.coalesce, max_groups=settings.max_groups),
                entering_wait=lend_place,
            )
            opened.callback(self._replicas.close)
            self._pools = _pools(settings)
            for pool in (self._pools.decisions, self._pools.state, self._pools.streams):
                opened.callback(pool.shutdown)
            self._grpc = self._grpc_server()
            self._http = self._http_server(reuse_port=reuse_port)
            port = self._grpc.listen(str(settings.listen), _credentials(settings))
            self.address = _with_port(settings.listen.host, port)
            self._closing = opened.pop_all()
        self.metrics.watch_pools(self._pools.gauges)
        self.metrics.watch_clusters(self._cluster_gauges)

    @property
    def http_address(self) -> str:
        """host:port of /metrics and health; empty when that is off."""
        http = self.settings.http
        return "" if self._http is None or http is None else _with_port(http.host, self._http.port)

    def start(self) -> None:
        """Load the clusters that are to be there from the start, and serve."""
        self._grpc.start()
        if self._http is not None:
            self._http.start()
        self._rules.start()
        self._preload()
        self._grpc.ready()
        self._ready = True

    def stop(self, grace: float | None = None) -> None:
        """Turn away new calls, let running ones end within the grace time, release all."""
        self._ready, self._stopping = False, True
        self._grpc.stop(self.settings.grace if grace is None else grace)
        if self._http is not None:
            self._http.stop()
        self._closing.close()

    def reload(self) -> bool:
        """Read the configuration file again; returns whether what it holds is in force."""
        return self._rules.reload()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------
    # parts

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

    def _config_state(self) -> tuple[int, str]:
        loaded = self._rules.current
        return loaded.generation, loaded.error

    def _grpc_server(self) -> GrpcServer:
        settings = self.settings
        limits = Limits(
            constraints=settings.max_constraints,
            terms=settings.max_selector_terms,
            batch_pods=settings.max_batch_pods,
            what_ifs=settings.max_what_ifs,
        )
        cycles = Cycles(settings.cycle_ttl, settings.max_cycles)
        engine = Engine(self._replicas, self._store, self._book, cycles, limits)
        facts = ServerFacts(self.version, self._store.address, self._started, self._config_state)
        state = ClusterStateServicer(
            Reads(self._store, self._replicas), Writes(self._store), self._replicas, facts
        )
        decisions = SpreadEngineServicer(engine, Observer(self.metrics))
        return GrpcServer(
            Frame(self._tracing, self.metrics),
            {spread_engine.SERVICE: decisions.methods(), cluster_state.SERVICE: state.methods()},
            self._pools,
            ServerOptions(
                max_request_bytes=settings.max_request_bytes,
                max_response_bytes=settings.max_response_bytes,
                max_connection_age=settings.max_connection_age,
                reflection=settings.reflection,
            ),
        )

    def _http_server(self, *, reuse_port: bool) -> HttpServer | None:
        settings = self.settings
        if settings.http is None:
            return None
        app = http_app(
            version=self.version,
            metrics=self.metrics.expose,
            live=lambda: (True, ()),
            ready=self.ready,
            max_body_bytes=settings.http_max_body_bytes,
        )
        tls = None
        if settings.tls:
            ca = settings.http_verifies_clients_by
            tls = TlsFiles(settings.tls_cert, settings.tls_key, ca)
        http = settings.http
        return HttpServer(app, http.host, http.port, tls=tls, reuse_port=reuse_port)

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether calls are welcome, and if not, why."""
        if self._stopping:
            return False, ("stopping",)
        if not self._ready:
            return False, ("loading",)
        if self.settings.unready_when_stale:
            stale = [r for r in self._replicas.running() if r.stale_for]
            if stale:
                return False, [f"{r.cluster}: store out of reach" for r in stale]
        return True, ()

    def _preload(self) -> None:
        """Load what is configured; a cluster that cannot be loaded now is loaded at first use."""
        chosen: Iterable[str] = self.settings.preload
        try:
            if ALL_CLUSTERS in chosen:
                chosen = self._store.clusters()[: self.settings.max_preload]
            self._replicas.preload(tuple(chosen), seconds_from_now(PRELOAD_SECONDS))
        except TopospreadError as error:
            LOG.warning("not all clusters are loaded yet: %s", error)

    def _cluster_gauges(self) -> Iterable[ClusterGauges]:
        return [_gauges(replica) for replica in self._replicas.running()]


def _gauges(replica: Replica) -> ClusterGauges:
    view = replica.view
    objects: dict[str, int] = {}
    age = 0.0
    if view is not None:
        snapshot = view.snapshot
        objects = {
            "Node": snapshot.node_count,
            "Pod": snapshot.pods,
            "Workload": snapshot.workload_count,
        }
        age = replica.stale_for
    return ClusterGauges(
        cluster=replica.cluster,
        objects=objects,
        groups=0 if view is None else len(view.snapshot.groups),
        revision_lag=0,
        stale_seconds=replica.stale_for,
        snapshot_age_seconds=age,
        corrupt_values=replica.corrupt,
    )


def _pools(settings: ServerSettings) -> Pools:
    return Pools(
        decisions=BoundedExecutor(
            "decide", settings.decision_threads, settings.decision_queue, settings.max_waiting
        ),
        state=BoundedExecutor(
            "state", settings.state_threads, settings.state_queue, settings.max_waiting
        ),
        # A stream that finds no thread would wait for another to end: it is refused instead.
        streams=BoundedExecutor("stream", settings.stream_threads, 1),
        other=BoundedExecutor("other", OTHER_THREADS, OTHER_QUEUE),
    )


def _credentials(settings: ServerSettings) -> Credentials | None:
    if not settings.tls:
        return None
    return Credentials(settings.tls_cert, settings.tls_key, settings.client_ca)


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(settings: ServerSettings, announce: Callable[[Server], None]) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again. Returns the exit code.

    Args:
        settings: what was configured.
        announce: told of the server once it serves, with the addresses that it has then.

    Raises:
        ConfigError: something in the settings cannot be used.
        StoreUnavailable: the store is out of reach.
    """
    if settings.workers > 1:
        raise ConfigError("--workers: this version serves with one process; start several servers")
    output = start_logging(settings.log_level, settings.log_format)  # type: ignore[arg-type] # checked
    server = Server(settings)
    done = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        done.set()

    def reread(number: int, frame: FrameType | None) -> None:
        del number, frame
        # Not in the signal handler: it may interrupt a thread that holds the lock.
        threading.Thread(target=server.reload, name="reload", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, reread)
    with server:
        announce(server)
        done.wait()
        LOG.info("stopping: running calls may take %g s", settings.grace)
    output.close()
    return 0
