"""Topologies: which server has a cluster's keys, and connections to it.

One server has all keys, or the master that Sentinels name (sentinel.py), or in a Redis Cluster the
node with the cluster's slot. The driver's own cluster client routes whole commands; connections are
used below it here, so only the map of slots is kept.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, final

from redis import exceptions
from redis.crc import key_slot

from topospread.store.redis.connections import (
    any_node,
    login_options,
    make_blocking_pool,
    make_command_pool,
    network_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.redis.connections import Options, RedisPool, Reply
    from topospread.store.urls import ClusterURL


MAP_REFRESH_INTERVAL: Final = 0.1
"""Seconds between two reads of the map, however many commands fail meanwhile."""

Address = tuple[str, int]


class RedisTopology(Protocol):
    """Maps each cluster to the server that has its keys, which may change at any time."""

    def command_pool(self, cluster: str) -> RedisPool:
        """Connections for commands about a cluster.

        Raises:
            redis.RedisError: where its keys are is not known now.
        """

    def blocking_pool(self, cluster: str) -> RedisPool:
        """Connections that wait for a cluster's log; raises as command_pool()."""

    def masters(self) -> Sequence[Callable[[], RedisPool]]:
        """Functions that return connections for commands, one per server that holds clusters."""

    def confirm(self, pool: RedisPool) -> None:
        """Check, after an answer, that its server is still the one to ask.

        Raises:
            redis.RedisError: another server may hold the cluster by now, without writes that this
                one was given, or with newer ones.
        """

    def invalidate(self) -> None:
        """Note that keys may be elsewhere now, because a command failed. Never fails."""

    def close(self) -> None:
        """Close all connections."""


@final
class SingleNode:
    """A topology of one server; a connection that breaks is made anew."""

    def __init__(self, options: Options, settings: StoreSettings) -> None:
        self._command_pool = make_command_pool(options, settings)
        self._blocking_pool = make_blocking_pool(options)

    def command_pool(self, cluster: str) -> RedisPool:
        """See RedisTopology."""
        del cluster
        return self._command_pool

    def blocking_pool(self, cluster: str) -> RedisPool:
        """See RedisTopology."""
        del cluster
        return self._blocking_pool

    def masters(self) -> Sequence[Callable[[], RedisPool]]:
        """See RedisTopology."""
        return (lambda: self._command_pool,)

    def confirm(self, pool: RedisPool) -> None:
        """See RedisTopology: there is only one server."""

    def invalidate(self) -> None:
        """See RedisTopology: there is only one server."""

    def close(self) -> None:
        """See RedisTopology."""
        self._command_pool.disconnect()
        self._blocking_pool.disconnect()


@dataclass(frozen=True, slots=True)
class _Node:
    command_pool: RedisPool
    blocking_pool: RedisPool

    def close(self) -> None:
        self.command_pool.disconnect()
        self.blocking_pool.disconnect()


@dataclass(frozen=True, slots=True)
class _Map:
    """Ranges of slots, both ends included, with the node that has them."""

    ranges: tuple[tuple[int, int, Address], ...] = ()
    looked_at: float = -math.inf

    @property
    def masters(self) -> list[Address]:
        return sorted({address for _, _, address in self.ranges})

    def find(self, slot: int) -> Address:
        for first, last, address in self.ranges:
            if first <= slot <= last:
                return address
        raise exceptions.ClusterDownError(f"no node has slot {slot}")


@final
class ClusterNodes:
    """The topology of a Redis Cluster.

    Raises:
        redis.RedisError: none of the nodes named answers, or none is part of a Redis Cluster.
    """

    def __init__(self, url: ClusterURL, settings: StoreSettings) -> None:
        self._settings = settings
        self._options: Options = login_options(url.username, url.password, settings)
        self._options |= network_options(url.tls) | {"redis_connect_func": any_node}
        self._seeds = url.nodes
        self._nodes: dict[Address, _Node] = {}
        self._lock = Lock()
        self._stale = True
        self._map = _Map()
        self._slot_map()

    def command_pool(self, cluster: str) -> RedisPool:
        """See RedisTopology."""
        return self._node_of(cluster).command_pool

    def blocking_pool(self, cluster: str) -> RedisPool:
        """See RedisTopology."""
        return self._node_of(cluster).blocking_pool

    def masters(self) -> Sequence[Callable[[], RedisPool]]:
        """See RedisTopology."""
        return [partial(self._command_pool_at, address) for address in self._slot_map().masters]

    def confirm(self, pool: RedisPool) -> None:
        """See RedisTopology: a node refuses keys of other nodes, and all when it is cut off."""

    def invalidate(self) -> None:
        """See RedisTopology."""
        self._stale = True

    def close(self) -> None:
        """See RedisTopology."""
        with self._lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            node.close()

    def _command_pool_at(self, address: Address) -> RedisPool:
        return self._node_at(address).command_pool

    def _node_of(self, cluster: str) -> _Node:
        # A cluster's name is the hash tag of all its keys.
        return self._node_at(self._slot_map().find(key_slot(cluster.encode())))

    def _node_at(self, address: Address) -> _Node:
        with self._lock:
            node = self._nodes.get(address)
            if node is None:
                options = self._options | {"host": address[0], "port": address[1]}
                node = _Node(
                    make_command_pool(options, self._settings), make_blocking_pool(options)
                )
                self._nodes[address] = node
            return node

    def _slot_map(self) -> _Map:
        """The map of slots; read again when it is stale, but not for every command that failed."""
        known = self._map
        if self._stale and time.monotonic() >= known.looked_at + MAP_REFRESH_INTERVAL:
            self._stale = False
            try:
                found = self._look((*known.masters, *self._seeds))
            except BaseException:
                self._stale = True
                if not known.ranges:
                    raise
                self._map = _Map(known.ranges, time.monotonic())
            else:
                self._map = _Map(found, time.monotonic())
                self._forget_others()
        return self._map

    def _look(self, addresses: Iterable[Address]) -> tuple[tuple[int, int, Address], ...]:
        """Read the map of slots from the first node that answers."""
        failure: Exception = exceptions.ConnectionError("no node is named")
        for address in dict.fromkeys(addresses):
            pool = self._node_at(address).command_pool
            try:
                connection = pool.get_connection()
            except (exceptions.RedisError, OSError) as error:
                failure = error
                continue
            try:
                connection.send_command("CLUSTER", "SLOTS")
                return _ranges(connection.read_response(), address[0])
            except (exceptions.RedisError, OSError) as error:
                connection.disconnect()
                failure = error
            finally:
                pool.release(connection)
        raise failure

    def _forget_others(self) -> None:
        """Close connections to nodes that have no slots any more."""
        kept = {*self._map.masters, *self._seeds}
        with self._lock:
            gone = [self._nodes.pop(address) for address in self._nodes.keys() - kept]
        for node in gone:
            node.close()


def _ranges(reply: Reply, asked: str) -> tuple[tuple[int, int, Address], ...]:
    """The ranges in an answer to CLUSTER SLOTS; without a host it is the one that was asked."""
    return tuple(
        (first, last, ((master[0] or b"").decode().strip("?") or asked, master[1]))
        for first, last, master, *_ in reply
    )
