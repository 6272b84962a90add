"""Makes the feed of a cluster out of the settings."""

from __future__ import annotations

import os
import platform
import secrets
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, InvalidRequest
from topospread.service.refused import RefusedPods
from topospread.store.checks import check_cluster
from topospread.store.progress import OBSERVABLE
from topospread.transports.kubernetes.api_server import Access, ApiServer
from topospread.transports.kubernetes.feed import Feed
from topospread.transports.kubernetes.sinks import ServiceSink
from topospread.transports.kubernetes.waking import PodWaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.config.settings import ServerSettings
    from topospread.service.engine import Engine
    from topospread.service.leases import Leases
    from topospread.service.write import Writes

FED_KINDS: Final = frozenset(OBSERVABLE)


def make_feed(
    settings: ServerSettings,
    writes: Writes,
    leases: Leases,
    listed: Callable[[], None],
    stands_by: Callable[[], None],
) -> Feed | None:
    """The feed into this process's store; None when there is to be none.

    Args:
        settings: what was configured.
        writes: where it goes.
        leases: which of many servers is the one that feeds.
        listed: called when the cluster has been listed for the first time.
        stands_by: called when another turns out to feed it.

    Raises:
        ConfigError: the API server cannot be found, or the client is not installed.
    """
    if not settings.sync:
        return None
    try:
        check_cluster(settings.sync_cluster)
    except InvalidRequest as error:
        raise ConfigError(f"--sync-cluster: {error}") from error
    api = open_api_server(Access(settings.sync_kubeconfig, settings.sync_context))
    return Feed(
        settings.sync_cluster,
        api,
        ServiceSink(writes, leases, settings.sync_cluster, feeder_name()),
        lease=settings.sync_lease,
        excluded_namespaces=settings.sync_excluded_namespaces,
        listed=listed,
        stands_by=stands_by,
    )


def make_refused(
    settings: ServerSettings, engine: Engine, count: Callable[[str], None]
) -> RefusedPods | None:
    """What wakes pods that the extender refused; None when that is off.

    Args:
        settings: where the pods' API server is.
        engine: judges them again.
        count: told what became of each wake.

    Raises:
        ConfigError: the API server cannot be found, or the client is not installed.
    """
    wake = settings.extender_wake
    if settings.extender == "off" or wake == "off" or (wake == "auto" and not settings.sync):
        return None
    api = open_api_server(Access(settings.sync_kubeconfig, settings.sync_context))
    return RefusedPods(engine, settings.sync_cluster, PodWaker(api), count)


def feeder_name() -> str:
    """A name that no other feeder has or had, with which one can find this process."""
    return f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"


def open_api_server(access: Access) -> ApiServer:
    """The API server that a cluster is fed from.

    Raises:
        ConfigError: it cannot be found, or the client is not installed.
    """
    if find_spec("kubernetes") is None:
        raise ConfigError("sync needs the Kubernetes client: pip install 'topospread[sync]'")
    return ApiServer(access)
