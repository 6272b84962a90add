"""Reads of the state: objects, lists, watches, the node table and the clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import (
    ClusterNotFound,
    ObjectNotFound,
    RevisionOfOtherHistory,
    StoreUnavailable,
)
from topospread.replica.view import Consistency, Freshness, Token, View
from topospread.service.state.log import existing_head, watch
from topospread.store.api import get_one
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.service.state.log import WatchEvent, WatchRequest
    from topospread.service.state.pages import PageRequest, Place
    from topospread.store.api import Reader
    from topospread.store.model import Head, Key, Kind, Lease, StoredObject


PAGE_BYTES: Final = 3 << 20
"""Of the objects of a page as they are stored, if it has more than one. A page that is answered
fits into the 4 MiB that gRPC clients take by default.
"""

READ_OBJECTS: Final = 5000
READ_BYTES: Final = 16 << 20
"""Of the objects that are read for a page, about: a selector may match few of them, or none. The
page ends there, and the next one goes on.
"""

SMALLEST_SCAN: Final = 100
LARGEST_SCAN: Final = 1000
"""Objects that are read at once: Redis serves nobody else meanwhile."""


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of objects.

    Attributes:
        next: token of the next page; empty on the last.
    """

    token: str
    objects: Sequence[StoredObject]
    next: str


@dataclass(frozen=True, slots=True)
class FollowedCluster:
    """A cluster that the store has, or this process follows.

    Attributes:
        head: None when the store is out of reach.
        lease: of the server that syncs it; None when the store is out of reach.
        replica: None when this process does not follow it.
    """

    name: str
    head: Head | None
    lease: Lease | None
    replica: Replica | None


