"""Objects, lists, watches, the node table and the clusters: what the state is."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import (
    ClusterNotFound,
    ObjectNotFound,
    StoreUnavailable,
)
from topospread.replica.replicas import Consistency, Freshness, Replicas
from topospread.replica.view import Token, View
from topospread.service.watch import watch
from topospread.store.checks import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from topospread.replica.replica import Replica
    from topospread.service.pages import PageAsk
    from topospread.service.watch import Asked, Watched
    from topospread.store.api import Head, Key, Kind, Store, StoredObject

PAGE_BYTES: Final = 3 << 20
"""Of the objects of a page as they are stored, if it has more than one. A page that is answered
fits into the 4 MiB that gRPC clients take unless they are told otherwise.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of objects.

    Attributes:
        next: token of the next page; empty on the last.
    """

    token: str
    objects: Sequence[StoredObject]
    next: str


@dataclass(frozen=True, slots=True)
class Followed:
    """A cluster that the store has, or this process follows.

    Attributes:
        head: None when the store is out of reach.
        replica: None when this process does not follow it.
    """

    name: str
    head: Head | None
    replica: Replica | None


class Reads:
    """Reads clusters: objects from the store, names from the index."""

    def __init__(self, store: Store, replicas: Replicas) -> None:
        self._store = store
        self._replicas = replicas

    def get(self, cluster: str, key: Key) -> tuple[str, StoredObject]:
        """One object as it is now, and a revision that it is at least as old as.

        Raises:
            NotFound: no such cluster or object.
            CorruptValue: its value cannot be read.
        """
        head = self._head(cluster)
        stored = self._store.get(cluster, key)
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
        ask: PageAsk,
    ) -> Page:
        """A page of the objects of one kind, ordered by namespace and name as bytes.

        Args:
            cluster: its name.
            kind: of the objects.
            namespace: empty for all.
            matches: which objects to answer.
            ask: which page; it ends at PAGE_BYTES, too.

        Raises:
            InvalidRequest: a page token or size that cannot be.
            NotFound: no such cluster.
        """
        first = _First(ask.most)
        token, after = ask.place()
        token = token or _token(self._head(cluster))
        for page in self._store.scan(cluster, kind=kind):
            for stored in page:
                checkpoint()
                if (
                    stored.digest
                    and (not namespace or stored.key.namespace == namespace)
                    and _place(stored) > after
                    and matches(stored)
                ):
                    first.see(stored)
        objects = first.objects
        last = objects[-1].key if first.more else None
        more = "" if last is None else ask.next(token, last.namespace, last.name)
        return Page(token, objects, more)

    def watch(self, asked: Asked, active: Callable[[], bool]) -> Iterator[Watched]:
        """Changes as they happen, until the caller is gone; see :func:`~.watch.watch`."""
        return watch(self._store, asked, active)

    def node_table(
        self, cluster: str, consistency: Consistency, deadline: float
    ) -> tuple[Replica, View]:
        """The view whose node table is current."""
        return self._replicas.resolve(cluster, consistency, deadline)

    def fresh(self, cluster: str, consistency: Consistency, deadline: float) -> None:
        """Wait until the store is known to have a revision: objects are read from it directly.

        Raises:
            As Replicas.resolve.
        """
        if consistency.freshness in (Freshness.AT_LEAST_AS_FRESH, Freshness.NOT_OLDER_THAN):
            self._replicas.resolve(cluster, consistency, deadline)

    def clusters(
        self, shown: Callable[[str], bool], ask: PageAsk
    ) -> tuple[Sequence[Followed], str]:
        """A page of the store's clusters, and of those that are followed although it lost them.

        Args:
            shown: which of them, by name.
            ask: which page.

        Returns:
            The clusters by name, and the token of the next page; empty on the last.

        Raises:
            InvalidRequest: a page token or size that cannot be.
            StoreUnavailable: it is out of reach and nothing is followed.
        """
        most, after = ask.most, "".join(ask.words(1))
        running = {replica.cluster: replica for replica in self._replicas.running()}

        def page(names: Collection[str]) -> tuple[Sequence[str], str]:
            rest = sorted(name for name in {*names, *running} if name > after and shown(name))
            return rest[:most], ask.next(rest[most - 1]) if len(rest) > most else ""

        try:
            names, more = page(self._store.clusters())
            heads = [(name, self._store.head(name)) for name in names]
            return [Followed(name, head, running.get(name)) for name, head in heads], more
        except StoreUnavailable:
            if not running:
                raise
            names, more = page(())
            return [Followed(name, None, running[name]) for name in names], more

    def cluster(self, name: str) -> Followed:
        """One cluster of the store, or one that is followed although the store has lost it.

        Raises:
            NotFound: there is no such cluster.
            StoreUnavailable: it is out of reach and the cluster is not followed.
        """
        check_cluster(name)
        replica = self._replicas.at_hand(name)
        try:
            head = self._store.head(name)
        except StoreUnavailable:
            if replica is None:
                raise
            return Followed(name, None, replica)
        if replica is None and not head.identity:
            raise ClusterNotFound(name)
        return Followed(name, head, replica)

    def _head(self, cluster: str) -> Head:
        head = self._store.head(cluster)
        if not head.identity:
            raise ClusterNotFound(cluster)
        return head


def _place(stored: StoredObject) -> tuple[bytes, bytes]:
    """Where an object stands in the order of pages."""
    return stored.key.namespace.encode(), stored.key.name.encode()


class _First:
    """The first of the objects that are seen, as many as one page has; no others are kept.

    Args:
        most: objects.

    Attributes:
        objects: in order.
        more: whether others come after them.
    """

    def __init__(self, most: int) -> None:
        self.objects: list[StoredObject] = []
        self.more = False
        self._most = most
        self._bytes = 0
        # What comes from here on belongs to later pages.
        self._end: tuple[bytes, bytes] | None = None

    def see(self, stored: StoredObject) -> None:
        """One more object, in any order."""
        if self._end is not None and _place(stored) >= self._end:
            return
        insort(self.objects, stored, key=_place)
        self._bytes += len(stored.payload)
        while len(self.objects) > self._most or (
            self._bytes > PAGE_BYTES and len(self.objects) > 1
        ):
            last = self.objects.pop()
            self._bytes -= len(last.payload)
            self._end = _place(last)
            self.more = True


def _token(head: Head) -> str:
    return Token(head.identity, head.revision).encode()
