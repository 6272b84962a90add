"""Reading the log: changes as they happen, after all that there is."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import (
    ClusterNotFound,
    IdentityChanged,
    RevisionCompacted,
    RevisionOfOtherHistory,
)
from topospread.replica.view import Token, check_continued, compacted, log_until
from topospread.store.api import scan_all
from topospread.store.model import Kind, LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from topospread.store.api import Reader
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


def watch(store: Reader, asked: WatchRequest, active: Callable[[], bool]) -> Iterator[WatchEvent]:
    """Changes after a revision as they happen, until the caller is gone.

    A caller that gave no revision first gets the one it begins at, to be able to resume.

    Raises:
        ClusterNotFound: no such cluster.
        RevisionUnavailable: while they are read: the log no longer reaches the revision, or the
            cluster is another one.
        LimitExceeded: while they are read: of what there is, more than may be kept.
    """
    return _changes(store, asked, existing_head(store, asked.cluster), active)


def _changes(
    store: Reader, asked: WatchRequest, head: Head, active: Callable[[], bool]
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
    store: Reader, asked: WatchRequest, kinds: Collection[Kind], head: Head
) -> Generator[WatchEvent, None, Token]:
    """The initial objects, all at one revision, which is returned."""
    with asked.share() as take:
        objects: dict[Key, StoredObject] = {}

        def keep(item: StoredObject) -> None:
            # What cannot be read counts as absent.
            if item.key.kind in kinds and item.digest:
                take(OBJECT_BYTES + len(item.payload))
                objects[item.key] = item

        for kind in sorted(kinds):
            for page in scan_all(store, asked.cluster, kind):
                for item in page:
                    checkpoint()
                    keep(item)
        # Others wrote while it was read: all of it is brought to one revision.
        target = existing_head(store, asked.cluster)
        check_continued(head.identity, head.revision, target)
        revision = head.revision
        for transactions in log_until(
            lambda after: _follow(store, asked.cluster, head.identity, after, 0),
            revision,
            target.revision.number,
        ):
            for transaction in transactions:
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


def existing_head(store: Reader, cluster: str) -> Head:
    """The head of a cluster that there is.

    Raises:
        ClusterNotFound: there is none.
    """
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    return head


def _follow(
    store: Reader, cluster: str, identity: str, after: Revision, wait: float
) -> Sequence[Transaction]:
    try:
        return store.follow(cluster, identity, after, wait=wait)
    except IdentityChanged as cause:
        raise RevisionOfOtherHistory(
            "the revision belongs to another store or a deleted cluster: list again"
        ) from cause
    except RevisionCompacted as cause:
        raise compacted(str(cause), identity, cause) from cause
