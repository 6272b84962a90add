"""The tables, and the check that a file holds them in a format we know.

Objects are kept in key order (WITHOUT ROWID), because scan() pages through them by key. A
transaction is one row of ``log``; its number comes from ``cluster.number``, never from a rowid,
which would begin again after trimming. A dropped cluster keeps its row, without an identity, so
that it can name what was dropped.

Servers of several versions may have one file open. So statements name their columns, and what a
newer version adds is a table, or a column with a default, that older ones can leave out; anything
else takes another format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.values import FORMAT

if TYPE_CHECKING:
    import sqlite3

APPLICATION_ID: Final = 0x746F7073  # "tops"

_ADDED: Final = (
    """
    CREATE TABLE IF NOT EXISTS feeder (  -- who may sync a cluster, and whose writes are good
        name TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL,
        until INTEGER NOT NULL,          -- milliseconds since 1970
        granted_for INTEGER NOT NULL DEFAULT 0  -- milliseconds; 0 when an older version wrote it
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS undo (    -- what the newest transactions replaced, see values.py
        cluster INTEGER NOT NULL, number INTEGER NOT NULL, entries BLOB NOT NULL,
        PRIMARY KEY (cluster, number)
    ) WITHOUT ROWID
    """,
)
"""Tables that older versions of the format lack, and do without."""

_ADDED_COLUMNS: Final = (("feeder", "granted_for", "INTEGER NOT NULL DEFAULT 0"),)
"""Columns likewise, for tables that an older version made."""

_TABLES: Final = (
    """
    CREATE TABLE cluster (
        id         INTEGER PRIMARY KEY,
        name       TEXT NOT NULL UNIQUE,
        identity   TEXT NOT NULL,
        number     INTEGER NOT NULL,
        tag        TEXT NOT NULL,
        total      INTEGER NOT NULL,  -- changes ever logged
        oldest     INTEGER NOT NULL,  -- number of the oldest transaction in the log
        marks      TEXT NOT NULL,     -- where the log may be cut, see rules.trimmed
        tombstones INTEGER NOT NULL,
        dropped    TEXT NOT NULL,     -- identities, newest first
        dropped_at INTEGER NOT NULL,  -- milliseconds since 1970
        vouched    TEXT NOT NULL      -- kind:milliseconds pairs
    )
    """,
    """
    CREATE TABLE object (
        cluster INTEGER NOT NULL, kind INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT
        NULL, value BLOB NOT NULL, PRIMARY KEY (cluster, kind, namespace, name)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE log (
        cluster INTEGER NOT NULL, number INTEGER NOT NULL,
        tag TEXT NOT NULL, previous TEXT NOT NULL, entries BLOB NOT NULL,
        PRIMARY KEY (cluster, number)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE touched (
        cluster INTEGER NOT NULL, scope TEXT NOT NULL, number INTEGER NOT NULL,
        PRIMARY KEY (cluster, scope)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE tombstone (
        cluster INTEGER NOT NULL, name TEXT NOT NULL,
        version TEXT NOT NULL, uid TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (cluster, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tombstone_age ON tombstone (cluster, at, name)",
    """
    CREATE TABLE expiry (  -- when reservations are due, milliseconds since 1970
        cluster INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (cluster, namespace, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX expiry_order ON expiry (cluster, at)",
)


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
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif application != APPLICATION_ID:
            raise ConfigError(
                "store: the file is another program's SQLite database; name another path"
            )
        elif found != FORMAT:
            raise ConfigError(f"store: {_other_format(found)}")
        for statement in _ADDED:
            connection.execute(statement)
        for table, column, kind in _ADDED_COLUMNS:
            present = connection.execute(f"PRAGMA table_info({table})").fetchall()
            if column not in {row[1] for row in present}:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_format(connection: sqlite3.Connection) -> None:
    """Refuse a file that a newer version brought into another format after it was opened.

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
