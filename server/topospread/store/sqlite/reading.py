"""Scans in key order, one short statement per page, and follows the log.

A follower reads, then waits until this process writes or another one changes the file.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, RevisionCompacted, StoreUnavailable
from topospread.store import rules, values
from topospread.store.model import Key, Kind, Revision, StoredObject, Transaction
from topospread.store.sqlite import clusters

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.notifier import Notifier, Waiter
    from topospread.store.sqlite.clusters import ClusterRow
    from topospread.store.sqlite.connections import Connections


_KINDS = {kind.value: kind for kind in Kind}

BUSY_POLL: Final = 0.002
IDLE_POLL: Final = 0.02
BUSY_SECONDS: Final = 1.0
"""Other processes' writes are polled for: every 2 ms for a second after news or a wake, else 20."""

BROKEN_POLL: Final = 0.1
"""Seconds between two looks while no file can be watched."""

SHARE: Final = 10
"""Of the time, one part in so many goes into polling at most, however many clusters there are."""


def scan(
    connections: Connections, name: str, page: int, kind: Kind | None
) -> Iterator[Sequence[StoredObject]]:
    """Pages of a cluster's objects, or of those of one kind.

    Each page is of one moment, the next one of a later.
    """
    with connections.reading() as connection:
        opening = connection.opening
        cluster = clusters.load(connection, name)
    if cluster is None:
        return
    # Names are never empty, so that all of a kind come after the first of these.
    last, last_kind = ((0, "", ""), max(_KINDS)) if kind is None else ((kind, "", ""), kind)
    while True:
        with connections.reading() as connection:
            if connection.opening != opening:
                raise StoreUnavailable("the store's file was replaced while it was read: retry")
            rows = connection.execute(
                "SELECT kind, namespace, name, value FROM object WHERE cluster = ? "
                "AND (kind, namespace, name) > (?, ?, ?) AND kind <= ? "
                "ORDER BY kind, namespace, name LIMIT ?",
                (cluster.id, *last, last_kind, page),
            ).fetchall()
        if not rows:
            return
        yield [
            _object(_KINDS[kind], namespace, name, value)
            for kind, namespace, name, value in rows
            if kind in _KINDS
        ]
        last = rows[-1][:3]


def read_range(
    connection: sqlite3.Connection,
    cluster: ClusterRow,
    kind: Kind,
    namespace: str,
    after: tuple[str, str],
    limit: int,
    max_bytes: int,
) -> tuple[list[StoredObject], bool]:
    """The objects that come after a key, and whether there may be more."""
    where, bounds = "(namespace, name) > (?, ?)", after
    if namespace:
        where, bounds = "namespace = ? AND name > ?", (namespace, after[1])
    rows = connection.execute(
        f"SELECT namespace, name, value FROM object WHERE cluster = ? AND kind = ? AND {where} "
        # Others were not written by us, and come behind all that were.
        "AND typeof(namespace) = 'text' AND typeof(name) = 'text' "
        "ORDER BY namespace, name LIMIT ?",
        (cluster.id, kind.value, *bounds, limit),
    )
    found: list[StoredObject] = []
    size = 0
    for space, name, value in rows:
        found.append(_object(kind, space, name, value))
        size += len(found[-1].payload)
        if size >= max_bytes:
            return found, True
    return found, len(found) == limit


def read_keys(
    connection: sqlite3.Connection, cluster: ClusterRow, keys: Sequence[Key]
) -> list[StoredObject]:
    """The objects with these keys that are there."""
    found: list[StoredObject] = []
    for key in keys:
        row = connection.execute(
            "SELECT value FROM object "
            "WHERE cluster = ? AND kind = ? AND namespace = ? AND name = ?",
            (cluster.id, key.kind.value, key.namespace, key.name),
        ).fetchone()
        if row is not None:
            found.append(values.unpack(key, clusters.blob(row[0])))
    return found


def read_undo(
    connection: sqlite3.Connection,
    cluster: ClusterRow,
    since: Revision,
    wanted: Callable[[Key], bool],
) -> dict[Key, StoredObject | None]:
    """What the transactions after a revision have replaced."""
    rows = connection.execute(
        "SELECT number, entries FROM undo WHERE cluster = ? AND number > ? ORDER BY number",
        (cluster.id, since.number),
    )
    replaced: dict[Key, StoredObject | None] = {}
    reached = since.number
    for number, blob in rows:
        reached += 1
        if number != reached:
            raise rules.undone(since)
        rules.undo(replaced, values.split(clusters.blob(blob)), wanted)
    if reached != cluster.number:
        raise rules.undone(since)
    return replaced


