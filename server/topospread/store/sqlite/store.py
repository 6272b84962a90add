"""The store contract on SQLite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

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
from topospread.store.sqlite.cluster import SqliteCluster
from topospread.store.sqlite.connections import Connections
from topospread.store.sqlite.following import SqliteFollower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.urls import SqliteURL


DEFAULTS = StoreSettings()


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

    def lease(
        self,
        cluster: str,
        holder: str = "",
        lifetime: int = 0,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        checks.check_cluster(cluster)
        if not holder:
            with self._connections.reading(timeout) as connection:
                return SqliteCluster(connection, cluster).lease().at(_now())
        checks.check_lease(holder, lifetime)
        with self._connections.writing(timeout) as connection:
            found = SqliteCluster(connection, cluster)
            return found.take_lease(holder, lifetime, _now(), fence)

    def ping(self) -> None:
        with self._connections.reading() as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def close(self) -> None:
        self._notifier.close()
        self._connections.close()
        self._follower.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


def open_store(url: SqliteURL, settings: StoreSettings = DEFAULTS) -> SqliteStore:
    """Open a store, making its file and directories when they are not there.

    Raises:
        ConfigError: the file cannot be written, is another program's, or has another format.
        StoreUnavailable: it cannot be opened now.
    """
    return SqliteStore(url, settings)
