"""A serving process: it starts, is ready or not, reads its files again, and stops."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from topospread.app.gauges import watch_parts
from topospread.app.listeners import expander_server, grpc_server, http_servers, listen
from topospread.app.parts import build
from topospread.app.stop_event import StopEvent
from topospread.config.settings import ALL_CLUSTERS
from topospread.config.values import Address
from topospread.errors import TopospreadError
from topospread.replica.replicas import seconds_from_now
from topospread.telemetry.metrics import connection_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from topospread.config.settings import ServerSettings
    from topospread.replica.replica import Replica
    from topospread.rpc.server import GrpcServer
    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)

EXPANDER_GRACE: Final = 5.0
"""Seconds: cluster-autoscaler waits no longer for an answer."""

PRELOAD_SECONDS: Final = 300.0
"""How long a first load may take before the server gives up being ready for it."""

SYNCED_LOAD_SECONDS: Final = 5.0
"""The same for a cluster that has just been listed: its sync must go on, and calls wait anyway."""

PRELOADED_CLUSTERS: Final = 16
"""Of all clusters; loading takes time before readiness, and memory after it. The others are loaded
at first use, or for --constraint-metrics.
"""


class Server:
    """One serving process. A context manager: entered it serves, left it has stopped.

    Args:
        store: opened already, and the server's to close; None opens the one of the settings.

    Attributes:
        parts: what it is made of.
        address: host:port of gRPC.
        expander_address: host:port of the expander where it has one of its own; else empty.
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
        self._ready = self._stopping = False
        self._hurry = StopEvent()
        self._expander: GrpcServer | None = None
        self.expander_address = ""
        with ExitStack() as made:
            parts = self.parts = build(
                settings,
                environ,
                made,
                store=store,
                on_synced=self._on_synced,
                on_standby=self._on_standby,
            )
            self.settings: Final = parts.settings
            self.version: Final = parts.version
            self.metrics: Final = parts.metrics
            self.pools: Final = parts.pools
            self.grpc: Final = self._grpc_server()
            self._web = http_servers(parts, self.ready, made)
            self.address = listen(parts, self.grpc)
            if (own := parts.settings.expander_listen) is not None:
                self._expander, self.expander_address = expander_server(parts, own)
            for stopped_first in (parts.sync, parts.unschedulable):
                if stopped_first is not None:
                    made.callback(stopped_first.stop)
            self._closing = made.pop_all()
        watch_parts(parts)
        self.metrics.watch(connection_families, self._connections)

    @property
    def http_address(self) -> str:
        """host:port of /metrics and health; empty when that is off."""
        return self._web_address("http", self.settings.http)

    @property
    def extender_address(self) -> str:
        """host:port of the extender where it has one of its own; else empty."""
        return self._web_address("extender", self.settings.extender_listen)

    def start(self) -> None:
        """Serve, and be ready when the clusters to preload are loaded."""
        parts = self.parts
        self.grpc.start()
        if self._expander is not None:
            self._expander.start()
        for server in self._web.values():
            server.start()
        parts.configuration.start()
        parts.files.start()
        self._preload()
        for part in (parts.sync, parts.unschedulable, parts.monitor):
            if part is not None:
                part.start()
        if parts.sync is None or self._has_synced():
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
        kept = self.parts.files.reload()
        return self.parts.configuration.reload() and kept

    def ready(self) -> tuple[bool, Sequence[str]]:
        """Whether calls should come here, and if not, the reasons."""
        parts = self.parts
        if self._stopping:
            return False, ("stopping",)
        if not self._ready:
            unsynced_kinds = () if parts.sync is None else parts.sync.unsynced_kinds
            return False, [f"{name} of the cluster not listed yet" for name in unsynced_kinds] or (
                "loading",
            )
        if self.settings.unready_when_stale:
            stale = [replica for replica in parts.replicas.running() if replica.stale_for]
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

    def _grpc_server(self) -> GrpcServer:
        return grpc_server(self.parts)

    def _web_address(self, name: str, given: Address | None) -> str:
        server = self._web.get(name)
        return "" if server is None or given is None else str(Address(given.host, server.port))

    def _connections(self) -> dict[str, int]:
        counts = {name: server.connections for name, server in self._web.items()}
        for name, served in (("grpc", self.grpc), ("expander", self._expander)):
            if served is not None and (count := served.connections) is not None:
                counts[name] = count
        return counts

    def _has_synced(self) -> bool:
        """Whether the store has a full list of each kind already, maybe an older one."""
        cluster = self.settings.sync_cluster
        try:
            return self.parts.store.head(cluster).complete
        except TopospreadError as error:
            LOG.warning("cannot check whether cluster %s is synced: %s", cluster, error)
            return False

    def _on_synced(self) -> None:
        self._load((self.settings.sync_cluster,), SYNCED_LOAD_SECONDS)
        self._become_ready()

    def _on_standby(self) -> None:
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
                chosen = self.parts.store.clusters()[:PRELOADED_CLUSTERS]
        except TopospreadError as error:
            LOG.warning("cannot list the clusters to preload: %s", error)
        else:
            self._load(chosen)

    def _load(self, clusters: Iterable[str], seconds: float = PRELOAD_SECONDS) -> None:
        try:
            self.parts.replicas.preload(tuple(clusters), seconds_from_now(seconds))
        except TopospreadError as error:
            LOG.warning("not all clusters are loaded yet: %s", error)


def _staleness(replica: Replica) -> str:
    """Why a cluster's state grows old, for /readyz."""
    lost = replica.identity_changed
    return f"{replica.cluster}: " + ("store changed" if lost else "store out of reach")
