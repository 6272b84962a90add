"""Who feeds a cluster: the lease that one of many holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.errors import InvalidRequest

if TYPE_CHECKING:
    from topospread.store.api import Lease, Leaser


class Feeders:
    """The feeders of the clusters of one store."""

    def __init__(self, store: Leaser) -> None:
        self._store = store

    def hold(self, cluster: str, holder: str, seconds: float, *, timeout: float) -> Lease:
        """Take the lease if it is free, or renew one's own; returns it as it is now.

        Raises:
            InvalidRequest: a holder or a time that no lease can have.
            StoreUnavailable: the store did not answer.
        """
        lifetime = round(seconds * 1000)
        if lifetime < 1:
            raise InvalidRequest("lifetime: must be greater than 0: Leave gives the lease back")
        return self._store.lease(cluster, holder, lifetime, timeout=timeout)

    def leave(self, cluster: str, holder: str, *, timeout: float) -> None:
        """Give one's own lease back; nothing happens to another's.

        Raises:
            InvalidRequest: a holder that no lease can have.
            StoreUnavailable: the store did not answer.
        """
        self._store.lease(cluster, holder, 0, timeout=timeout)
