"""Which connections lead to a cluster's keys.

One server's, those of a master that Sentinels name, or those of the node of a Redis Cluster that
has the cluster's slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from topospread.store.redis.connections import call_pool, tail_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def masters(self) -> Sequence[Pool]:
        """Connections for calls, of each server that holds clusters; raises as calls()."""

    def mistrust(self) -> None:
        """A call failed in a way that says that keys may be elsewhere now. Never fails."""

    def close(self) -> None:
        """Close all connections."""


@final
class OneWay:
    """All clusters are in one place; a connection that breaks is made anew, wherever that leads."""

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

    def masters(self) -> Sequence[Pool]:
        """See Ways."""
        return (self._calls,)

    def mistrust(self) -> None:
        """See Ways: there is no other place to know of."""

    def close(self) -> None:
        """See Ways."""
        self._calls.disconnect()
        self._tails.disconnect()