class StateReader:
    """Reads clusters: objects from the store, names from the index."""

    def __init__(self, store: Reader, replicas: Replicas) -> None:
        self._store = store
        self._replicas = replicas

    def get(self, cluster: str, key: Key) -> tuple[str, StoredObject]:
        """One object as it is now, and a revision that it is at least as old as.

        Raises:
            NotFound: no such cluster or object.
            CorruptValue: its value cannot be read.
        """
        head = existing_head(self._store, cluster)
        stored = get_one(self._store, cluster, key)
        if stored is None:
            where = f"{key.namespace}/" if key.namespace else ""
            kind, name = key.kind.name, f"{where}{key.name}"
            text = f"{kind.lower()} {name} is not in cluster {cluster!r}"
            raise ObjectNotFound(text, kind.title().replace("_", ""), name, cluster)
        return _token(head), stored

    def list(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        matches: Callable[[StoredObject], bool],
        request: PageRequest,
    ) -> ObjectPage:
        """A page of the objects of one kind, ordered by namespace and name as bytes.

        Pages are read one after the other, each as new as its call or newer. All tell the first
        one's revision, so that who watches from it misses nothing. One ends at PAGE_BYTES, and
        after READ_OBJECTS or READ_BYTES that were read for it.

        Args:
            cluster: its name.
            kind: of the objects.
            namespace: empty for all.
            matches: which objects to answer.
            request: which page.

        Raises:
            InvalidRequest: a page token or size that cannot be.
            NotFound: no such cluster.
            RevisionUnavailable: it has another history than at the first page.
        """
        first, after = request.place(namespace)
        head = existing_head(self._store, cluster)
        if first and Token.decode(first).identity != head.identity:
            raise RevisionOfOtherHistory(
                f"cluster {cluster!r} has another history than at the list's first page: begin it"
                " anew, without a page token"
            )
        revision = first or _token(head)
        objects, last = self._page(cluster, kind, namespace, matches, after, request.most)
        more = "" if last is None else request.next(revision, *last)
        return ObjectPage(revision, objects, more)

    def _page(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        matches: Callable[[StoredObject], bool],
        after: Place,
        most: int,
    ) -> tuple[Sequence[StoredObject], Place | None]:
        """The objects of a page, and what the next one comes after; None when this is the last."""
        objects: list[StoredObject] = []
        size = read = read_bytes = 0
        place: Place | None = after
        while place is not None:
            if read >= READ_OBJECTS or read_bytes >= READ_BYTES:
                return objects, after
            limit = min(max(most + 1 - len(objects), SMALLEST_SCAN), LARGEST_SCAN)
            page = self._store.scan(
                cluster, kind, namespace=namespace, after=place, limit=limit, max_bytes=PAGE_BYTES
            )
            for stored in page.objects:
                checkpoint()
                read += 1
                read_bytes += len(stored.payload)
                # What cannot be read counts as absent.
                if stored.digest and matches(stored):
                    size += len(stored.payload)
                    if len(objects) == most or (objects and size > PAGE_BYTES):
                        return objects, after
                    objects.append(stored)
                after = (stored.key.namespace, stored.key.name)
            place = page.last
            after = place or after
        return objects, None

    def watch(self, asked: WatchRequest, active: Callable[[], bool]) -> Iterator[WatchEvent]:
        """Changes as they happen, until the caller is gone; see :func:`~.log.watch`."""
        return watch(self._store, asked, active)

    def view(self, cluster: str, consistency: Consistency, deadline: float) -> tuple[Replica, View]:
        """A fresh enough view of a cluster, which is loaded if it is not followed yet.

        Raises:
            As Replicas.resolve.
        """
        return self._replicas.resolve(cluster, consistency, deadline)

    def fresh(self, cluster: str, consistency: Consistency, deadline: float) -> None:
        """Wait until the store is known to have a revision: objects are read from it directly.

        Raises:
            As Replicas.resolve.
        """
        if consistency.freshness in (Freshness.AT_LEAST_AS_FRESH, Freshness.NOT_OLDER_THAN):
            self._replicas.resolve(cluster, consistency, deadline)

    def clusters(
        self, shown: Callable[[str], bool], request: PageRequest
    ) -> tuple[Sequence[FollowedCluster], str]:
        """A page of the store's clusters, and of those that are followed although it lost them.

        Args:
            shown: which of them, by name.
            request: which page.

        Returns:
            The clusters by name, and the token of the next page; empty on the last.

        Raises:
            InvalidRequest: a page token or size that cannot be.
            StoreUnavailable: it is out of reach and nothing is followed.
        """
        most, after = request.most, "".join(request.words(1))
        running = {replica.cluster: replica for replica in self._replicas.running()}
        # One without a view is only looked for.
        loaded = {name for name, replica in running.items() if replica.view is not None}

        def page(names: Collection[str]) -> tuple[Sequence[str], str]:
            rest = sorted(name for name in names if name > after and shown(name))
            return rest[:most], request.next(rest[most - 1]) if len(rest) > most else ""

        try:
            names, more = page({*self._store.clusters(), *loaded})
            return [self._in_store(name, running.get(name)) for name in names], more
        except StoreUnavailable:
            if not running:
                raise
            names, more = page(running)
            return [FollowedCluster(name, None, None, running[name]) for name in names], more

    def cluster(self, name: str) -> FollowedCluster:
        """One cluster of the store, or one that is followed although the store has lost it.

        Raises:
            NotFound: there is no such cluster.
            StoreUnavailable: it is out of reach and the cluster is not followed.
        """
        check_cluster(name)
        replica = self._replicas.get(name)
        try:
            found = self._in_store(name, replica)
        except StoreUnavailable:
            if replica is None:
                raise
            return FollowedCluster(name, None, None, replica)
        there = found.head is not None and found.head.identity
        if not there and (replica is None or replica.view is None):
            raise ClusterNotFound(name)
        return found

    def _in_store(self, name: str, replica: Replica | None) -> FollowedCluster:
        return FollowedCluster(name, self._store.head(name), self._store.lease(name), replica)


def _token(head: Head) -> str:
    return Token(head.identity, head.revision).encode()
