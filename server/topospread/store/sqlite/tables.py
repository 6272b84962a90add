"""The tables: how they are made and checked, and one cluster in them.

Objects are kept in key order (WITHOUT ROWID), because scan() pages through them by key. A
transaction is one row of ``log``; its number comes from ``cluster.number``, never from a rowid,
which would begin again after trimming. A dropped cluster keeps its row, without an identity, so
that it can name what was dropped. The checks are there because SQLite stores any type in any
column, and files can be edited by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store import rules, values
from topospread.store.model import (
    MAX_ENDED,
    MAX_LEASE,
    Key,
    Kind,
    Page,
    Revision,
    Transaction,
)
from topospread.store.rules import LeaseRow
from topospread.store.values import FORMAT
from topospread.store.writing import ClusterState, check_identity, check_reaches

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from topospread.store.model import Lease
    from topospread.store.writing import Write

APPLICATION_ID: Final = 0x746F7073  # "tops"

_TABLES: Final = (
    """cluster (
        id INTEGER PRIMARY KEY, name text, identity text, number integer, tag text,
        total integer,  -- changes ever logged
        marks text,  -- see rules.trimmed
        tombstones integer,
        listed integer, feed integer,  -- see rules.with_listed
        replaced text, replaced_at integer,  -- identities, newest first; ms since 1970
        UNIQUE (name)
    )""",
    """object (
        cluster integer, kind integer, namespace text, name text, value blob,
        due integer,  -- of a reservation, milliseconds since 1970; 0 for never
        PRIMARY KEY (cluster, kind, namespace, name)
    ) WITHOUT ROWID""",
    """log (
        cluster integer, number integer, tag text, previous text, entries blob,
        PRIMARY KEY (cluster, number)
    ) WITHOUT ROWID""",
    """touched (
        cluster integer, scope text, number integer, PRIMARY KEY (cluster, scope)
    ) WITHOUT ROWID""",
    """tombstone (
        cluster integer, name text, version text, at integer, PRIMARY KEY (cluster, name)
    ) WITHOUT ROWID""",
    """lease (  -- who may sync a cluster, and whose writes are good; in milliseconds
        name text, holder text, fence integer, until integer, granted_for integer,
        PRIMARY KEY (name)
    ) WITHOUT ROWID""",
)

_INDEXES: Final = (
    "CREATE INDEX tombstone_age ON tombstone (cluster, at, name)",
    "CREATE INDEX object_due ON object (cluster, due) WHERE due > 0",
)

_COLUMN: Final = re.compile(r"\b(\w+) (text|integer|blob)\b")
"""A column with its type in small letters: each value has that type, whoever writes it."""


def _created(table: str) -> str:
    return "CREATE TABLE " + _COLUMN.sub(r"\1 \2 NOT NULL CHECK (typeof(\1) = '\2')", table)


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, or check that they are there in our format.

    Raises:
        ConfigError: another program's file, or one of another format.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables == 0:
            for statement in (*map(_created, _TABLES), *_INDEXES):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif application != APPLICATION_ID:
            raise ConfigError(
                "store: the file is another program's SQLite database; name another path"
            )
        elif found != FORMAT:
            raise ConfigError(f"store: {_other_format(found)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_format(connection: sqlite3.Connection) -> None:
    """Refuse a file that another version brought into its format after it was opened.

    Raises:
        StoreUnavailable: it did.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != FORMAT:
        raise StoreUnavailable(_other_format(found))


def _other_format(found: int) -> str:
    return (
        f"the file has format {found}, this version reads format {FORMAT}; "
        "use the version that wrote it, or start with a new file and replay the cluster"
    )


@dataclass(slots=True)
class ClusterRow(ClusterState):
    """A row of ``cluster``. A dropped one keeps it, without an identity; ``id`` 0 has none."""

    id: int = 0
    tombstones: int = 0


_COLUMNS: Final = [each.name for each in fields(ClusterRow)]
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM cluster WHERE name = ?"
_CHANGING: Final = [name for name in _COLUMNS if name not in ("id", "name")]
_UPDATE: Final = f"UPDATE cluster SET {' = ?, '.join(_CHANGING)} = ? WHERE id = ?"
_noted: Final = attrgetter(*_CHANGING)

_OBJECT: Final = "cluster = ? AND kind = ? AND namespace = ? AND name = ?"


