"""Following the log: look, then sleep until this process writes or the file changes under us."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.errors import RevisionUnavailable
from topospread.store import values
from topospread.store.api import Revision, Transaction
from topospread.store.sqlite import clusters

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from topospread.store.sleepers import Sleeper, Sleepers
    from topospread.store.sqlite.connections import Connections

BUSY_POLL: Final = 0.002
IDLE_POLL: Final = 0.02
BUSY_SECONDS: Final = 1.0
"""Other processes' writes are polled for: every 2 ms for a second after news or a wake, else 20."""


class Tail:
    """The follow() of one store object."""

    def __init__(self, connections: Connections, sleepers: Sleepers) -> None:
        self._connections = connections
        self._sleepers = sleepers
        self._busy_until: dict[str, float] = {}

    def follow(
        self, cluster: str, identity: str, after: Revision, wait: float, limit: int
    ) -> Sequence[Transaction]:
        """As the contract says."""
        deadline = time.monotonic() + wait
        with self._sleepers.sleeping(cluster) as sleeper, self._connections.watch() as version:
            while True:
                seen = version()
                with self._connections.snapshot() as connection:
                    found = _after(connection, cluster, identity, after, limit)
                if found:
                    self.expect_news(cluster)
                    return found
                if seen < 0:
                    return ()  # watched is a file that nobody writes to any more
                if not self._sleep(cluster, sleeper, deadline, lambda: version() != seen):  # noqa: B023
                    return ()

    def expect_news(self, cluster: str) -> None:
        """Somebody waits for this cluster, or it just had news: poll fast for a while."""
        self._busy_until[cluster] = time.monotonic() + BUSY_SECONDS

    def _sleep(
        self, cluster: str, sleeper: Sleeper, deadline: float, changed: Callable[[], bool]
    ) -> bool:
        """Sleep until it is worth to look again; False when the call is to end."""
        while not sleeper.woken() and (now := time.monotonic()) < deadline:
            seconds = deadline - now
            # A database in memory is written by this process only, which rings.
            if not self._connections.in_memory:
                busy = now < self._busy_until.get(cluster, 0.0)
                seconds = min(seconds, BUSY_POLL if busy else IDLE_POLL)
            if (sleeper.wait(seconds) and not sleeper.woken()) or changed():
                return True
        return False


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
            raise RevisionUnavailable(f"log entry {number!r} cannot be read: list again")
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
