"""Write transactions: check everything, then write objects, log, scopes and tombstones."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from topospread.store import rules, values
from topospread.store.model import (
    MAX_PURGED,
    Applied,
    Change,
    Key,
    Kind,
    Put,
    Remove,
    Revision,
    Unchanged,
    WriteOutcome,
)
from topospread.store.sqlite import clusters

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.store.model import StoreSettings
    from topospread.store.sqlite.clusters import ClusterRow

_CHANGES = frozenset({WriteOutcome.CREATED, WriteOutcome.UPDATED, WriteOutcome.DELETED})
_OBJECT = "cluster = ? AND kind = ? AND namespace = ? AND name = ?"
_INSERT_CLUSTER = (
    "INSERT INTO cluster (name, identity, number, tag, total, oldest, marks, tombstones, dropped, "
    "dropped_at, vouched)"
)


@dataclass(slots=True)
class Effects:
    """The effects of a transaction, before they are written.

    Attributes:
        replaced: the listed objects that change, by written name, with their values before; empty
            where there was none.
        due: when the reservations among ``puts`` are due, in milliseconds since 1970; 0 for never.
        ended: the reservations that end without being among the changes.
    """

    puts: list[tuple[Key, bytes]] = field(default_factory=list)
    removes: list[Key] = field(default_factory=list)
    tombstones: list[Remove] = field(default_factory=list)
    scopes: set[str] = field(default_factory=set)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)
    replaced: list[tuple[bytes, bytes]] = field(default_factory=list)
    due: list[tuple[Key, int]] = field(default_factory=list)
    ended: list[Key] = field(default_factory=list)

    def end(self, reservation: Key, stored: bytes | None) -> None:
        """End a reservation that is stored."""
        self.ended.append(reservation)
        self.removes.append(reservation)
        self.scopes.add(reservation.scope)
        self.entries.append(_deletion(reservation, stored))


def apply(
    connection: sqlite3.Connection,
    name: str,
    changes: Sequence[Change],
    *,
    precondition: Unchanged | None,
    identity: str,
    force: bool,
    fence: int,
    now: int,
    settings: StoreSettings,
) -> Applied:
    """Apply within the connection's transaction; ``now`` in milliseconds since 1970."""
    if fence:
        clusters.check_fence(connection, name, fence)
    cluster = clusters.load(connection, name)
    if identity:
        clusters.check_identity(cluster, identity)
    alive = cluster if cluster and cluster.identity else None
    if precondition is not None:
        clusters.check_unchanged(connection, alive, precondition)
    writer = _Writer(connection, alive, force=force, now=now, settings=settings)
    effects = Effects()
    outcomes = tuple(writer.judge(change, effects) for change in changes)
    previous, found = (alive.revision, alive.identity) if alive else (Revision(), "")
    timed = any(isinstance(change, Put) and change.lifetime is not None for change in changes)
    at = now if timed else 0
    if not effects.entries:
        writer.write_tombstones(effects)
        if not changes and alive is None:
            found = _create(connection, cluster, name).identity
        return Applied(previous, previous, outcomes, at=at, identity=found)
    writer.end_due(effects, mentioned={_key(change) for change in changes})
    writer.cluster = alive or _create(connection, cluster, name)
    revision, ended = writer.write(effects), tuple(effects.ended)
    return Applied(revision, previous, outcomes, ended, at, writer.cluster.identity)


def purge(
    connection: sqlite3.Connection, name: str, *, now: int, settings: StoreSettings
) -> Applied:
    """End what is due within the connection's transaction; ``now`` in milliseconds since 1970."""
    cluster = clusters.load(connection, name)
    if cluster is None or not cluster.identity:
        return Applied(Revision(), Revision(), ())
    writer = _Writer(connection, cluster, force=False, now=now, settings=settings)
    effects = Effects()
    writer.end_due(effects, mentioned=frozenset())
    if not effects.entries:
        return Applied(cluster.revision, cluster.revision, (), at=now, identity=cluster.identity)
    revision, ended = writer.write(effects), tuple(effects.ended)
    return Applied(revision, cluster.revision, (), ended, now, cluster.identity)