class SqliteCluster:
    """The :class:`~topospread.store.writing.Tables` of a cluster; it need not exist."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        row = connection.execute(_SELECT, (name,)).fetchone()
        self.state = ClusterRow(name) if row is None else ClusterRow(*row)
        self._found = _noted(self.state)

    # ------------------------------ reading

    def scan(
        self, kind: Kind, namespace: str, after: tuple[str, str], limit: int, max_bytes: int
    ) -> Page:
        """Objects in order; see the contract."""
        where, bounds = "(namespace, name) > (?, ?)", after
        if namespace:
            where, bounds = "namespace = ? AND name > ?", (namespace, after[1])
        rows = self._connection.execute(
            f"SELECT namespace, name, value FROM object WHERE cluster = ? AND kind = ? AND {where} "
            "ORDER BY namespace, name LIMIT ?",
            (self.state.id, kind.value, *bounds, limit),
        )
        objects = (values.unpack(Key(kind, *place), value) for *place, value in rows)
        return rules.page_of(objects, limit, max_bytes)

    def after(self, identity: str, revision: Revision, limit: int) -> list[Transaction]:
        """What came after a revision; raises as follow()."""
        check_identity(self.state, identity)
        check_reaches(self, revision)
        rows = self._connection.execute(
            "SELECT number, tag, previous, entries FROM log "
            "WHERE cluster = ? AND number > ? ORDER BY number",
            (self.state.id, revision.number),
        )
        made = (
            Transaction(Revision(number, tag), previous, values.entries(values.split(blob)))
            for number, tag, previous, blob in rows
        )
        return rules.first_of(made, limit)

    def value(self, key: Key) -> bytes | None:
        row = self._connection.execute(
            f"SELECT value FROM object WHERE {_OBJECT}", self._where(key)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def tombstone(self, key: Key, expired: int) -> str:
        if not self.state.tombstones:
            return ""
        row = self._connection.execute(
            "SELECT version FROM tombstone WHERE cluster = ? AND name = ? AND at > ?",
            (self.state.id, values.name_of(key), expired),
        ).fetchone()
        return "" if row is None else str(row[0])

    def due(self, now: int) -> Sequence[Key]:
        rows = self._connection.execute(
            "SELECT namespace, name FROM object WHERE cluster = ? AND due > 0 AND due <= ? "
            "ORDER BY due, namespace || '/' || name LIMIT ?",
            (self.state.id, now, MAX_ENDED),
        )
        return [Key(Kind.RESERVATION, *place) for place in rows]

    def touched(self, scope: str) -> int:
        row = self._connection.execute(
            "SELECT number FROM touched WHERE cluster = ? AND scope = ?", (self.state.id, scope)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def first_after(self, number: int) -> tuple[int, str] | None:
        row = self._connection.execute(
            "SELECT number, previous FROM log WHERE cluster = ? AND number > ? "
            "ORDER BY number LIMIT 1",
            (self.state.id, number),
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def lease(self) -> LeaseRow:
        row = self._connection.execute(
            "SELECT holder, fence, until, granted_for FROM lease WHERE name = ?",
            (self.state.name,),
        ).fetchone()
        return LeaseRow() if row is None else LeaseRow(*row)

    # ------------------------------ writing

    def write(self, write: Write) -> None:
        if not self.state.id:
            new = self._connection.execute(
                "INSERT INTO cluster (name, identity, number, tag, total, marks, tombstones, "
                "listed, feed, replaced, replaced_at) VALUES (?, '', 0, '', 0, '', 0, 0, 0, '', 0)",
                (self.state.name,),
            )
            self.state.id = new.lastrowid or 0
        if write.entries:
            self._write_objects(write)
            self._append(write)
        self._write_tombstones(write)
        self._save()

    def drop(self, now: int, identity: str) -> int | None:
        """Delete all of a cluster but the mark that it was dropped; see the contract."""
        run, row = self._connection.execute, self.state
        run(  # what is left of clusters that are long gone
            "DELETE FROM cluster WHERE identity = '' AND replaced_at < ?",
            (now - rules.REPLACED_MILLISECONDS,),
        )
        if identity:
            check_identity(row, identity)
        run(
            "UPDATE lease SET holder = '', fence = fence + 1, until = 0 WHERE name = ?", (row.name,)
        )
        if not row.identity:
            return None
        run("DELETE FROM object WHERE cluster = ? AND kind = ?", (row.id, Kind.PROGRESS.value))
        count = run("DELETE FROM object WHERE cluster = ?", (row.id,)).rowcount
        for table in ("log", "touched", "tombstone"):
            run(f"DELETE FROM {table} WHERE cluster = ?", (row.id,))
        replaced = rules.with_replaced(row.replaced, row.replaced_at, now, row.identity)
        self.state = ClusterRow(row.name, replaced=replaced, replaced_at=now, id=row.id)
        self._save()
        return count

    def acquire(self, holder: str, lifetime: int, now: int) -> Lease:
        """Take or renew the lease, as far as it may be; see the contract."""
        found = self.lease()
        granted = rules.granted(found, holder, lifetime, now)
        if granted.fence != found.fence:
            # Without a cluster a lease is forgotten an hour after its end; the clock has passed its
            # token then.
            self._connection.execute(
                "DELETE FROM lease WHERE max(fence, until) < ? "
                "AND name NOT IN (SELECT name FROM cluster WHERE identity <> '')",
                (now - MAX_LEASE,),
            )
        if granted != found:
            self._connection.execute(
                "INSERT OR REPLACE INTO lease (name, holder, fence, until, granted_for) "
                "VALUES (?, ?, ?, ?, ?)",
                (self.state.name, *granted),
            )
        return granted.at(now)

    def _write_objects(self, write: Write) -> None:
        run, changed = self._connection.executemany, write.values.items()
        run(
            "INSERT OR REPLACE INTO object (cluster, kind, namespace, name, value, due) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [
                (*self._where(key), value, write.due.get(key, 0))
                for key, value in changed
                if value is not None
            ],
        )
        run(
            f"DELETE FROM object WHERE {_OBJECT}",
            [self._where(key) for key, value in changed if value is None],
        )

    def _append(self, write: Write) -> None:
        run, row = self._connection.execute, self.state
        run(
            "INSERT INTO log (cluster, number, tag, previous, entries) VALUES (?, ?, ?, ?, ?)",
            (row.id, row.number, row.tag, write.previous_tag, values.join(write.entries)),
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO touched (cluster, scope, number) VALUES (?, ?, ?)",
            [(row.id, scope, row.number) for scope in sorted(write.scopes)],
        )
        # No precondition can name a revision that old any more.
        for table in ("log", "touched") if write.trimmed else ():
            run(f"DELETE FROM {table} WHERE cluster = ? AND number <= ?", (row.id, write.trimmed))

    def _write_tombstones(self, write: Write) -> None:
        """Forget those of objects that are back or deleted anew, and bound their number."""
        run, row = self._connection.execute, self.state
        if row.tombstones and write.listed is not None:
            kind, upto = write.listed.kind.value, write.listed.version
            row.tombstones -= run(
                "DELETE FROM tombstone WHERE cluster = ? AND name > ? AND name < ? AND "
                "(length(version), version) > (?, ?)",
                (row.id, f"{kind}/", f"{kind}0", len(upto), upto),
            ).rowcount
        if row.tombstones:
            for key in {**write.values, **write.tombstones}:
                row.tombstones -= run(
                    "DELETE FROM tombstone WHERE cluster = ? AND name = ?",
                    (row.id, values.name_of(key)),
                ).rowcount
        if not write.tombstones:
            return
        self._connection.executemany(
            "INSERT INTO tombstone (cluster, name, version, at) VALUES (?, ?, ?, ?)",
            [
                (row.id, values.name_of(key), version, write.now)
                for key, version in write.tombstones.items()
            ],
        )
        row.tombstones += len(write.tombstones)
        row.tombstones -= run(
            "DELETE FROM tombstone WHERE cluster = ? AND at <= ?", (row.id, write.expired)
        ).rowcount
        row.tombstones -= run(
            "DELETE FROM tombstone WHERE cluster = ? AND name IN (SELECT name FROM tombstone "
            "WHERE cluster = ? ORDER BY at, name LIMIT ?)",
            (row.id, row.id, max(0, row.tombstones - write.settings.tombstone_limit)),
        ).rowcount

    def _save(self) -> None:
        if (noted := _noted(self.state)) != self._found:
            self._connection.execute(_UPDATE, (*noted, self.state.id))

    def _where(self, key: Key) -> tuple[int, int, str, str]:
        return self.state.id, key.kind.value, key.namespace, key.name
