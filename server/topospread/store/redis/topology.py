"""Topologies: which server has a cluster's keys, and connections to it.

One server has all keys, or the master that Sentinels name (sentinel.py), or in a Redis Cluster the
node with the cluster's slot, by the map of the driver's cluster client; connections are used below
its commands here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from redis import exceptions
from redis.cluster import ClusterNode, NodesManager
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from topospread.store.redis.connections import (
    ServerPool,
    any_node,
    login_options,
    network_options,
    pool_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.redis.connections import Options, RedisPool
    from topospread.store.urls import RedisURL


MAP_REFRESH_INTERVAL: Final = 0.1
"""Seconds between two reads of the map, however many commands fail meanwhile."""

_UNREADABLE: Final = (RedisClusterException, IndexError)
"""No node gives a map; one without any slots is an IndexError."""


class RedisTopology(Protocol):
    """Maps each cluster to the server that has its keys, which may change at any time."""

    def pool(self, cluster: str) -> ServerPool:
        """Connections to the server that has a cluster's keys.

        Raises:
            redis.RedisError: which one that is is not known now.
        """

    def masters(self) -> Sequence[Callable[[], ServerPool]]:
        """Functions that return the connections to each server that holds clusters."""

    def confirm(self, pool: RedisPool) -> None:
        """Check, after an answer, that its server is still the one to ask.

        Raises:
            redis.RedisError: another server may hold the cluster by now, without writes that this
                one was given, or with newer ones.
        """

    def invalidate(self, pool: RedisPool | None = None) -> None:
        """Note that keys may be elsewhere now, because a command failed. Never fails.

        Args:
            pool: of the server that did not answer, if any.
        """

    def close(self) -> None:
        """Close all connections."""


@final
class SingleNode:
    """A topology of one server; a connection that breaks is made anew."""

    def __init__(self, options: Options, settings: StoreSettings) -> None:
        self._pool = ServerPool(**pool_options(settings), **options)

    def pool(self, cluster: str) -> ServerPool:
        del cluster
        return self._pool

    def masters(self) -> Sequence[Callable[[], ServerPool]]:
        return (lambda: self._pool,)

    def confirm(self, pool: RedisPool) -> None:
        """See RedisTopology: there is only one server."""

    def invalidate(self, pool: RedisPool | None = None) -> None:
        """See RedisTopology: there is only one server."""

    def close(self) -> None:
        self._pool.close()


@final
class ClusterNodes:
    """The topology of a Redis Cluster: the driver's map of slots, read again when it may be old.

    Raises:
        redis.RedisError: none of the nodes named answers, or none is part of a Redis Cluster.
    """

    def __init__(self, url: RedisURL, settings: StoreSettings) -> None:
        options = login_options(url.username, url.password, settings) | network_options(url.tls)
        self._seeds = list(url.hosts)
        self._silent = ""
        self._stale = False
        self._read_at = time.monotonic()
        host, _ = self._seeds[0]
        try:
            self._manager = NodesManager(
                # The driver has no types here.
                [ClusterNode(*address) for address in self._seeds],  # type: ignore[no-untyped-call]
                from_url=True,
                connection_pool_class=ServerPool,
                # By their settings nodes may say no host, or one that is a question mark.
                address_remap=lambda said: (host if said[0] in (None, "?") else said[0], said[1]),
                redis_connect_func=any_node,
                **pool_options(settings),
                **options,
            )
        except _UNREADABLE as error:
            hidden = _hidden_by(error)
        else:
            return
        # Not above, where its own context would be lost.
        raise hidden

    def pool(self, cluster: str) -> ServerPool:
        self._refresh()
        try:
            # A cluster's name is the hash tag of all its keys.
            return _pool_of(self._manager.get_node_from_slot(key_slot(cluster.encode())))
        except SlotNotCoveredError as error:
            raise exceptions.ClusterDownError(str(error)) from error

    def masters(self) -> Sequence[Callable[[], ServerPool]]:
        self._refresh()
        nodes = self._manager.get_nodes_by_server_type("primary")
        return [partial(_pool_of, node) for node in nodes]

    def confirm(self, pool: RedisPool) -> None:
        """See RedisTopology: a node refuses keys of other nodes, and all when it is cut off."""

    def invalidate(self, pool: RedisPool | None = None) -> None:
        if pool is not None:
            self._silent = "{host}:{port}".format(**pool.connection_kwargs)
        self._stale = True

    def close(self) -> None:
        for node in list(self._manager.nodes_cache.values()):
            _pool_of(node).close()

    def _refresh(self) -> None:
        """Read the map again if it is stale, but not for every command that failed.

        The node that did not answer is asked last: one that is frozen takes all of a time-out.
        """
        if not self._stale or time.monotonic() < self._read_at + MAP_REFRESH_INTERVAL:
            return
        self._stale = False
        try:
            self._manager.initialize(
                additional_startup_nodes_info=self._seeds,
                disconnect_startup_nodes_pools=False,
                last_failed_node_name=self._silent,
            )
        except _UNREADABLE:
            # No node has one now: the old one is as good as any.
            self._stale = True
        self._read_at = time.monotonic()


def _pool_of(node: ClusterNode) -> ServerPool:
    return cast("ServerPool", node.redis_connection.connection_pool)


def _hidden_by(error: Exception) -> Exception:
    """The error behind one of the driver's NodesManager, which are no redis.RedisError."""
    cause = error.__cause__
    if isinstance(cause, RedisClusterException):
        # "Cluster mode is not enabled" is said of each refusal.
        cause = cause.__context__
    if isinstance(cause, Exception):
        return cause
    return exceptions.ClusterDownError("no node has slots")