def drop(connection: sqlite3.Connection, name: str, now: int, *, identity: str) -> int | None:
    """Delete all of a cluster but the mark that it was dropped."""
    _forget_marks(connection, now)
    cluster = clusters.load(connection, name, mended=True)
    if identity:
        clusters.check_identity(cluster, identity)
    clusters.void_lease(connection, name)
    if cluster is None or not cluster.identity:
        return None
    connection.execute(
        "DELETE FROM object WHERE cluster = ? AND kind = ?", (cluster.id, Kind.PROGRESS.value)
    )
    count = connection.execute("DELETE FROM object WHERE cluster = ?", (cluster.id,)).rowcount
    for table in ("log", "touched", "tombstone", "expiry", "undo"):
        connection.execute(f"DELETE FROM {table} WHERE cluster = ?", (cluster.id,))
    connection.execute(
        "UPDATE cluster SET identity = '', number = 0, tag = '', total = 0, oldest = 0, "
        "marks = '', tombstones = 0, dropped = ?, dropped_at = ?, vouched = '' WHERE id = ?",
        (cluster.dropped_with(cluster.identity, now), now, cluster.id),
    )
    return count


def confirm_history(
    connection: sqlite3.Connection,
    name: str,
    kinds: Collection[Kind],
    now: int,
    *,
    identity: str,
    instead_of: str,
) -> None:
    """Record when these kinds were confirmed, and which history they replace."""
    _forget_marks(connection, now)
    cluster = clusters.load(connection, name)
    if identity:
        clusters.check_identity(cluster, identity)
    if cluster is None:
        connection.execute(
            f"{_INSERT_CLUSTER} VALUES (?, '', 0, '', 0, 0, '', 0, '', ?, '')", (name, now)
        )
        cluster = clusters.load(connection, name)
        assert cluster is not None, "written in this transaction"
    vouched = values.parse_confirmed(cluster.vouched)
    vouched |= {kind: max(now, vouched.get(kind, 0) + 1) for kind in kinds}
    written = " ".join(f"{kind.value}:{at}" for kind, at in vouched.items())
    connection.execute("UPDATE cluster SET vouched = ? WHERE id = ?", (written, cluster.id))
    if instead_of:
        connection.execute(
            "UPDATE cluster SET dropped = ?, dropped_at = ? WHERE id = ?",
            (cluster.dropped_with(instead_of, now), now, cluster.id),
        )


def _forget_marks(connection: sqlite3.Connection, now: int) -> None:
    """Delete what is left of clusters that are long gone."""
    connection.execute(
        "DELETE FROM cluster WHERE identity = '' AND dropped_at < ?",
        (now - clusters.DROPPED_MILLISECONDS,),
    )


def _create(connection: sqlite3.Connection, row: ClusterRow | None, name: str) -> ClusterRow:
    """Give a cluster, new or dropped, an identity."""
    identity = uuid4().hex
    if row is None:
        connection.execute(
            f"{_INSERT_CLUSTER} VALUES (?, ?, 0, '', 0, 1, '', 0, '', 0, '')", (name, identity)
        )
    else:
        connection.execute(
            "UPDATE cluster SET identity = ?, oldest = 1 WHERE id = ?", (identity, row.id)
        )
    created = clusters.load(connection, name)
    assert created is not None, "written in this transaction"
    return created


