"""Get, List, Watch, NodeTable and the list of clusters: what the state is."""

from __future__ import annotations

import base64
import binascii
from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import (
    FieldViolation,
    IdentityChanged,
    InvalidRequest,
    NotFound,
    RevisionUnavailable,
    StoreUnavailable,
)
from topospread.replica.replicas import Consistency, Freshness, Replicas
from topospread.replica.view import Token, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.replica.replica import Replica
    from topospread.store.api import Head, Key, Kind, LogEntry, Store, StoredObject

DEFAULT_PAGE: Final = 500
MAX_PAGE: Final = 5000

PAGE_BYTES: Final = 3 << 20
"""Of the objects of a page as they are stored, if it has more than one. A page that is answered
fits into the 4 MiB that gRPC clients take unless they are told otherwise.
"""

WATCH_POLL: Final = 0.5
"""Seconds that a watch waits for changes before it looks whether its caller is still there."""


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
            kind = key.kind.name.lower()
            raise NotFound(f"{kind} {where}{key.name} is not in cluster {cluster!r}")
        return _token(head), stored

    def list(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        matches: Callable[[StoredObject], bool],
        page_size: int,
        page_token: str,
    ) -> Page:
        """A page of the objects of one kind, ordered by namespace and name as bytes.

        Args:
            cluster: its name.
            kind: of the objects.
            namespace: empty for all.
            matches: which objects to answer.
            page_size: objects at most; 0 is the default of 500. A page ends at PAGE_BYTES, too.
            page_token: where the last page ended; empty for the first.

        Raises:
            InvalidRequest: a page token or size that cannot be.
            NotFound: no such cluster.
        """
        if page_size > MAX_PAGE:
            raise InvalidRequest(f"pageSize: at most {MAX_PAGE}")
        first_token, after = _decode_page(page_token)
        token = first_token or _token(self._head(cluster))
        first = _First(page_size or DEFAULT_PAGE)
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
        more = _encode_page(token, objects[-1].key) if first.more else ""
        return Page(token, objects, more)

    def watch(
        self, cluster: str, after: Token | None, active: Callable[[], bool]
    ) -> Iterator[tuple[str, Sequence[LogEntry]]]:
        """Changes after a revision as they happen, until the caller is gone.

        Raises:
            NotFound: no such cluster.
            RevisionUnavailable: the log no longer reaches the revision, or the cluster is another
                one.
        """
        head = self._head(cluster)
        token = after or Token(head.identity, head.revision)
        revision = token.revision
        while active():
            try:
                batch = self._store.follow(cluster, token.identity, revision, wait=WATCH_POLL)
            except IdentityChanged as cause:
                raise RevisionUnavailable(
                    "the revision belongs to another store or a dropped cluster: list again"
                ) from cause
            for transaction in batch:
                revision = transaction.revision
                yield Token(token.identity, revision).encode(), transaction.entries

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
        if consistency.freshness is Freshness.AT_LEAST_AS_FRESH:
            self._replicas.resolve(cluster, consistency, deadline)

    def clusters(self) -> Sequence[Followed]:
        """All clusters of the store, and those that are followed although it has lost them.

        Raises:
            StoreUnavailable: it is out of reach and nothing is followed.
        """
        running = {replica.cluster: replica for replica in self._replicas.running()}
        try:
            stored = self._store.clusters()
            return [
                Followed(name, self._store.head(name), running.get(name))
                for name in sorted({*stored, *running})
            ]
        except StoreUnavailable:
            if not running:
                raise
            return [Followed(name, None, replica) for name, replica in sorted(running.items())]

    def _head(self, cluster: str) -> Head:
        head = self._store.head(cluster)
        if not head.identity:
            raise NotFound(f"cluster {cluster!r} is not known: apply objects to it first")
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


def _encode_page(token: str, key: Key) -> str:
    text = "\0".join((token, key.namespace, key.name))
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode_page(text: str) -> tuple[str, tuple[bytes, bytes]]:
    if not text:
        return "", (b"", b"")
    try:
        token, namespace, name = base64.urlsafe_b64decode(text.encode()).split(b"\0")
        Token.decode(token.decode())
        return token.decode(), (namespace, name)
    except (ValueError, binascii.Error, InvalidRequest) as cause:
        raise InvalidRequest.of(
            [FieldViolation("pageToken", "must be the token of an earlier page", bad_value=text)]
        ) from cause
