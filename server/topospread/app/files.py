"""How many files a process may have open, and how much of its settings that allows.

Without this a process would run out of them at some cluster or connection, and from then on nobody
could connect, not even to ask for its health.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.store.urls import SqliteURL

if TYPE_CHECKING:
    from topospread.config.settings import ServerSettings
    from topospread.store.urls import StoreURL

LOG: Final = logging.getLogger(__name__)

OWN: Final = 320
"""Open files of a process without clusters and connections: libraries, its store's connections for
reads and writes, files that are read again, feeds.
"""

REDIS_CLUSTER_FILES: Final = 3
"""Of each cluster that is followed in Redis: a connection that waits, and a socket pair to end it.
"""


def within_open_files(
    settings: ServerSettings, url: StoreURL, limit: int | None = None
) -> ServerSettings:
    """The settings with as many clusters and connections as files may be open.

    Where that is fewer than was configured, it is logged what would be needed.

    Args:
        settings: what was configured.
        url: of the store.
        limit: files that may be open; None: of this process.
    """
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    each = 0 if isinstance(url, SqliteURL) else REDIS_CLUSTER_FILES
    listeners = (settings.http, settings.extender_listen, settings.expander_listen)
    ports = 1 + len([address for address in listeners if address is not None])
    clusters, connections = settings.max_clusters, settings.max_connections
    needed = OWN + clusters * each + connections * ports
    if limit == resource.RLIM_INFINITY or needed <= limit:
        return settings
    left = max(0, limit - OWN)
    if each:
        clusters = max(1, min(clusters, left // 2 // each))
    connections = max(1, min(connections, (left - clusters * each) // ports))
    LOG.warning(
        "%d files may be open here (ulimit -n), and --max-clusters and --max-connections need %d:"
        " until that is raised, or they are lowered, %d clusters are followed at most, and each"
        " port has %d connections",
        *(limit, needed, clusters, connections),
    )
    return replace(settings, max_clusters=clusters, max_connections=connections)
