"""The store contract on SQLite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from topospread.errors import CorruptValue
from topospread.store import checks, values
from topospread.store.model import (
    Applied,
    Change,
    Head,
    Key,
    Kind,
    Lease,
    Revision,
    StoredObject,
    StoreSettings,
    Transaction,
    Unchanged,
)
from topospread.store.notifier import Notifier, Waiter
from topospread.store.sqlite import clusters, reading, writing
from topospread.store.sqlite.connections import Connections
from topospread.store.sqlite.reading import SqliteFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

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
        """See the contract."""
        checks.check_cluster(cluster)
        now = _now()
        with self._connections.reading(timeout) as connection:
            found = clusters.load(connection, cluster)
        return found.head(now) if found else Head("", Revision(), at=now)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.snapshot() as connection:
            found = clusters.load(connection, cluster)
            clusters.check_identity(found, identity)
            clusters.check_reaches(connection, found, revision)

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.scan(self._connections, cluster, page, kind)

    def read_range(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        after: tuple[str, str],
        limit: int,
        max_bytes: int,
    ) -> tuple[Sequence[StoredObject], bool]:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            found = clusters.load(connection, cluster)
            if found is None:
                return (), False
            return reading.read_range(connection, found, kind, namespace, after, limit, max_bytes)

    def read_keys(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            found = clusters.load(connection, cluster)
            return () if found is None else reading.read_keys(connection, found, keys)

    def read_undo(
        self, cluster: str, identity: str, since: Revision, wanted: Callable[[Key], bool]
    ) -> Mapping[Key, StoredObject | None]:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.snapshot() as connection:
            found = clusters.load(connection, cluster)
            clusters.check_identity(found, identity)
            clusters.check_reaches(connection, found, since)
            assert found is not None, "it has the identity"
            return reading.read_undo(connection, found, since, wanted)

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT value FROM object JOIN cluster ON cluster.id = object.cluster "
                "WHERE cluster.name = ? AND kind = ? AND namespace = ? AND object.name = ?",
                (cluster, key.kind.value, key.namespace, key.name),
            ).fetchone()
        if row is None:
            return None
        found = values.unpack(key, clusters.blob(row[0]))
        if not found.digest:
            name = values.name_of(key)
            raise CorruptValue(f"the stored value of {name} cannot be read: write it anew")
        return found

    def clusters(self) -> Sequence[str]:
        """See the contract."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT name FROM cluster WHERE identity <> '' ORDER BY name"
            ).fetchall()
        return [name for (name,) in rows]

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """See the contract."""
        checks.check_cluster(cluster)
        return self._follower.follow(cluster, identity, after, wait, limit)

    def wake(self, cluster: str) -> None:
        """See the contract."""
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
        timeout: float | None = None,
    ) -> Applied:
        """See the contract."""
        checks.check_cluster(cluster)
        checks.check_changes(changes)
        if precondition is not None:
            checks.check_precondition(precondition)
        with self._connections.writing(timeout) as connection:
            applied = writing.apply(
                connection,
                cluster,
                changes,
                precondition=precondition,
                identity=identity,
                force=force,
                fence=fence,
                now=_now(),
                settings=self._settings,
            )
        if applied.revision != applied.previous:
            self._notifier.notify(cluster)
        return applied

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.writing(timeout) as connection:
            applied = writing.purge(connection, cluster, now=_now(), settings=self._settings)
        if applied.revision != applied.previous:
            self._notifier.notify(cluster)
        return applied

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.writing() as connection:
            count = writing.drop(connection, cluster, _now(), identity=identity)
        self._notifier.notify(cluster)
        return count

    def confirm_history(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """See the contract."""
        checks.check_cluster(cluster)
        with self._connections.writing() as connection:
            writing.confirm_history(
                connection, cluster, kinds, _now(), identity=identity, instead_of=instead_of
            )

    def lease(
        self,
        cluster: str,
        holder: str,
        lifetime: int,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        """See the contract."""
        checks.check_cluster(cluster)
        checks.check_lease(holder, lifetime)
        with self._connections.writing(timeout) as connection:
            return clusters.take_lease(connection, cluster, holder, lifetime, _now(), fence=fence)

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """See the contract."""
        del timeout
        checks.check_cluster(cluster)
        with self._connections.reading() as connection:
            return clusters.read_lease(connection, cluster, _now())

    def ping(self) -> None:
        """See the contract."""
        with self._connections.reading() as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def close(self) -> None:
        """See the contract."""
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
