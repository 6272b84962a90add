"""The lease of a cluster: of many syncers, its holder alone writes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.errors import LeaseLost, ObjectNotFound, TooManyClusters
from topospread.kube.violations import Problems, invalid
from topospread.store.checks import check_cluster, check_holder
from topospread.store.model import MAX_LEASE

if TYPE_CHECKING:
    from topospread.store.api import Store
    from topospread.store.model import Lease


SHORTEST: Final = 0.001
"""Seconds that a lease lasts at least."""


class Leases:
    """The leases of the clusters of one store.

    Args:
        store: keeps them.
        max_clusters: how many clusters there may be, with those that are not there yet and whose
            lease this process was asked for.
    """

    def __init__(self, store: Store, max_clusters: int) -> None:
        self._store = store
        self._max_clusters = max_clusters
        # Clusters that are not there yet, and when the store has forgotten their lease, by
        # time.monotonic().
        self._expected: dict[str, float] = {}
        self._lock = threading.Lock()

    def acquire(self, cluster: str, holder: str, seconds: float, *, timeout: float) -> Lease:
        """Take the lease if it is free or one's own; returns it as it is now.

        Raises:
            InvalidRequest: a holder or a time that no lease can have.
            TooManyClusters: there is no such cluster, and as many as there may be.
            StoreUnavailable: the store did not answer.
        """
        lifetime = _checked(cluster, holder, seconds=seconds)
        self._check_expected(cluster, lifetime)
        return self._store.lease(cluster, holder, lifetime, timeout=timeout)

    def renew(
        self, cluster: str, holder: str, fence: int, seconds: float, *, timeout: float
    ) -> Lease:
        """Have one's own lease last longer.

        Raises:
            LeaseLost: it is another's by now, or has ended.
            InvalidRequest: a holder, token or time that no lease can have.
            StoreUnavailable: the store did not answer.
        """
        lifetime = _checked(cluster, holder, seconds=seconds, fence=fence)
        lease = self._store.lease(cluster, holder, lifetime, fence=fence, timeout=timeout)
        if (lease.holder, lease.fence) != (holder, fence) or not lease.left:
            raise LeaseLost(
                f"the lease of cluster {cluster!r} ended or is another's: acquire it anew, and list"
                " again",
                lease.holder if lease.left else "",
            )
        return lease

    def release(self, cluster: str, holder: str, fence: int, *, timeout: float) -> None:
        """Give one's own lease back; nothing happens to another's.

        Raises:
            InvalidRequest: a holder or token that no lease can have.
            StoreUnavailable: the store did not answer.
        """
        _checked(cluster, holder, fence=fence)
        self._store.lease(cluster, holder, 0, fence=fence, timeout=timeout)

    def get(self, cluster: str, *, timeout: float) -> Lease:
        """The lease as it is now.

        Raises:
            ObjectNotFound: it is free.
            StoreUnavailable: the store did not answer.
        """
        lease = self._store.lease(cluster, timeout=timeout)
        if not lease.holder or not lease.left:
            raise ObjectNotFound(
                f"the lease of cluster {cluster!r} has no holder", "Lease", cluster
            )
        return lease

    def _check_expected(self, cluster: str, lifetime: int) -> None:
        if self._store.head(cluster).identity:
            return
        now = time.monotonic()
        with self._lock:
            self._expected = {name: end for name, end in self._expected.items() if end > now}
            expected = set(self._expected)
        if cluster not in expected:
            names = expected.union(self._store.clusters())
            if len(names) >= self._max_clusters:
                raise TooManyClusters(
                    f"there are {len(names)} clusters already, with those whose lease was acquired"
                    " in the last hour or two; --max-clusters and the server's limit of open files"
                    " allow no more",
                    self._max_clusters,
                )
        with self._lock:
            self._expected[cluster] = now + (lifetime + MAX_LEASE) / 1000


def _checked(
    cluster: str, holder: str, *, seconds: float | None = None, fence: int | None = None
) -> int:
    """The milliseconds of a lease; 0 without seconds.

    Raises:
        InvalidRequest: with everything that no lease can have.
    """
    wrong = Problems()
    wrong.read(check_cluster, cluster)
    wrong.read(check_holder, holder)
    if fence is not None and fence <= 0:
        wrong.add(invalid("fencingToken", fence, "must be that of the lease"))
    lifetime = 0 if seconds is None else round(seconds * 1000)
    if seconds is not None and (seconds < SHORTEST or lifetime > MAX_LEASE):
        text = "must be at least a millisecond and at most an hour"
        wrong.add(invalid("leaseDuration", f"{seconds:g}s", text))
    wrong.raise_all()
    return lifetime
