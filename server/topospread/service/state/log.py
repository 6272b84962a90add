"""Reading the log: changes as they happen, and lists at exactly one revision."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.errors import (
    ClusterLoading,
    ClusterNotFound,
    IdentityChanged,
    RevisionCompacted,
    RevisionOfOtherHistory,
    RevisionUnavailable,
)
from topospread.replica.history import compacted
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.state.listing import stretches
from topospread.store.model import Kind, LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.store.api import ReadStore
    from topospread.store.model import Head, Key, Revision, StoredObject, Transaction


POLL: Final = 0.5
"""Seconds that a watch waits for changes before it looks whether its caller is still there."""

BOOKMARK_ENTRIES: Final = 1000
"""Log entries of other kinds after which a watch sends a bookmark, though changes keep
coming: few enough that the log still reaches the last bookmark.
"""

INITIAL_OBJECTS: Final = 500
INITIAL_BYTES: Final = 1 << 20
"""Of a message of what there is, if it has more than one object."""

OBJECT_BYTES: Final = 1024
"""Memory that an object takes beside its stored form, at most."""

WATCHED: Final = frozenset(Kind) - {Kind.PROGRESS}

Objects = dict["Key", "StoredObject"]

LIMIT: Final = 1000
"""Log entries read at once."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The request of a watch.

    Attributes:
        kinds: empty for all.
        after: the revision to begin after; None: the present one.
        initial: whether to begin with what there is, at the present revision.
        share: returns a function that is called with the bytes of the initial objects before they
            are kept.
    """

    cluster: str
    kinds: Collection[Kind] = ()
    after: Token | None = None
    initial: bool = False
    share: Callable[[], AbstractContextManager[Callable[[int], object]]] = lambda: nullcontext(id)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Changes of one transaction.

    Attributes:
        token: of the revision that a watch may go on from; empty amid what there is.
        entries: none: nothing of the kinds that were asked for has changed up to the revision.
    """

    token: str
    entries: Sequence[LogEntry] = ()


def watch(
    store: ReadStore, asked: WatchRequest, active: Callable[[], bool]
) -> Iterator[WatchEvent]:
    """Changes after a revision as they happen, until the caller is gone.

    A caller that gave no revision first gets the one it begins at, to be able to resume.

    Raises:
        ClusterNotFound: no such cluster.
        RevisionUnavailable: while they are read: the log no longer reaches the revision, or the
            cluster is another one.
        LimitExceeded: while they are read: of what there is, more than may be kept.
    """
    return _changes(store, asked, _head(store, asked.cluster), active)


def _changes(
    store: ReadStore, asked: WatchRequest, head: Head, active: Callable[[], bool]
) -> Iterator[WatchEvent]:
    kinds = WATCHED if not asked.kinds else frozenset(asked.kinds)
    token = asked.after or Token(head.identity, head.revision)
    if asked.initial:
        token = yield from _initial(store, asked, kinds, head)
    if asked.after is None:
        yield WatchEvent(token.encode())
    revision = sent = token.revision
    passed = 0
    while active():
        found = _follow(store, asked.cluster, token.identity, revision, POLL)
        for transaction in found:
            revision = transaction.revision
            entries = [entry for entry in transaction.entries if entry.key.kind in kinds]
            passed += len(transaction.entries)
            if entries:
                yield WatchEvent(Token(token.identity, revision).encode(), entries)
                sent, passed = revision, 0
        if sent != revision and (not found or passed >= BOOKMARK_ENTRIES):
            yield WatchEvent(Token(token.identity, revision).encode())
            sent, passed = revision, 0


def _initial(
    store: ReadStore, asked: WatchRequest, kinds: Collection[Kind], head: Head
) -> Generator[WatchEvent, None, Token]:
    """The initial objects, all at one revision, which is returned."""
    with asked.share() as take:
        objects: dict[Key, StoredObject] = {}

        def keep(item: StoredObject) -> None:
            # What cannot be read counts as absent.
            if item.key.kind in kinds and item.digest:
                take(OBJECT_BYTES + len(item.payload))
                objects[item.key] = item

        # One kind after the other, so that a watch of nodes does not read the pods.
        for kind in (None,) if kinds == WATCHED else sorted(kinds):
            for page in store.scan(asked.cluster, kind=kind):
                for item in page:
                    checkpoint()
                    keep(item)
        # Others wrote while it was read: all of it is brought to one revision.
        target = _head(store, asked.cluster)
        revision = head.revision
        while revision.number < target.revision.number:
            for transaction in _follow(store, asked.cluster, head.identity, revision, 0):
                revision = transaction.revision
                for entry in transaction.entries:
                    objects.pop(entry.key, None)
                    if entry.object is not None:
                        keep(entry.object)
        yield from _messages(objects.values())
    return Token(head.identity, revision)


def _messages(objects: Collection[StoredObject]) -> Iterator[WatchEvent]:
    entries: list[LogEntry] = []
    size = 0
    for item in objects:
        if entries and (
            len(entries) >= INITIAL_OBJECTS or size + len(item.payload) > INITIAL_BYTES
        ):
            yield WatchEvent("", entries)
            entries, size = [], 0
        entries.append(LogEntry(item.key, item))
        size += len(item.payload)
    if entries:
        yield WatchEvent("", entries)


