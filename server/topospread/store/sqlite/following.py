"""Follows the log.

A follower reads, then waits until this process writes or another one changes the file.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.sqlite.cluster import SqliteCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import Revision, Transaction
    from topospread.store.notifier import Notifier, Waiter
    from topospread.store.sqlite.connections import Connections


BUSY_POLL: Final = 0.002
IDLE_POLL: Final = 0.02
BUSY_SECONDS: Final = 1.0
"""Other processes' writes are polled for: every 2 ms for a second after news or a wake, else 20."""

BROKEN_POLL: Final = 0.1
"""Seconds between two looks while no file can be watched."""

SHARE: Final = 10
"""Of the time, one part in so many goes into polling at most, however many clusters there are."""


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