def _object(kind: Kind, namespace: object, name: object, value: object) -> StoredObject:
    if isinstance(namespace, str) and isinstance(name, str):
        return values.unpack(Key(kind, namespace, name), clusters.blob(value))
    # Not written by us; the caller counts and skips it.
    return StoredObject(Key(kind, "", repr(name)), clusters.blob(value), b"")


class SqliteFollower:
    """Implements follow() for one store object."""

    def __init__(self, connections: Connections, notifier: Notifier[Waiter]) -> None:
        self._connections = connections
        self._notifier = notifier
        self._busy_until = 0.0
        self._hurry = Event()
        self._lock = Lock()
        self._watcher = Thread(target=self._watch, name="watch-sqlite", daemon=True)
        self._watches = False

    def follow(
        self, cluster: str, identity: str, after: Revision, wait: float, limit: int
    ) -> Sequence[Transaction]:
        """See the contract."""
        deadline = time.monotonic() + wait
        seen = (identity, after.number, after.tag)
        with self._notifier.waiting(cluster, seen) as waiter:
            # A database in memory is written by this process only, which notifies.
            if wait > 0 and not self._watches and not self._connections.in_memory:
                self._start_watching()
            while True:
                with self._connections.snapshot() as connection:
                    found = _after(connection, cluster, identity, after, limit)
                if found:
                    self.poll_fast()
                    return found
                if waiter.woken() or not waiter.wait(deadline - time.monotonic()):
                    return ()

    def poll_fast(self) -> None:
        """Poll fast for a while, because a caller waits for news or there just were some."""
        now = time.monotonic()
        slow = now >= self._busy_until
        self._busy_until = now + BUSY_SECONDS
        if slow:
            self._hurry.set()

    def close(self) -> None:
        """Stop polling, after the notifier and the connections were closed."""
        self._hurry.set()
        with self._lock:
            if self._watches:
                self._watcher.join()

    # ------------------------------ what other processes write

    def _start_watching(self) -> None:
        with self._lock:
            if not (self._watches or self._connections.closed):
                self._watches = True
                self._watcher.start()

    def _watch(self) -> None:
        while not self._connections.closed:
            # Followers find out by themselves what is wrong, and report it.
            with suppress(StoreUnavailable, ConfigError):
                self._watch_file()
            self._notifier.notify_behind({})
            if not self._connections.closed:
                self._hurry.wait(BROKEN_POLL)
                self._hurry.clear()

    def _watch_file(self) -> None:
        """Notify waiters that are behind, until another file is at the path."""
        with self._connections.watch() as version:
            seen = None
            while not self._connections.closed and (now := version()) >= 0:
                began = time.monotonic()
                if now != seen:
                    # After the version, so that what comes in between is another version.
                    self._notifier.notify_behind(self._heads())
                    seen = now
                self._pause(time.monotonic() - began)

    def _heads(self) -> dict[str, object]:
        with self._connections.reading() as connection:
            rows = connection.execute("SELECT name, identity, number, tag FROM cluster").fetchall()
        return {name: tuple(head) for name, *head in rows}

    def _pause(self, took: float) -> None:
        busy = time.monotonic() < self._busy_until
        if not self._connections.closed and self._hurry.wait(
            max(BUSY_POLL if busy else IDLE_POLL, SHARE * took)
        ):
            self._hurry.clear()


def _after(
    connection: sqlite3.Connection, name: str, identity: str, after: Revision, limit: int
) -> list[Transaction]:
    cluster = clusters.load(connection, name)
    clusters.check_identity(cluster, identity)
    clusters.check_reaches(connection, cluster, after)
    assert cluster is not None, "it has the identity"
    found: list[Transaction] = []
    count = 0
    rows = connection.execute(
        "SELECT number, tag, previous, entries FROM log "
        "WHERE cluster = ? AND number > ? ORDER BY number",
        (cluster.id, after.number),
    )
    for number, tag, previous, blob in rows:
        if not (isinstance(number, int) and isinstance(tag, str) and isinstance(previous, str)):
            raise RevisionCompacted(f"log entry {number!r} cannot be read: list again")
        entries = tuple(
            entry
            for field, value in values.split(clusters.blob(blob))
            if (entry := values.entry(field, value)) is not None
        )
        found.append(Transaction(Revision(number, tag), previous, entries))
        count += len(entries)
        if count >= limit:
            break
    return found