class _Writer:
    """The steps of one transaction on one cluster (None until it exists)."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        cluster: ClusterRow | None,
        *,
        force: bool,
        now: int,
        settings: StoreSettings,
    ) -> None:
        self.cluster = cluster
        self._connection = connection
        self._force = force
        self._now = now
        self._settings = settings
        self._expired = now - round(settings.tombstone_seconds * 1000)

    def judge(self, change: Change, effects: Effects) -> WriteOutcome:
        """The outcome of one change; what it will write is added to ``effects``."""
        stored = self._stored(_key(change))
        if isinstance(change, Put):
            outcome = self._judge_put(change, stored, effects)
        else:
            outcome = self._judge_remove(change, stored, effects)
        if outcome in _CHANGES and _key(change).kind in values.OBSERVABLE:
            effects.replaced.append((values.name_of(_key(change)).encode(), stored or b""))
        uid = rules.ends_for(change, outcome, stored)
        if uid is not None:
            self._end_reservation(_key(change), uid, effects)
        return outcome

    def end_due(self, effects: Effects, mentioned: AbstractSet[Key]) -> None:
        """End what is due, but what the transaction deals with already."""
        if self.cluster is None:
            return
        rows = self._connection.execute(
            "SELECT namespace, name FROM expiry WHERE cluster = ? AND at <= ? "
            "AND typeof(namespace) = 'text' AND typeof(name) = 'text' "
            "ORDER BY at, namespace || '/' || name LIMIT ?",
            (self.cluster.id, self._now, MAX_PURGED),
        ).fetchall()
        due = {Key(Kind.RESERVATION, namespace, name) for namespace, name in rows}
        for key in sorted(due - mentioned - set(effects.ended), key=values.name_of):
            effects.end(key, self._stored(key))

    def write(self, effects: Effects) -> Revision:
        """Write objects, log entry and scopes; returns the new revision."""
        cluster, run = self.cluster, self._connection.executemany
        assert cluster is not None, "created before"
        number, tag = cluster.number + 1, secrets.token_hex(8)
        self._note_expiries(effects)
        run(
            "INSERT OR REPLACE INTO object (cluster, kind, namespace, name, value) "
            "VALUES (?, ?, ?, ?, ?)",
            [(*self._where(key), value) for key, value in effects.puts],
        )
        run(f"DELETE FROM object WHERE {_OBJECT}", map(self._where, effects.removes))
        self._connection.execute(
            "INSERT INTO log (cluster, number, tag, previous, entries) VALUES (?, ?, ?, ?, ?)",
            (cluster.id, number, tag, cluster.tag, values.join(effects.entries)),
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO undo (cluster, number, entries) VALUES (?, ?, ?)",
            (cluster.id, number, values.join(effects.replaced)),
        )
        run(
            "INSERT OR REPLACE INTO touched (cluster, scope, number) VALUES (?, ?, ?)",
            [(cluster.id, scope, number) for scope in sorted(effects.scopes)],
        )
        self.write_tombstones(effects)
        total = cluster.total + len(effects.entries)
        marks, oldest = self._trim(cluster, number, total)
        self._connection.execute(
            "UPDATE cluster SET number = ?, tag = ?, total = ?, oldest = ?, marks = ? WHERE id = ?",
            (number, tag, total, oldest, marks, cluster.id),
        )
        return Revision(number, tag)

    def write_tombstones(self, effects: Effects) -> None:
        """Write tombstones, forget those of objects that are back, and bound their number."""
        cluster, run = self.cluster, self._connection.execute
        if cluster is None:
            return
        left = cluster.tombstones
        for key, _ in effects.puts if left else ():
            left -= run(
                "DELETE FROM tombstone WHERE cluster = ? AND name = ?",
                (cluster.id, values.name_of(key)),
            ).rowcount
        for remove in effects.tombstones:
            name = values.name_of(remove.key)
            version = remove.up_to_version
            left -= run(
                "DELETE FROM tombstone WHERE cluster = ? AND name = ?", (cluster.id, name)
            ).rowcount
            left += run(
                "INSERT INTO tombstone (cluster, name, version, uid, at) VALUES (?, ?, ?, ?, ?)",
                (cluster.id, name, version, remove.uid, self._now),
            ).rowcount
        if effects.tombstones:
            left -= run(
                "DELETE FROM tombstone WHERE cluster = ? AND at <= ?", (cluster.id, self._expired)
            ).rowcount
            left -= run(
                "DELETE FROM tombstone WHERE cluster = ? AND name IN (SELECT name FROM tombstone "
                "WHERE cluster = ? ORDER BY at, name LIMIT ?)",
                (cluster.id, cluster.id, max(0, left - self._settings.tombstone_limit)),
            ).rowcount
        if left != cluster.tombstones:
            run("UPDATE cluster SET tombstones = ? WHERE id = ?", (left, cluster.id))

    def _judge_put(self, put: Put, stored: bytes | None, effects: Effects) -> WriteOutcome:
        key, renews = put.object.key, put.lifetime is not None
        due = self._now + put.lifetime if put.lifetime is not None else 0
        value = values.pack(replace(put.object, expires_at=due))
        tombstones = self._tombstone(key) if stored is None else ""
        outcome, relevant = rules.judge_put(
            value, stored, tombstones, force=self._force, renews=renews
        )
        if outcome in (WriteOutcome.CREATED, WriteOutcome.UPDATED):
            effects.puts.append((key, value))
            if key.kind is Kind.RESERVATION:
                effects.due.append((key, due))
            mark = values.RELEVANT if relevant else values.IRRELEVANT
            effects.entries.append((_field(mark, key), value))
            if relevant:
                effects.scopes.add(key.scope)
        return outcome

    def _judge_remove(self, remove: Remove, stored: bytes | None, effects: Effects) -> WriteOutcome:
        key = remove.key
        outcome = rules.judge_remove(remove.uid, remove.up_to_version, stored, force=self._force)
        if outcome is WriteOutcome.DELETED:
            effects.removes.append(key)
            effects.scopes.add(key.scope)
            effects.entries.append(_deletion(key, stored))
        buries = remove.up_to_version and key.kind is not Kind.RESERVATION
        if buries and self._leaves_tombstone(remove, outcome):
            effects.tombstones.append(remove)
        return outcome

    def _end_reservation(self, pod: Key, uid: str, effects: Effects) -> None:
        key = Key(Kind.RESERVATION, pod.namespace, pod.name)
        stored = self._stored(key)
        if stored is not None and rules.is_for(stored, uid):
            effects.end(key, stored)

    def _note_expiries(self, effects: Effects) -> None:
        """Keep the table of what is due in step with the objects that are written."""
        assert self.cluster is not None, "created before"
        gone = [key for key in effects.removes if key.kind is Kind.RESERVATION]
        self._connection.executemany(
            "DELETE FROM expiry WHERE cluster = ? AND namespace = ? AND name = ?",
            [
                (self.cluster.id, key.namespace, key.name)
                for key in (*gone, *(key for key, _ in effects.due))
            ],
        )
        self._connection.executemany(
            "INSERT INTO expiry (cluster, namespace, name, at) VALUES (?, ?, ?, ?)",
            [(self.cluster.id, key.namespace, key.name, at) for key, at in effects.due if at],
        )

    def _leaves_tombstone(self, remove: Remove, outcome: WriteOutcome) -> bool:
        """Whether to leave one: not for an object of another uid, nor below a newer tombstone."""
        if outcome is WriteOutcome.DELETED:
            return True
        if outcome is not WriteOutcome.NOT_FOUND or self._stored(remove.key) is not None:
            return False
        tombstones = self._tombstone(remove.key)
        return not tombstones or values.older(tombstones, remove.up_to_version)

    def _stored(self, key: Key) -> bytes | None:
        if self.cluster is None:
            return None
        row = self._connection.execute(
            f"SELECT value FROM object WHERE {_OBJECT}", self._where(key)
        ).fetchone()
        return None if row is None else clusters.blob(row[0])

    def _tombstone(self, key: Key) -> str:
        """Version of the tombstone that still stands for a key, or empty."""
        if self.cluster is None or not self.cluster.tombstones:
            return ""
        row = self._connection.execute(
            "SELECT version FROM tombstone WHERE cluster = ? AND name = ? AND at > ?",
            (self.cluster.id, values.name_of(key), self._expired),
        ).fetchone()
        return row[0] if row is not None and isinstance(row[0], str) else ""

    def _trim(self, cluster: ClusterRow, number: int, total: int) -> tuple[str, int]:
        marks, last, undone = rules.trimmed(
            cluster.marks, number, cluster.total, total, self._settings.log_limit
        )
        run = self._connection.execute
        if undone:
            run("DELETE FROM undo WHERE cluster = ? AND number <= ?", (cluster.id, undone))
        if not last:
            return marks, cluster.oldest
        run("DELETE FROM log WHERE cluster = ? AND number <= ?", (cluster.id, last))
        # No precondition can name a revision that old any more.
        run("DELETE FROM touched WHERE cluster = ? AND number <= ?", (cluster.id, last))
        return marks, last + 1

    def _where(self, key: Key) -> tuple[int, int, str, str]:
        assert self.cluster is not None, "nothing is stored without a cluster"
        return self.cluster.id, key.kind.value, key.namespace, key.name


def _key(change: Change) -> Key:
    return change.object.key if isinstance(change, Put) else change.key


def _deletion(key: Key, stored: bytes | None) -> tuple[bytes, bytes]:
    """The log entry of an object that goes."""
    return _field(values.DELETED, key), values.header_bytes(stored or b"")


def _field(mark: bytes, key: Key) -> bytes:
    return mark + values.name_of(key).encode()
