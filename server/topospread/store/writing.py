"""One write, for backends that can look into their objects while they write.

Redis' script does the same in Lua; a property test compares the two.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from topospread.store import rules, values
from topospread.store.model import Applied, Head, Key, Kind, Put, Revision, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import Change, Listed, Remove, StoreSettings, Unchanged
    from topospread.store.rules import LeaseRow
    from topospread.store.values import Header


@dataclass(slots=True)
class ClusterState:
    """What is noted of a cluster beside its objects.

    Attributes:
        identity: empty when there is no such cluster, or not any more.
        total: changes ever logged.
        marks: see rules.trimmed().
        listed: see rules.with_listed(), as for ``feed``.
        replaced: identities that were dropped, newest first.
        replaced_at: when the newest one was, in milliseconds since 1970.
    """

    name: str
    identity: str = ""
    number: int = 0
    tag: str = ""
    total: int = 0
    marks: str = ""
    listed: int = 0
    feed: int = 0
    replaced: str = ""
    replaced_at: int = 0

    @property
    def revision(self) -> Revision:
        """The newest revision."""
        return Revision(self.number, self.tag)

    def head(self, now: int) -> Head:
        """The head as the contract shows it."""
        complete = rules.is_complete(self.listed, self.feed)
        replaced = rules.replaced(self.replaced, self.replaced_at, now)
        return Head(self.identity, self.revision, complete, replaced)


@dataclass(slots=True)
class Write:
    """What a transaction writes.

    Attributes:
        now: milliseconds since 1970.
        values: by key; None for an object that is deleted.
        due: when reservations among them are due, in milliseconds since 1970.
        tombstones: versions that deletions leave, by key.
        entries: of the log: marked names, and values.
        listed: the kind whose tombstones go that are newer than its version.
        previous_tag: of the revision before.
        scopes: that something relevant changed in.
        ended: reservations that end without being among the changes.
        trimmed: number of the last transaction that leaves the log; 0: none does.
    """

    now: int
    settings: StoreSettings
    values: dict[Key, bytes | None] = field(default_factory=dict)
    due: dict[Key, int] = field(default_factory=dict)
    tombstones: dict[Key, str] = field(default_factory=dict)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)
    scopes: set[str] = field(default_factory=set)
    ended: list[Key] = field(default_factory=list)
    listed: Listed | None = None
    previous_tag: str = ""
    trimmed: int = 0

    @property
    def expired(self) -> int:
        """Tombstones that are as old as this count no more."""
        return self.now - round(self.settings.tombstone_seconds * 1000)


class Tables(Protocol):
    """One cluster as a transaction of the backend finds it; only write() changes it."""

    @property
    def state(self) -> ClusterState:
        """What is noted of it; apply() changes the object, and write() stores it."""
        ...

    def lease(self) -> LeaseRow:
        """The lease as it is stored; it need not have a cluster."""
        ...

    def value(self, key: Key) -> bytes | None:
        """The stored value of an object; None where none is."""
        ...

    def tombstone(self, key: Key, expired: int) -> str:
        """Version of the tombstone of a key that is younger than ``expired``, or empty."""
        ...

    def due(self, now: int) -> Sequence[Key]:
        """Reservations that are due, at most MAX_ENDED, the earliest first."""
        ...

    def touched(self, scope: str) -> int:
        """Number of the last transaction with the scope; 0 if none is known."""
        ...

    def first_after(self, number: int) -> tuple[int, str] | None:
        """Number and previous tag of the first transaction of the log after a number."""
        ...

    def write(self, write: Write) -> None:
        """Write the state and all of this; only for a cluster that exists by now."""
        ...


def apply(
    tables: Tables,
    changes: Sequence[Change],
    *,
    precondition: Unchanged | None,
    identity: str,
    force: bool,
    fence: int,
    listed: Listed | None,
    now: int,
    settings: StoreSettings,
) -> Applied:
    """Check everything, then write, within a transaction; see the contract."""
    state = tables.state
    if fence and fence != (lease := tables.lease()).fence:
        raise rules.fenced(state.name, lease.holder)
    if identity:
        check_identity(state, identity)
    if precondition is not None:
        _check_unchanged(tables, precondition)
    write = Write(now, settings, listed=listed if listed and listed.version else None)
    step = _Step(tables, write, force=force)
    outcomes = tuple([step.judge(change) for change in changes])
    step.end_due({change.key for change in changes})
    previous = state.revision
    if not state.identity and (write.entries or not (changes or identity)):
        state.identity = uuid4().hex
    if state.identity:
        if write.entries:
            _append(state, write)
        state.listed, state.feed = rules.with_listed(state.listed, state.feed, listed)
        tables.write(write)
    return Applied(state.revision, previous, outcomes, tuple(write.ended), now, state.identity)


def check_identity(state: ClusterState, wanted: str) -> None:
    """Refuse a cluster that is not there or is another one."""
    if not state.identity or state.identity != wanted:
        raise rules.other_identity(state.identity)


def check_reaches(tables: Tables, revision: Revision) -> None:
    """Refuse a revision that the log does not hold, or that belongs to another history."""
    head = tables.state.revision
    if revision == head:
        return
    if revision.number >= head.number:
        raise rules.other_history(revision.number)
    number, previous = tables.first_after(revision.number) or (head.number + 1, head.tag)
    if number > revision.number + 1:
        raise rules.trimmed_past(revision.number, (number - 1, previous))
    if previous != revision.tag:
        raise rules.other_history(revision.number)


def _check_unchanged(tables: Tables, precondition: Unchanged) -> None:
    """Refuse when something relevant to the scopes came after the revision."""
    check_reaches(tables, precondition.revision)
    number = precondition.revision.number
    for scope in precondition.scopes:
        changed = tables.touched(scope)
        if changed > tables.state.number:
            raise values.unreadable(tables.state.name, "touched")
        if changed > number:
            raise rules.conflict(scope, changed, number)


def _append(state: ClusterState, write: Write) -> None:
    """Begin the next revision, and find out what leaves the log."""
    before, write.previous_tag = state.total, state.tag
    state.number, state.tag = state.number + 1, secrets.token_hex(8)
    state.total += len(write.entries)
    state.marks, write.trimmed = rules.trimmed(
        state.marks, state.number, before, state.total, write.settings.log_limit
    )


class _Step:
    """Judges changes one by one; objects are read as they were before all of them.

    A stored value that cannot be read has no version and no uid: anything may be written over it.
    """

    def __init__(self, tables: Tables, write: Write, *, force: bool) -> None:
        self._tables = tables
        self._write = write
        self._force = force

    def judge(self, change: Change) -> WriteOutcome:
        """The outcome of a change."""
        key = change.key
        stored = self._tables.value(key)
        old = values.header(stored or b"") or values.NO_HEADER
        if isinstance(change, Put):
            outcome = self._put(change, stored, old)
            ends, uid = change.ends_reservation, change.object.uid
        else:
            outcome = self._remove(change, stored, old)
            ends, uid = key.kind is Kind.POD, change.uid or old.uid
        if ends and outcome is not WriteOutcome.IGNORED_STALE:
            reservation = Key(Kind.RESERVATION, key.namespace, key.name)
            held = self._tables.value(reservation)
            if held is not None and _is_for(held, uid):
                self._end(reservation, held)
        return outcome

    def end_due(self, mentioned: set[Key]) -> None:
        """End what is due, but what the transaction deals with already."""
        due = set(self._tables.due(self._write.now)) - mentioned - set(self._write.ended)
        for key in sorted(due, key=values.name_of):
            self._end(key, self._tables.value(key))

    def _put(self, put: Put, stored: bytes | None, old: Header) -> WriteOutcome:
        due = 0 if put.lifetime is None else self._write.now + put.lifetime
        value = values.pack(replace(put.object, expires_at=due))
        version, mark = put.object.resource_version, values.RELEVANT
        if stored is None:
            outcome = WriteOutcome.CREATED
            held = self._tombstone(put.key)
            late = held and not values.older(held, version)
        elif stored == value and put.lifetime is None:
            return WriteOutcome.UNCHANGED
        else:
            outcome = WriteOutcome.UPDATED
            late = old.version and values.older(version, old.version)
            if old.digest == put.object.digest:
                mark = values.IRRELEVANT
        if late and version and not self._force:
            return WriteOutcome.IGNORED_STALE
        self._change(put.key, value, mark, value)
        if due:
            self._write.due[put.key] = due
        return outcome

    def _remove(self, remove: Remove, stored: bytes | None, old: Header) -> WriteOutcome:
        key, version = remove.key, remove.up_to_version
        if stored is None:
            outcome = WriteOutcome.NOT_FOUND
            held = self._tombstone(key)
            buries = not held or values.older(held, version)
        elif remove.uid and old.uid != remove.uid:
            return WriteOutcome.NOT_FOUND
        elif version and old.version and values.older(version, old.version) and not self._force:
            return WriteOutcome.IGNORED_STALE
        else:
            outcome, buries = WriteOutcome.DELETED, True
            self._delete(key, stored)
        if buries and version and key.kind is not Kind.RESERVATION:
            self._write.tombstones[key] = version
        return outcome

    def _end(self, reservation: Key, stored: bytes | None) -> None:
        self._write.ended.append(reservation)
        self._delete(reservation, stored)

    def _delete(self, key: Key, stored: bytes | None) -> None:
        self._change(key, None, values.DELETED, values.header_bytes(stored or b""))

    def _change(self, key: Key, value: bytes | None, mark: bytes, logged: bytes) -> None:
        self._write.values[key] = value
        self._write.entries.append((mark + values.name_of(key).encode(), logged))
        if mark != values.IRRELEVANT:
            self._write.scopes.add(key.scope)

    def _tombstone(self, key: Key) -> str:
        return self._tables.tombstone(key, self._write.expired)


def _is_for(reservation: bytes, uid: str) -> bool:
    """Whether a stored reservation is for the pod with a uid; an unknown uid is any."""
    found = values.header(reservation) or values.NO_HEADER
    return not uid or found.uid in ("", uid)