def _head(store: ReadStore, cluster: str) -> Head:
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    return head


def _follow(
    store: ReadStore, cluster: str, identity: str, after: Revision, wait: float
) -> Sequence[Transaction]:
    try:
        return store.follow(cluster, identity, after, wait=wait)
    except IdentityChanged as cause:
        raise RevisionOfOtherHistory(
            "the revision belongs to another store or a deleted cluster: list again"
        ) from cause
    except RevisionCompacted as cause:
        raise compacted(str(cause), identity, cause) from cause


@dataclass(frozen=True, slots=True)
class ChosenObjects:
    """The objects to list.

    Attributes:
        namespace: empty for all.
    """

    kinds: Collection[Kind]
    namespace: str = ""

    def has(self, key: Key) -> bool:
        """Whether an object is among them."""
        return key.kind in self.kinds and self.namespace in ("", key.namespace)


@dataclass(slots=True, eq=False)
class ListedObjects:
    """Objects at a view's revision.

    Attributes:
        objects: values that cannot be read have an empty digest.
    """

    store: ReadStore
    replica: Replica
    view: View
    chosen: ChosenObjects
    objects: Objects

    def readable(self) -> list[StoredObject]:
        """All but the values that cannot be read, by name: stores list in orders of their own."""
        found = [item for item in self.objects.values() if item.digest]
        return sorted(found, key=lambda item: (item.key.kind, item.key.namespace, item.key.name))


def newest_view(
    store: ReadStore, replicas: Replicas, cluster: str, demand: Consistency, deadline: float
) -> tuple[Replica, View]:
    """A view that has all that the store has at the call, and who follows the cluster.

    Raises:
        Unavailable: the store is out of reach, or its history ended meanwhile.
        And what Replicas.resolve raises.
    """
    # First, so that a demand for a revision is refused before anything is read.
    replicas.resolve(cluster, demand, deadline)
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    token = Token(head.identity, head.revision)
    fresh = Consistency(Freshness.AT_LEAST_AS_FRESH, token, demand.max_staleness)
    with ended_meanwhile(cluster):
        return replicas.resolve(cluster, fresh, deadline)


def list_at_revision(
    store: ReadStore,
    replicas: Replicas,
    cluster: str,
    demand: Consistency,
    deadline: float,
    chosen: ChosenObjects,
) -> ListedObjects:
    """A view, and the objects that the store had at its revision.

    They are read from the store, and the log followed from before that to the view's revision.

    Args:
        store: where the objects are.
        replicas: where the views are.
        cluster: its name.
        demand: how fresh the view must be.
        deadline: of the call, on the monotonic clock.
        chosen: the objects to return; no others are read.

    Raises:
        Unavailable: the store is out of reach, or its history ended meanwhile.
        And what Replicas.resolve raises.
    """
    # First, so that a demand for a revision is refused before anything is read.
    replica, view = replicas.resolve(cluster, demand, deadline)
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    listed = ListedObjects(store, replica, view, chosen, {})
    turn = CooperativeYield(deadline, "the cluster was read")
    for kind in sorted(chosen.kinds):
        for stretch in stretches(store, cluster, kind, chosen.namespace):
            for item in stretch:
                turn()
                if chosen.has(item.key):
                    listed.objects[item.key] = item
    with ended_meanwhile(cluster):
        if view.identity != head.identity:
            raise IdentityChanged("another history")
        reached = _follow_until(listed, head.revision, None)
        token = Token(head.identity, reached)
        fresh = Consistency(Freshness.AT_LEAST_AS_FRESH, token, demand.max_staleness)
        listed.replica, listed.view = replicas.resolve(cluster, fresh, deadline)
        _follow_until(listed, reached, listed.view.revision)
    return listed


@contextmanager
def ended_meanwhile(cluster: str) -> Iterator[None]:
    """Turn what a store says of a history that ended into an error by which callers try again."""
    try:
        yield
    except (IdentityChanged, RevisionUnavailable) as cause:
        raise ClusterLoading(
            f"cluster {cluster!r} was deleted, loaded anew or changed in large part while it was"
            " being read: try again"
        ) from cause


def _follow_until(listed: ListedObjects, after: Revision, until: Revision | None) -> Revision:
    """Bring objects up to a revision, or to where the log ends now."""
    cluster, identity = listed.replica.cluster, listed.view.identity
    while until is None or after.number < until.number:
        transactions = listed.store.follow(cluster, identity, after, wait=0, limit=LIMIT)
        if not transactions:
            break
        for transaction in transactions:
            if until is not None and transaction.revision.number > until.number:
                return until
            after = transaction.revision
            for entry in transaction.entries:
                checkpoint()
                if not listed.chosen.has(entry.key):
                    continue
                if entry.object is None:
                    listed.objects.pop(entry.key, None)
                else:
                    listed.objects[entry.key] = entry.object
    return after
