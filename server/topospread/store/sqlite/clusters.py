"""Rows of clusters and of their leases, and the checks that depend on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from topospread.errors import Conflict, IdentityChanged, RevisionCompacted, RevisionOfOtherHistory
from topospread.store import rules, values
from topospread.store.model import MAX_LEASE, Head, Revision, Unchanged

if TYPE_CHECKING:
    import sqlite3

    from topospread.store.model import Lease


DROPPED_KEPT: Final = 8
DROPPED_MILLISECONDS: Final = 86_400_000

_MENDED: Final = {int: 0, str: "?"}


@dataclass(slots=True)
class ClusterRow:
    """A row of ``cluster``; :mod:`~topospread.store.sqlite.schema` explains its fields."""

    id: int
    name: str
    identity: str
    number: int
    tag: str
    total: int
    oldest: int
    marks: str
    tombstones: int
    dropped: str
    dropped_at: int
    vouched: str

    @property
    def revision(self) -> Revision:
        """The newest revision."""
        return Revision(self.number, self.tag)

    def head(self, now: int) -> Head:
        """The head as the contract shows it."""
        dropped, vouched = self._dropped(now), values.parse_confirmed(self.vouched)
        at = 0 if self.identity else now
        return Head(self.identity, self.revision, self.oldest, dropped, vouched, at)

    def dropped_with(self, identity: str, now: int) -> str:
        """The dropped identities with one more, as they are written."""
        others = [other for other in self._dropped(now) if other != identity]
        return " ".join([identity, *others][:DROPPED_KEPT])

    def _dropped(self, now: int) -> tuple[str, ...]:
        fresh = now - self.dropped_at < DROPPED_MILLISECONDS
        return tuple(self.dropped.split()) if fresh else ()


_SELECT: Final = f"SELECT {', '.join(each.name for each in fields(ClusterRow))} FROM cluster"

_TYPES: Final = tuple({"int": int, "str": str}[str(each.type)] for each in fields(ClusterRow))


def load(connection: sqlite3.Connection, name: str, *, mended: bool = False) -> ClusterRow | None:
    """The row of a cluster; it may be one without an identity.

    Args:
        connection: to the file.
        name: of the cluster.
        mended: replace what cannot be read, so that the cluster can be dropped.

    Raises:
        StoreUnavailable: a column holds something of another type, which SQLite lets be.
    """
    row = connection.execute(f"{_SELECT} WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    if tuple(map(type, row)) != _TYPES:
        if not mended:
            wrong = [
                each.name
                for each, found, right in zip(fields(ClusterRow), row, _TYPES, strict=True)
                if type(found) is not right
            ]
            raise values.unreadable(name, ", ".join(wrong))
        row = [
            found if type(found) is right else _MENDED[right]
            for found, right in zip(row, _TYPES, strict=True)
        ]
    return ClusterRow(*row)


def blob(found: object) -> bytes:
    """A stored value; empty, which none is, where the column holds something of another type."""
    return found if isinstance(found, bytes) else b""


def check_identity(cluster: ClusterRow | None, wanted: str) -> None:
    """Refuse a cluster that is not there or is another one."""
    found = cluster.identity if cluster else ""
    if not found or found != wanted:
        what = "has another identity" if found else "does not exist"
        raise IdentityChanged(
            f"the cluster {what} in this store: it is not the one followed so far"
        )


def check_reaches(
    connection: sqlite3.Connection, cluster: ClusterRow | None, revision: Revision
) -> None:
    """Refuse a revision that the log does not hold, or that belongs to another history."""
    head = cluster.revision if cluster else Revision()
    if revision == head:
        return
    if cluster is None or revision.number >= head.number:
        raise RevisionOfOtherHistory(
            f"revision {revision.number} is of another history than the store's: list again"
        )
    row = connection.execute(
        "SELECT previous FROM log WHERE cluster = ? AND number = ?",
        (cluster.id, revision.number + 1),
    ).fetchone()
    if row is None:
        first = connection.execute(
            "SELECT number, previous FROM log WHERE cluster = ? ORDER BY number LIMIT 1",
            (cluster.id,),
        ).fetchone()
        oldest = (head.number, head.tag) if first is None else (first[0] - 1, first[1])
        raise RevisionCompacted(
            f"the log was trimmed past revision {revision.number}: list again", oldest
        )
    if row[0] != revision.tag:
        raise RevisionOfOtherHistory(
            f"revision {revision.number} is of another history than the store's: list again"
        )


def check_unchanged(
    connection: sqlite3.Connection, cluster: ClusterRow | None, precondition: Unchanged
) -> None:
    """Refuse when something relevant to the scopes came after the revision."""
    check_reaches(connection, cluster, precondition.revision)
    if cluster is None:
        return
    for scope in precondition.scopes:
        row = connection.execute(
            "SELECT number FROM touched WHERE cluster = ? AND scope = ?", (cluster.id, scope)
        ).fetchone()
        if row is not None and not (isinstance(row[0], int) and row[0] <= cluster.number):
            raise values.unreadable(cluster.name, f"touched {scope} is {row[0]!r:.20}")
        if row is not None and row[0] > precondition.revision.number:
            raise Conflict(
                f"{scope!r} changed at revision {row[0]}, after {precondition.revision.number}: "
                "evaluate again"
            )


def take_lease(
    connection: sqlite3.Connection, name: str, holder: str, lifetime: int, now: int, *, fence: int
) -> Lease:
    """Take or renew the lease within the connection's transaction; times in milliseconds."""
    found = _lease_row(connection, name)
    granted = rules.granted(found, holder, lifetime, now, renewed=fence)
    until = granted.until
    if granted.holder == holder and fence in (0, granted.fence):
        if found[0] != holder:
            # Without a cluster a lease is forgotten an hour after its end; the clock has passed its
            # token then.
            connection.execute(
                "DELETE FROM feeder WHERE max(fence, until) < ? "
                "AND name NOT IN (SELECT name FROM cluster WHERE identity <> '')",
                (now - MAX_LEASE,),
            )
        connection.execute(
            "INSERT OR REPLACE INTO feeder (name, holder, fence, until, granted_for) "
            "VALUES (?, ?, ?, ?, ?)",
            (name, holder, granted.fence, until, granted.left),
        )
    elif until < found[2]:
        connection.execute("UPDATE feeder SET until = ? WHERE name = ?", (until, name))
    return granted


def read_lease(connection: sqlite3.Connection, name: str, now: int) -> Lease:
    """The lease as it is."""
    return rules.as_found(_lease_row(connection, name), now)


def check_fence(connection: sqlite3.Connection, name: str, fence: int) -> None:
    """Refuse a token that is not the lease's.

    Raises:
        Fenced: another one is.
    """
    holder, found, *_ = _lease_row(connection, name)
    if found != fence:
        raise rules.fenced(name, holder)


def void_lease(connection: sqlite3.Connection, name: str) -> None:
    """Take the lease from its holder; all tokens so far become invalid."""
    connection.execute(
        "UPDATE feeder SET holder = '', fence = fence + 1, until = 0 WHERE name = ?", (name,)
    )


def _lease_row(connection: sqlite3.Connection, name: str) -> tuple[str, int, int, int]:
    row = connection.execute(
        "SELECT holder, fence, until, granted_for FROM feeder WHERE name = ?", (name,)
    ).fetchone()
    return ("", 0, 0, 0) if row is None else (row[0], row[1], row[2], row[3])
