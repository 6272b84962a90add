"""The feeder's lease of a cluster: one row, whether or not the cluster is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.store import rules

if TYPE_CHECKING:
    import sqlite3

    from topospread.store.api import Lease


def lease(
    connection: sqlite3.Connection, name: str, holder: str, lifetime: int, now: int, *, fence: int
) -> Lease:
    """Take or renew it within the connection's transaction; times in milliseconds."""
    found = _found(connection, name)
    granted = rules.granted(found, holder, lifetime, now, renewed=fence)
    until = granted.until
    if granted.holder == holder and fence in (0, granted.fence):
        connection.execute(
            "INSERT OR REPLACE INTO feeder (name, holder, fence, until, granted_for) "
            "VALUES (?, ?, ?, ?, ?)",
            (name, holder, granted.fence, until, granted.left),
        )
    elif until < found[2]:
        connection.execute("UPDATE feeder SET until = ? WHERE name = ?", (until, name))
    return granted


def leased(connection: sqlite3.Connection, name: str, now: int) -> Lease:
    """The lease as it is."""
    return rules.as_found(_found(connection, name), now)


def check(connection: sqlite3.Connection, name: str, fence: int) -> None:
    """Refuse a token that is not the lease's.

    Raises:
        Fenced: another one is.
    """
    holder, found, *_ = _found(connection, name)
    if found != fence:
        raise rules.fenced(name, holder)


def void(connection: sqlite3.Connection, name: str) -> None:
    """Take the lease from whoever has it; no token so far is good any more."""
    connection.execute(
        "UPDATE feeder SET holder = '', fence = fence + 1, until = 0 WHERE name = ?", (name,)
    )


def _found(connection: sqlite3.Connection, name: str) -> tuple[str, int, int, int]:
    row = connection.execute(
        "SELECT holder, fence, until, granted_for FROM feeder WHERE name = ?", (name,)
    ).fetchone()
    return ("", 0, 0, 0) if row is None else (row[0], row[1], row[2], row[3])
