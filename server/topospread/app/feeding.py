"""Makes the feed of a cluster out of the settings."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, InvalidRequest
from topospread.store.api import Kind
from topospread.store.checks import check_cluster
from topospread.transports.kubernetes.api_server import Access, ApiServer
from topospread.transports.kubernetes.feed import Feed
from topospread.transports.kubernetes.sinks import ServiceSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.config.settings import ServerSettings
    from topospread.service.write import Writes

FED_KINDS: Final = frozenset(Kind) - {Kind.RESERVATION}


def make_feed(settings: ServerSettings, writes: Writes, listed: Callable[[], None]) -> Feed | None:
    """The feed into this process's store; None when there is to be none.

    Args:
        settings: what was configured.
        writes: where it goes.
        listed: called when the cluster has been listed for the first time.

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
    sink = ServiceSink(writes, settings.sync_cluster)
    return Feed(settings.sync_cluster, api, sink, settings.sync_leave_out, listed)


def open_api_server(access: Access) -> ApiServer:
    """The API server that a cluster is fed from.

    Raises:
        ConfigError: it cannot be found, or the client is not installed.
    """
    if find_spec("kubernetes") is None:
        raise ConfigError("sync needs the Kubernetes client: pip install 'topospread[sync]'")
    return ApiServer(access)
