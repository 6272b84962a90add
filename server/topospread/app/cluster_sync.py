"""The sync of a cluster: within a server, or as a process of its own (`topospread sync`)."""

from __future__ import annotations

import os
import platform
import secrets
import signal
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from topospread.app.stop_event import StopEvent
from topospread.config.values import Address
from topospread.errors import ConfigError, InvalidRequest
from topospread.http.app import make_app
from topospread.http.server import HttpServer
from topospread.kubernetes.api_server import ClusterAccess, open_api_server
from topospread.kubernetes.cluster_sync import ClusterSync
from topospread.kubernetes.sink import ServiceSink
from topospread.service.extender.unschedulable_pods import UnschedulablePods
from topospread.store.checks import check_cluster
from topospread.telemetry.families import sync_families
from topospread.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from types import FrameType

    from topospread.config.settings import ServerSettings
    from topospread.kubernetes.api_server import ApiServer
    from topospread.kubernetes.sink import Sink
    from topospread.service.decisions.engine import Engine
    from topospread.service.extender.unschedulable_pods import UnschedulablePod
    from topospread.service.state.leases import Leases
    from topospread.service.state.write import StateWriter


_MAX_BODY: Final = 1024

CONDITION: Final = "topospread.io/FitsAgain"
"""Type of a condition of pods; kube-scheduler takes any change of a waiting pod for an event."""


def make_cluster_sync(
    settings: ServerSettings,
    writes: StateWriter,
    leases: Leases,
    on_listed: Callable[[], None],
    on_standby: Callable[[], None],
) -> ClusterSync | None:
    """The sync into this process's store; None when that is off.

    Calls back when the cluster has been listed for the first time, and when another process leads.

    Raises:
        ConfigError: the API server cannot be found, or the client is not installed.
    """
    if not settings.sync:
        return None
    try:
        check_cluster(settings.sync_cluster)
    except InvalidRequest as error:
        raise ConfigError(f"--sync-cluster: {error}") from error
    api = open_api_server(ClusterAccess(settings.sync_kubeconfig, settings.sync_context))
    return ClusterSync(
        settings.sync_cluster,
        api,
        ServiceSink(writes, leases, settings.sync_cluster, holder_identity()),
        lease_duration=settings.sync_lease_duration,
        excluded_namespaces=settings.sync_excluded_namespaces,
        on_listed=on_listed,
        on_standby=on_standby,
    )


def make_pod_waking(
    settings: ServerSettings, engine: Engine, count: Callable[[str], None]
) -> UnschedulablePods | None:
    """The registry of unschedulable pods, which wakes them; None when that is off.

    Counts the result of each wake.

    Raises:
        ConfigError: the API server cannot be found, or the client is not installed.
    """
    wake = settings.extender_wake
    if settings.extender == "off" or wake == "off" or (wake == "auto" and not settings.sync):
        return None
    api = open_api_server(ClusterAccess(settings.sync_kubeconfig, settings.sync_context))
    return UnschedulablePods(engine, settings.sync_cluster, partial(wake_pod, api), count)


def wake_pod(api: ApiServer, pod: UnschedulablePod, message: str) -> None:
    """Make kube-scheduler retry an unschedulable pod, by a condition in the pod's status.

    Raises:
        TopospreadError: it may not, or cannot.
    """
    now = datetime.now(UTC)
    second = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": "RoomAppeared",
        # The exact time makes each write a change, which watches report.
        "message": f"{message}: to be scheduled again ({now.isoformat()})",
        "lastProbeTime": second,
        "lastTransitionTime": second,
    }
    api.patch(
        f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
        # Another pod of the same name is left alone.
        {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
    )


def holder_identity() -> str:
    """A unique identity for the lease, which also says where this process runs."""
    return f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"


class SyncProcess:
    """Runs a sync until a signal, or until everything was listed once.

    The parameters are those of :class:`ClusterSync`, and where metrics and health are served.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(
        self,
        cluster: str,
        api: ApiServer,
        sink: Sink,
        lease_duration: float,
        excluded_namespaces: Collection[str],
        http: Address | None,
    ) -> None:
        self.cluster = cluster
        self.api_address = api.address
        self._stop = StopEvent()
        self._listed = threading.Event()
        self._once = False
        self._is_standby = False
        self._sync = ClusterSync(
            cluster,
            api,
            sink,
            lease_duration=lease_duration,
            excluded_namespaces=excluded_namespaces,
            on_listed=self._on_listed,
            on_standby=self._on_standby,
        )
        self._metrics = Metrics(version("topospread"), scheduler_metrics=False)
        self._metrics.watch(sync_families, lambda: [self._sync.gauges()])
        self._host = "" if http is None else http.host
        self._http: HttpServer | None = None
        if http is not None:
            app = make_app(
                version=version("topospread"),
                metrics=self._metrics.expose,
                live=lambda: (True, ()),
                ready=self._ready,
                max_body_bytes=_MAX_BODY,
            )
            self._http = HttpServer(app, http.host, http.port)

    @property
    def http_address(self) -> str:
        """host:port of metrics and health; empty when that is off."""
        return "" if self._http is None else str(Address(self._host, self._http.port))

    def run(
        self, announce: Callable[[SyncProcess], None], *, once_within: float | None = None
    ) -> bool:
        """Sync; to be called in the main thread.

        Args:
            announce: called when it has begun.
            once_within: seconds to end after, or sooner: when everything was listed once. None
                syncs until a signal comes.

        Returns:
            Whether everything was listed.
        """
        self._once = once_within is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        with ExitStack() as closing:
            if self._http is not None:
                self._http.start()
                closing.callback(self._http.stop)
            closing.callback(self._sync.stop)
            self._sync.start()
            announce(self)
            self._stop.wait(once_within)
        return self._listed.is_set()

    def _on_listed(self) -> None:
        self._listed.set()
        if self._once:
            self._stop.set()

    def _on_standby(self) -> None:
        self._is_standby = True

    def _ready(self) -> tuple[bool, Sequence[str]]:
        unsynced_kinds = [f"{name} not listed yet" for name in self._sync.unsynced_kinds]
        return self._listed.is_set() or (self._is_standby and not unsynced_kinds), unsynced_kinds

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop.set()
