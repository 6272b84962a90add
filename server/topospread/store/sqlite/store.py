"""The store contract on SQLite."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store import checks, values, writing
from topospread.store.model import (
    Applied,
    Change,
    Head,
    Key,
    Kind,
    Lease,
    Listed,
    Page,
    Revision,
    StoredObject,
    StoreSettings,
    Transaction,
    Unchanged,
)
from topospread.store.notifier import Notifier, Waiter
from topospread.store.sqlite.connections import Connections
from topospread.store.sqlite.tables import SqliteCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.urls import SqliteURL


DEFAULTS: Final = StoreSettings()

BUSY_POLL: Final = 0.002
IDLE_POLL: Final = 0.02
BUSY_SECONDS: Final = 1.0
"""Other processes' writes are polled for: every 2 ms for a second after news or a wake, else 20."""

BROKEN_POLL: Final = 0.1
"""Seconds between two looks while no file can be watched."""

SHARE: Final = 10
"""Of the time, one part in so many goes into polling at most, however many clusters there are."""


@final
class SqliteStore:
    """A :class:`~topospread.store.api.Store`. Safe for threads; every process opens its own.

    Attributes:
        warnings: what an operator should know about this store; for the caller to log.
    """

    def __init__(self, url: SqliteURL, settings: StoreSettings) -> None:
        self._url = url
        self._settings = settings
        self._notifier = Notifier(Waiter)
        self._connections = Connections(url, settings.timeout)
        self._follower = SqliteFollower(self._connections, self._notifier)
        self.warnings: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The address of the file."""
        return self._url.address

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        checks.check_cluster(cluster)
        now = _now()
        with self._connections.reading(timeout) as connection:
            return SqliteCluster(connection, cluster).state.head(now)

    def scan(
        self,
        cluster: str,
        kind: Kind,
        *,
        namespace: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 1000,
        max_bytes: int = 4 << 20,
    ) -> Page:
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            found = SqliteCluster(connection, cluster)
            return found.scan(kind, namespace, after, limit, max_bytes)

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            found = SqliteCluster(connection, cluster)
            stored = [(key, found.value(key)) for key in keys]
        return [values.unpack(key, value) for key, value in stored if value is not None]

    def clusters(self) -> Sequence[str]:
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT name FROM cluster WHERE identity <> '' ORDER BY name"
            ).fetchall()
        return [name for (name,) in rows]

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        checks.check_cluster(cluster)
        return self._follower.follow(cluster, identity, after, wait, limit)

    def wake(self, cluster: str) -> None:
        self._follower.poll_fast()
        self._notifier.wake(cluster)

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        listed: Listed | None = None,
        timeout: float | None = None,
    ) -> Applied:
        checks.check_cluster(cluster)
        checks.check_changes(changes)
        if precondition is not None:
            checks.check_precondition(precondition)
        with self._connections.writing(timeout) as connection:
            applied = writing.apply(
                SqliteCluster(connection, cluster),
                changes,
                precondition=precondition,
                identity=identity,
                force=force,
                fence=fence,
                listed=listed,
                now=_now(),
                settings=self._settings,
            )
        if applied.revision != applied.previous:
            self._notifier.notify(cluster)
        return applied

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        checks.check_cluster(cluster)
        with self._connections.writing() as connection:
            count = SqliteCluster(connection, cluster).drop(_now(), identity)
        self._notifier.notify(cluster)
        return count

    def lease(self, cluster: str, *, timeout: float | None = None) -> Lease:
        checks.check_cluster(cluster)
        with self._connections.reading(timeout) as connection:
            return SqliteCluster(connection, cluster).lease().at(_now())

    def acquire(
        self, cluster: str, holder: str, lifetime: int, *, timeout: float | None = None
    ) -> Lease:
        checks.check_cluster(cluster)
        checks.check_lease(holder, lifetime)
        with self._connections.writing(timeout) as connection:
            return SqliteCluster(connection, cluster).acquire(holder, lifetime, _now())

    def ping(self) -> None:
        with self._connections.reading() as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def close(self) -> None:
        self._notifier.close()
        self._connections.close()
        self._follower.close()


class SqliteFollower:
    """Carries out follow() for one store object.

    A follower reads, then waits until this process writes or another one changes the file.
    """

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
        deadline = time.monotonic() + wait
        with self._notifier.waiting(cluster) as waiter:
            # A database in memory is written by this process only, which notifies.
            if wait > 0 and not self._watches and not self._connections.in_memory:
                self._start_watching()
            while True:
                with self._connections.snapshot() as connection:
                    found = SqliteCluster(connection, cluster).after(identity, after, limit)
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
            self._notifier.notify_all()
            if not self._connections.closed:
                self._hurry.wait(BROKEN_POLL)
                self._hurry.clear()

    def _watch_file(self) -> None:
        """Notify of clusters that change, until the file is not the one at the path any more."""
        with self._connections.watch() as version:
            seen = None
            heads: dict[str, object] = {}
            while not self._connections.closed:
                now = version()
                began = time.monotonic()
                if now != seen:
                    # After the version, so that what comes in between is another version.
                    seen, before, heads = now, heads, self._heads()
                    for cluster, head in heads.items():
                        if head != before.get(cluster):
                            self._notifier.notify(cluster)
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


def _now() -> int:
    return time.time_ns() // 1_000_000


def open_store(url: SqliteURL, settings: StoreSettings = DEFAULTS) -> SqliteStore:
    """Open a store, making its file and directories when they are not there.

    Raises:
        ConfigError: the file cannot be written, is another program's, or has another format.
        StoreUnavailable: it cannot be opened now.
    """
    return SqliteStore(url, settings)
