"""The sync of a cluster within a server, and the wakes of its pods."""

from __future__ import annotations

import os
import platform
import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, InvalidRequest
from topospread.kubernetes.api_server import ClusterAccess, open_api_server
from topospread.kubernetes.cluster_sync import ClusterSync
from topospread.kubernetes.sink import Sink
from topospread.service.extender.unschedulable_pods import UnschedulablePods
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.config.settings import ServerSettings
    from topospread.kubernetes.api_server import ApiServer
    from topospread.service.decisions.engine import Engine
    from topospread.service.extender.unschedulable_pods import UnschedulablePod
    from topospread.service.state.write import StateWriter
    from topospread.store.api import Writer


CONDITION: Final = "topospread.io/FitsAgain"
"""Type of a condition of pods; kube-scheduler takes any change of a waiting pod for an event."""


def make_cluster_sync(
    settings: ServerSettings,
    writes: StateWriter,
    store: Writer,
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
        Sink(writes, store, settings.sync_cluster, holder_identity()),
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
    """A unique identity for the lease: the host's name, which in a cluster is the pod's, first."""
    return f"{platform.node()}_{os.getpid()}_{secrets.token_hex(4)}"
