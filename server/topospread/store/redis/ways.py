"""Which connections lead to a cluster's keys.

One server's, those of a master that Sentinels name (sentinel.py), or those of the node of a Redis
Cluster that has the cluster's slot (cluster.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from topospread.store.redis.connections import call_pool, tail_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.store.redis.connections import Options, Pool
    from topospread.store.settings import StoreSettings


class Ways(Protocol):
    """The way to each cluster's keys, which may change at any time."""

    def calls(self, cluster: str) -> Pool:
        """Connections for calls about a cluster.

        Raises:
            redis.RedisError: where its keys are is not known now.
        """

    def tails(self, cluster: str) -> Pool:
        """Connections that wait for a cluster's log; raises as calls()."""

    def masters(self) -> Sequence[Callable[[], Pool]]:
        """What finds connections for calls, for each server that holds clusters; as calls()."""

    def confirm(self, pool: Pool) -> None:
        """Check, after an answer, that the way it came is still the way.

        Raises:
            redis.RedisError: another server may hold the cluster by now, without what this one was
                given or with more than it told.
        """

    def mistrust(self) -> None:
        """A call failed in a way that says that keys may be elsewhere now. Never fails."""

    def close(self) -> None:
        """Close all connections."""


@final
class OneWay:
    """All clusters are on one server; a connection that breaks is made anew."""

    def __init__(self, options: Options, settings: StoreSettings) -> None:
        self._calls = call_pool(options, settings)
        self._tails = tail_pool(options)

    def calls(self, cluster: str) -> Pool:
        """See Ways."""
        del cluster
        return self._calls

    def tails(self, cluster: str) -> Pool:
        """See Ways."""
        del cluster
        return self._tails

    def masters(self) -> Sequence[Callable[[], Pool]]:
        """See Ways."""
        return (lambda: self._calls,)

    def confirm(self, pool: Pool) -> None:
        """See Ways: there is no other."""

    def mistrust(self) -> None:
        """See Ways: there is no other place to know of."""

    def close(self) -> None:
        """See Ways."""
        self._calls.disconnect()
        self._tails.disconnect()
