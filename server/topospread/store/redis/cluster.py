"""The nodes of a Redis Cluster, and which of them has which slot.

The driver's own cluster client routes whole commands; here connections are used below it, so only
the map of slots is kept.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from redis import exceptions
from redis.crc import key_slot

from topospread.store.redis.connections import (
    any_node,
    call_pool,
    login_options,
    network_options,
    tail_pool,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.store.redis.connections import Options, Pool, Reply
    from topospread.store.settings import StoreSettings
    from topospread.store.urls import ClusterURL

LOOK_AGAIN: Final = 0.1
"""Seconds between two looks at the map, however many calls fail meanwhile."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Node:
    calls: Pool
    tails: Pool

    def close(self) -> None:
        self.calls.disconnect()
        self.tails.disconnect()


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
class Nodes:
    """The :class:`~topospread.store.redis.ways.Ways` of a Redis Cluster.

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
        self._current()

    def calls(self, cluster: str) -> Pool:
        """See Ways."""
        return self._node(cluster).calls

    def tails(self, cluster: str) -> Pool:
        """See Ways."""
        return self._node(cluster).tails

    def masters(self) -> Sequence[Callable[[], Pool]]:
        """See Ways."""
        return [partial(self._calls_at, address) for address in self._current().masters]

    def confirm(self, pool: Pool) -> None:
        """See Ways: a node refuses what it does not hold, and one that is cut off refuses all."""

    def mistrust(self) -> None:
        """See Ways."""
        self._stale = True

    def close(self) -> None:
        """See Ways."""
        with self._lock:
            nodes = list(self._nodes.values())
        for node in nodes:
            node.close()

    def _calls_at(self, address: Address) -> Pool:
        return self._at(address).calls

    def _node(self, cluster: str) -> _Node:
        # A cluster's name is the hash tag of all its keys.
        return self._at(self._current().find(key_slot(cluster.encode())))

    def _at(self, address: Address) -> _Node:
        with self._lock:
            node = self._nodes.get(address)
            if node is None:
                options = self._options | {"host": address[0], "port": address[1]}
                node = _Node(call_pool(options, self._settings), tail_pool(options))
                self._nodes[address] = node
            return node

    def _current(self) -> _Map:
        """The map; looked at again when it is mistrusted, but not by every call that failed."""
        known = self._map
        if self._stale and time.monotonic() >= known.looked_at + LOOK_AGAIN:
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
        """Ask one node after the other which has which slot."""
        failure: Exception = exceptions.ConnectionError("no node is named")
        for address in dict.fromkeys(addresses):
            pool = self._at(address).calls
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
    """The answer to CLUSTER SLOTS; a node that does not know its own host is where we asked."""
    return tuple(
        (first, last, ((master[0] or b"").decode().strip("?") or asked, master[1]))
        for first, last, master, *_ in reply
    )
