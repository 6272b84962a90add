"""All replicas of a process: one for each cluster, started at first use."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import Preempted, waiting
from topospread.errors import (
    ClusterLoading,
    DeadlineExceeded,
    IdentityChanged,
    RevisionOfOtherHistory,
    RevisionUnavailable,
    ShuttingDown,
    StateTooStale,
    StoreUnavailable,
    TooManyClusters,
)
from topospread.replica.replica import Replica, wait_deadline
from topospread.replica.view import Freshness, HistoryStatus, Token, View, status_of
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topospread.replica.state import ReplicaOptions, ReplicaState
    from topospread.replica.view import Consistency
    from topospread.store.api import Reader
    from topospread.store.model import Head
    from topospread.store.values import Observed

HEAD_SECONDS: Final = 2.0
"""Longest wait for the store's newest revision, whatever the caller's deadline is."""

MAX_CLUSTERS: Final = 1024
"""Replicas that a process keeps by default: each costs a thread and an index."""


class Replicas:
    """The replicas by cluster name.

    Args:
        source: the store.
        options: for each replica.
        on_waited: called after each resolve(), by what was demanded, with the seconds that the
            caller waited; 0 when it did not.
        max_clusters: replicas at once.
    """

    def __init__(
        self,
        source: Reader,
        options: ReplicaOptions,
        *,
        on_waited: Mapping[Freshness, Callable[[float], None]] | None = None,
        max_clusters: int = MAX_CLUSTERS,
    ) -> None:
        self._max_clusters = max_clusters
        self._source = source
        self._options = options
        self._on_waited = on_waited or dict.fromkeys(Freshness, _ignore)
        self._on_minimize_latency = self._on_waited[Freshness.MINIMIZE_LATENCY]
        self._replicas: dict[str, Replica] = {}
        self._written: dict[str, str] = {}
        self._lock = threading.RLock()  # a replica that does not follow may be gone at its start
        self._closed = False

    def resolve(self, cluster: str, demand: Consistency, deadline: float) -> tuple[Replica, View]:
        """The replica of a cluster and a view that is fresh enough.

        Costs a look-up when there is nothing to wait for.

        Args:
            cluster: its name.
            demand: of the caller.
            deadline: of the call, on the monotonic clock.

        Raises:
            NotFound: no such cluster.
            Unavailable: staler than allowed, or the store is needed and out of reach.
            DeadlineExceeded: the wait ended with the deadline.
            RevisionUnavailable: the demanded revision is of another history.
            IdentityChanged: the store has another history than the one that is followed, and what
                is demanded is of that one.
        """
        replica = self._replicas.get(cluster)
        view = None if replica is None else replica.view
        if replica is None or view is None or replica.gone:
            replica, view = self._first(cluster, demand, deadline)
        elif demand.freshness is Freshness.MINIMIZE_LATENCY:
            self._on_minimize_latency(0.0)
        else:
            replica, view = self._fresh(replica, demand, deadline)
        if demand.max_staleness is not None and replica.stale_for > demand.max_staleness:
            raise StateTooStale(
                f"the store has been out of reach for {replica.stale_for:.1f} s, "
                f"longer than max_staleness {demand.max_staleness:g} s"
            )
        return replica, view

    def _first(self, cluster: str, demand: Consistency, deadline: float) -> tuple[Replica, View]:
        """A replica and a view of a cluster that was not followed yet."""
        if demand.freshness is not Freshness.MINIMIZE_LATENCY:
            return self._fresh(self._loaded(cluster, deadline), demand, deadline)
        began = time.monotonic()
        try:
            replica = self._loaded(cluster, deadline)
        finally:
            self._on_minimize_latency(time.monotonic() - began)
        return replica, replica.current_view()

    def _fresh(
        self, replica: Replica, demand: Consistency, deadline: float
    ) -> tuple[Replica, View]:
        """A view that is as fresh as demanded; reports how long the caller waited."""
        began = time.monotonic()
        waited = counts = True
        try:
            if demand.freshness is Freshness.FULLY_CONSISTENT:
                return self._newest(replica, deadline)
            if demand.freshness is Freshness.NOT_OLDER_THAN:
                return self._observed(replica, demand.observed, deadline)
            token = demand.token
            assert token is not None, "at_least_as_fresh carries a token"
            view = replica.current_view()
            if token.identity != view.identity or view.revision.number < token.revision.number:
                return self._awaited(replica, token, deadline)
            waited = False
            return replica, replica.wait_for(token, deadline)
        except Preempted:
            counts = False  # it begins again
            raise
        finally:
            if counts:
                self._on_waited[demand.freshness](time.monotonic() - began if waited else 0.0)

    def _observed(
        self, replica: Replica, wanted: Observed, deadline: float
    ) -> tuple[Replica, View]:
        """A view of a state that had come up to versions of the API server."""
        reported = {kind for kind, _ in replica.current_view().observed}
        if not all(kind in reported for kind, _ in wanted):
            # A sync may have reported just now.
            replica, _ = self._newest(replica, deadline)
        with waiting():
            return replica, replica.wait_observed(wanted, deadline)

    def _awaited(self, replica: Replica, token: Token, deadline: float) -> tuple[Replica, View]:
        """A view that has a revision which the replica's view lacks."""
        if token.identity != replica.current_view().identity:
            replica = self._successor(replica, token, deadline)
        with waiting():
            return replica, replica.wait_for(token, deadline)

    def _newest(self, replica: Replica, deadline: float) -> tuple[Replica, View]:
        """A view that has everything that the store has now."""
        view = replica.current_view()
        head = self._head(replica.cluster, deadline)
        token = Token(head.identity, head.revision)
        try:
            if head.identity == view.identity and head.revision.number < view.revision.number:
                # The view was there before the head was asked for.
                raise RevisionOfOtherHistory("the store has not come as far as the view")
            if replica.view is view and head.revision == view.revision:
                return replica, view
            return self._awaited(replica, token, deadline)
        except RevisionUnavailable as cause:
            replica.poll_now()
            raise ClusterLoading(
                "the store lost writes, so the state is being loaded anew: try again"
            ) from cause

    def _head(self, cluster: str, deadline: float) -> Head:
        left = deadline - time.monotonic()
        try:
            return self._source.head(cluster, timeout=min(HEAD_SECONDS, max(0.001, left)))
        except StoreUnavailable as cause:
            if time.monotonic() < deadline:
                raise
            raise DeadlineExceeded("the store did not answer before the call's deadline") from cause

    def _successor(self, replica: Replica, token: Token, deadline: float) -> Replica:
        """The replica of a cluster's next history, if this one's was dropped; else this one.

        The old replica finds out by itself, but a caller with a revision of the new history must
        not wait for that.
        """
        view = replica.current_view()
        head = self._head(replica.cluster, deadline)
        status = status_of(view.identity, head)
        if status is HistoryStatus.DROPPED:
            self._forget(replica)
            replica.stop()
            return self._loaded(replica.cluster, deadline)
        if status is HistoryStatus.SAME or token.identity != head.identity:
            return replica
        if status is HistoryStatus.LOST:
            raise history_changed(replica.cluster)
        with waiting():
            replica.wait_replaced(view, wait_deadline(deadline))
        if replica.view is view:
            raise ClusterLoading("the state is being loaded anew: try again")
        return replica

    # ------------------------------ histories

    def identity(self, cluster: str) -> str:
        """Identity of the history that is followed, or else was written to; empty for none."""
        replica = self._replicas.get(cluster)
        view = None if replica is None or replica.gone else replica.view
        if view is not None:
            return view.identity
        return self._written.get(cluster, "")

    def note_written(self, cluster: str, identity: str) -> None:
        """Remember the history that was written to, as long as it is not followed.

        Else a store that comes back empty would be filled anew by a sync that only writes.
        """
        replica = self._replicas.get(cluster)
        if replica is not None and replica.view is not None:
            self._written.pop(cluster, None)
        elif cluster not in self._written and len(self._written) < self._max_clusters:
            self._written[cluster] = identity

    def reconcile(self, cluster: str) -> str:
        """Check whether the store's history of a cluster may take the place of the one followed.

        Returns:
            The identity of the history that is intended from now on; empty without a cluster.

        Raises:
            IdentityChanged: the store's history is not complete.
            StoreUnavailable: it cannot be read.
        """
        replica = self._replicas.get(cluster)
        if replica is None or replica.view is None:
            return self._reconcile_written(cluster)
        head = self._source.head(cluster)
        status = status_of(replica.view.identity, head)
        if status is HistoryStatus.LOST:
            raise history_changed(cluster)
        if status is HistoryStatus.DROPPED:
            self._forget(replica)
            replica.stop()
        elif status is HistoryStatus.REPLACED:
            replica.poll_now()
        return head.identity

    def _reconcile_written(self, cluster: str) -> str:
        """Reconcile the histories of a cluster that is not followed; see reconcile()."""
        head = self._source.head(cluster)
        written = self._written.get(cluster)
        if written is not None:
            status = status_of(written, head)
            # A store remembers the last few that were dropped, and was not read here meanwhile:
            # ours may be an older one. One that came back empty remembers none.
            if status is HistoryStatus.LOST and not head.replaced:
                raise history_changed(cluster)
            if status is not HistoryStatus.SAME:
                self._written.pop(cluster, None)
        return head.identity

    def _loaded(self, cluster: str, deadline: float) -> Replica:
        with waiting():
            while True:
                replica = self._started(cluster)
                replica.wait_loaded(deadline)
                if not replica.gone:
                    return replica

    def _started(self, cluster: str) -> Replica:
        with self._lock:
            if self._closed:
                raise ShuttingDown()
            replica = self._replicas.get(cluster)
            if replica is None or replica.gone:
                check_cluster(cluster)
                if len(self._replicas) >= self._max_clusters and replica is None:
                    raise TooManyClusters(
                        f"this server follows {self._max_clusters} clusters already, as many as"
                        " --max-clusters and its limit of open files allow",
                        self._max_clusters,
                    )
                replica = Replica(cluster, self._source, self._options, on_gone=self._forget)
                self._replicas[cluster] = replica
                replica.start()
            return replica

    def _forget(self, replica: ReplicaState) -> None:
        with self._lock:
            if self._replicas.get(replica.cluster) is replica:
                del self._replicas[replica.cluster]

    def forget(self, cluster: str) -> None:
        """Stop following a cluster, for example because it was dropped."""
        self._written.pop(cluster, None)
        with self._lock:
            replica = self._replicas.pop(cluster, None)
        if replica is not None:
            replica.stop()

    def preload(self, clusters: Sequence[str], deadline: float) -> None:
        """Load clusters before the first call asks for them."""
        for replica in [self._started(cluster) for cluster in clusters]:
            replica.wait_loaded(deadline)

    def follow(self, cluster: str) -> None:
        """Begin to follow a cluster, unless it is followed already.

        Raises:
            TooManyClusters: as many as may be are.
            ShuttingDown: the server is going away.
        """
        self._started(cluster)

    def get(self, cluster: str) -> Replica | None:
        """The replica of a cluster, if it is followed already."""
        return self._replicas.get(cluster)

    def running(self) -> Sequence[Replica]:
        """The replicas there are, by cluster name."""
        with self._lock:
            return [self._replicas[name] for name in sorted(self._replicas)]

    def close(self) -> None:
        """Stop all."""
        with self._lock:
            self._closed = True
            replicas = list(self._replicas.values())
        for replica in replicas:
            replica.stop()


def seconds_from_now(seconds: float) -> float:
    """A deadline on the monotonic clock."""
    return time.monotonic() + seconds


def history_changed(cluster: str) -> IdentityChanged:
    """The error for a store with another history, which is not complete."""
    return IdentityChanged(
        f"the store has another history of cluster {cluster!r} than this server, or none: list "
        "each kind into it (ReplaceObjects), or restart the server if it is meant to be as it is"
    )


def _ignore(_: float) -> None:
    return None
