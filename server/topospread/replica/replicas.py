"""All replicas of a process: one a cluster, started at first use."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    ClusterLoading,
    ClusterNotFound,
    DeadlineExceeded,
    IdentityChanged,
    RevisionOfOtherHistory,
    RevisionUnavailable,
    ShuttingDown,
    StateTooStale,
    StoreUnavailable,
    TooManyClusters,
)
from topospread.replica.replica import Replica, ReplicaOptions, Source
from topospread.replica.succession import LISTED_KINDS, Fate, Succession
from topospread.replica.view import Token, View
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topospread.store.api import Head
    from topospread.store.progress import Observed

HEAD_SECONDS: Final = 2.0
"""Longest wait for the store's newest revision, whatever the caller's deadline is."""

MAX_CLUSTERS: Final = 1024
"""Replicas a process keeps unless it is told otherwise: each costs a thread and an index."""


class Freshness(Enum):
    """How fresh the state behind an answer must be."""

    MINIMIZE_LATENCY = auto()
    AT_LEAST_AS_FRESH = auto()
    FULLY_CONSISTENT = auto()
    NOT_OLDER_THAN = auto()


@dataclass(frozen=True, slots=True)
class Consistency:
    """A caller's demand.

    Attributes:
        token: with AT_LEAST_AS_FRESH.
        max_staleness: seconds that the store may have been out of reach; None: any.
        observed: with NOT_OLDER_THAN: versions of the API server.
    """

    freshness: Freshness = Freshness.MINIMIZE_LATENCY
    token: Token | None = None
    max_staleness: float | None = None
    observed: Observed = ()


NEWEST_AT_HAND: Final = Consistency()


class Replicas:
    """The replicas by cluster name.

    Args:
        source: the store.
        options: for each replica.
        entering_wait: called before a caller begins to wait and may refuse it; the returned
            callable ends the wait.
        waited: told of each resolve(): what was demanded, and for how many seconds that made the
            caller wait; 0 when it was at hand.
        most: replicas at once.
    """

    def __init__(
        self,
        source: Source,
        options: ReplicaOptions,
        *,
        entering_wait: Callable[[], Callable[[], None]] = lambda: _nothing,
        waited: Mapping[Freshness, Callable[[float], None]] | None = None,
        most: int = MAX_CLUSTERS,
    ) -> None:
        self._most = most
        self._source = source
        self._options = options
        self._entering_wait = entering_wait
        self._waited = waited or dict.fromkeys(Freshness, _ignore)
        self._newest_at_hand = self._waited[Freshness.MINIMIZE_LATENCY]
        self._replicas: dict[str, Replica] = {}
        self._written: dict[str, Succession] = {}
        self._lock = threading.Lock()
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
            self._newest_at_hand(0.0)
        else:
            replica, view = self._fresh(replica, demand, deadline)
        if demand.max_staleness is not None and replica.stale_for > demand.max_staleness:
            raise StateTooStale(
                f"the store has been out of reach for {replica.stale_for:.1f} s, "
                f"longer than max_staleness {demand.max_staleness:g} s"
            )
        return replica, view

    def _first(self, cluster: str, demand: Consistency, deadline: float) -> tuple[Replica, View]:
        """What resolve() does for a cluster that is not followed yet."""
        if demand.freshness is not Freshness.MINIMIZE_LATENCY:
            return self._fresh(self._loaded(cluster, deadline), demand, deadline)
        began = time.monotonic()
        try:
            replica = self._loaded(cluster, deadline)
        finally:
            self._newest_at_hand(time.monotonic() - began)
        return replica, replica.loaded()

    def _fresh(
        self, replica: Replica, demand: Consistency, deadline: float
    ) -> tuple[Replica, View]:
        """A view that is as fresh as demanded, and a note of what that took."""
        began = time.monotonic()
        at_hand = False
        try:
            if demand.freshness is Freshness.FULLY_CONSISTENT:
                return self._newest(replica, deadline)
            if demand.freshness is Freshness.NOT_OLDER_THAN:
                return self._observed(replica, demand.observed, deadline)
            token = demand.token
            assert token is not None, "at_least_as_fresh carries a token"
            view = replica.loaded()
            if token.identity != view.identity or view.revision.number < token.revision.number:
                return self._awaited(replica, token, deadline)
            at_hand = True
            return replica, replica.wait_for(token, deadline)
        finally:
            self._waited[demand.freshness](0.0 if at_hand else time.monotonic() - began)

    def _observed(
        self, replica: Replica, wanted: Observed, deadline: float
    ) -> tuple[Replica, View]:
        """A view of a state that had come up to versions of the API server.

        Raises:
            NoFeedProgress: nobody tells how far one of the kinds was read.
        """
        told = {kind for kind, _ in replica.loaded().observed}
        if not all(kind in told for kind, _ in wanted):
            # Somebody may have told just now.
            replica, _ = self._newest(replica, deadline)
        leave = self._entering_wait()
        try:
            return replica, replica.wait_observed(wanted, deadline)
        finally:
            leave()

    def _awaited(self, replica: Replica, token: Token, deadline: float) -> tuple[Replica, View]:
        """A view that has a revision which is not at hand."""
        if token.identity != replica.loaded().identity:
            replica = self._successor(replica, token, deadline)
        leave = self._entering_wait()
        try:
            return replica, replica.wait_for(token, deadline)
        finally:
            leave()

    def _newest(self, replica: Replica, deadline: float) -> tuple[Replica, View]:
        """A view that has everything that the store has now.

        Raises:
            Unavailable: the store is out of reach, or lost writes that the view still has.
            DeadlineExceeded: it did not answer by then.
        """
        view = replica.loaded()
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
            replica.look()
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

        The old replica finds out by itself, but whoever holds a revision of the new history must
        not wait for that.

        Raises:
            IdentityChanged: the token is of the store's history, which nobody accepted yet.
        """
        head = self._head(replica.cluster, deadline)
        if replica.loaded().identity in head.dropped:
            self._forget(replica)
            replica.stop()
            return self._loaded(replica.cluster, deadline)
        if token.identity == head.identity:
            raise changed(replica.cluster)
        return replica

    # ------------------------------ histories

    def identity(self, cluster: str) -> str:
        """Identity of the history that is followed, or else was written to; empty for none."""
        replica = self._replicas.get(cluster)
        view = None if replica is None or replica.gone else replica.view
        if view is not None:
            return view.identity
        written = self._written.get(cluster)
        return "" if written is None else written.identity

    def wrote(self, cluster: str, identity: str) -> None:
        """Remember what was written to, as long as it is not followed.

        Else a store that comes back empty would be filled anew by whoever only writes.
        """
        replica = self._replicas.get(cluster)
        if replica is not None and replica.view is not None:
            self._written.pop(cluster, None)
        elif cluster not in self._written and len(self._written) < self._most:
            self._written[cluster] = Succession(identity)

    def reconcile(self, cluster: str) -> str:
        """Look whether the store's history of a cluster may take the place of the one followed.

        Returns:
            The identity that is meant from now on; empty when there is no cluster.

        Raises:
            IdentityChanged: nobody said that the store's history is meant.
            StoreUnavailable: it cannot be looked at.
        """
        replica = self._replicas.get(cluster)
        if replica is None or replica.view is None:
            return self._reconcile_written(cluster)
        fate, head = replica.judge()
        if fate is Fate.LOST:
            raise changed(cluster)
        if fate is Fate.DROPPED:
            self._forget(replica)
            replica.stop()
        elif fate is Fate.SUCCEEDED:
            replica.look()
        return head.identity

    def _reconcile_written(self, cluster: str) -> str:
        """As reconcile(), for what is not followed."""
        head = self._source.head(cluster)
        written = self._written.get(cluster)
        if written is not None:
            fate = written.judge(head)
            # A store remembers the last few that were dropped, and nobody looked here meanwhile:
            # ours may be an older one. One that came back empty remembers none.
            if fate is Fate.LOST and not head.dropped:
                raise changed(cluster)
            if fate is not Fate.SAME:
                self._written.pop(cluster, None)
        return head.identity

    def accept(self, cluster: str, identity: str, deadline: float) -> Token:
        """Take the store's history as meant, here and for all who follow the same store.

        Args:
            cluster: its name.
            identity: of the history that is meant; empty for none.
            deadline: of the call, on the monotonic clock.

        Returns:
            The revision from which it is followed.

        Raises:
            ClusterNotFound: neither the store nor this server has the cluster.
            IdentityChanged: the store has another history by now; nothing was accepted.
            DeadlineExceeded: it is accepted, but not loaded yet.
            StoreUnavailable: nothing was accepted.
        """
        head = self._head(cluster, deadline)
        if head.identity != identity:
            if not head.identity and not self.identity(cluster):
                raise ClusterNotFound(cluster, "is not known")
            raise IdentityChanged(
                f"the store has another history of cluster {cluster!r} by now than the one that is"
                " to be accepted, or none: look at it again (GetCluster)"
            )
        self._source.vouch(cluster, LISTED_KINDS, identity=head.identity)
        self._written.pop(cluster, None)
        replica = self._replicas.get(cluster)
        if replica is not None and self.identity(cluster) not in ("", head.identity):
            replica.accept(head.identity, deadline)
        return Token(head.identity, head.revision)

    def _loaded(self, cluster: str, deadline: float) -> Replica:
        leave = self._entering_wait()
        try:
            while True:
                replica = self._started(cluster)
                replica.wait_loaded(deadline)
                if not replica.gone:
                    return replica
        finally:
            leave()

    def _started(self, cluster: str) -> Replica:
        with self._lock:
            if self._closed:
                raise ShuttingDown("the server is going away: try another one")
            replica = self._replicas.get(cluster)
            if replica is None or replica.gone:
                check_cluster(cluster)
                if len(self._replicas) >= self._most and replica is None:
                    raise TooManyClusters(
                        f"this server follows {self._most} clusters already, as many as"
                        " --max-clusters and its limit of open files allow",
                        self._most,
                    )
                replica = Replica(cluster, self._source, self._options, on_gone=self._forget)
                self._replicas[cluster] = replica
                replica.start()
            return replica

    def _forget(self, replica: Replica) -> None:
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
        """Load clusters before the first call asks for them.

        Raises:
            DeadlineExceeded: not all were loaded in time.
        """
        for replica in [self._started(cluster) for cluster in clusters]:
            replica.wait_loaded(deadline)

    def at_hand(self, cluster: str) -> Replica | None:
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


def changed(cluster: str) -> IdentityChanged:
    """What is said of a history that nobody accepted."""
    return IdentityChanged(
        f"the store has another history of cluster {cluster!r} than this server, or none: if that "
        "is meant, accept it (`topospread store accept`), or replace all kinds"
    )


def _nothing() -> None:
    return None


def _ignore(_: float) -> None:
    return None
