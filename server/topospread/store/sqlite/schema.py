"""The tables, and the check that a file holds them in a format we know.

Objects are kept in key order (WITHOUT ROWID), because scan() pages through them by key. A
transaction is one row of ``log``; its number comes from ``cluster.number``, never from a rowid,
which would begin again after trimming. A dropped cluster keeps its row, without an identity, so
that it can name what was dropped. The checks are there because SQLite stores any type in any
column, and files can be edited by hand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.values import FORMAT

if TYPE_CHECKING:
    import sqlite3

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
