"""Pure rules of writes: outcomes of changes, the lease, and when the log is trimmed.

The Lua script of the Redis backend states the same rules; a property test compares the two.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.errors import Fenced, RevisionCompacted
from topospread.store.model import MAX_LEASE, Kind, Lease, Put, WriteOutcome
from topospread.store.values import Header, header, key_of, older, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread.store.model import Change, Key, Revision, StoredObject

GRAINS: Final = 64
"""The log is trimmed in steps of 1/64 of its limit, so that a write rarely pays for it."""

UNDO_SHARE: Final = 4
"""What transactions replaced is kept for the newest changes: one in so many of those in the log.
It is as large as the log's own values, and only lists with pages need it, which take seconds.
"""

_MARK: Final = re.compile(r"[0-9]{1,20}:[0-9]{1,20}")


def judge_put(
    value: bytes, stored: bytes | None, buried: str, *, force: bool, renews: bool = False
) -> tuple[WriteOutcome, bool]:
    """The outcome of a Put.

    Args:
        value: the new stored value.
        stored: the present one, if any.
        buried: version of the tombstone that stands for the object, or empty.
        force: whether older versions may be written.
        renews: whether the same value is written again.

    Returns:
        The outcome, and whether the change is relevant to decisions.
    """
    new = header(value)
    assert new is not None, "pack() makes readable headers"
    if stored is None:
        late = new.version and buried and not older(buried, new.version)
        if late and not force:
            return WriteOutcome.IGNORED_STALE, False
        return WriteOutcome.CREATED, True
    if stored == value and not renews:
        return WriteOutcome.UNCHANGED, False
    old = header(stored)
    if old is None:
        return WriteOutcome.UPDATED, True
    if not force and new.version and old.version and older(new.version, old.version):
        return WriteOutcome.IGNORED_STALE, False
    return WriteOutcome.UPDATED, old.digest != new.digest


def judge_remove(
    uid: str, up_to_version: str, stored: bytes | None, *, force: bool
) -> WriteOutcome:
    """The outcome of a Remove; a value that cannot be read has no version and no uid."""
    if stored is None:
        return WriteOutcome.NOT_FOUND
    old = header(stored) or Header("", b"", "", 0)
    if uid and old.uid != uid:
        return WriteOutcome.NOT_FOUND
    if not force and up_to_version and old.version and older(up_to_version, old.version):
        return WriteOutcome.IGNORED_STALE
    return WriteOutcome.DELETED


def ends_for(change: Change, outcome: WriteOutcome, stored: bytes | None) -> str | None:
    """The uid of the pod whose reservation ends with a change (empty: any); None when none does.

    Args:
        change: of any object.
        outcome: of the change.
        stored: the value before it, if any.
    """
    if isinstance(change, Put):
        stale = outcome is WriteOutcome.IGNORED_STALE
        return change.object.uid if change.ends_reservation and not stale else None
    if change.key.kind is not Kind.POD or outcome is WriteOutcome.IGNORED_STALE:
        return None
    if change.uid or stored is None:
        return change.uid
    old = header(stored)
    return old.uid if old else ""


def is_for(reservation: bytes, uid: str) -> bool:
    """Whether a stored reservation is for the pod with a uid; an unknown uid is any."""
    found = header(reservation)
    return found is None or not uid or found.uid in ("", uid)


def granted(
    found: tuple[str, int, int, int], holder: str, lifetime: int, now: int, *, renewed: int = 0
) -> Lease:
    """The cluster's lease after a holder asks for it.

    A lease that has longer to go than it was granted for is one from before the clock was set back:
    it lasts once more for what it was granted for, from now on.

    Args:
        found: its holder, its token, when it ends, and the milliseconds that it was granted for (0:
            not known); empty and zero when there is none.
        holder: the asking one.
        lifetime: milliseconds that it is asked for; 0: it is given back.
        now: milliseconds since 1970.
        renewed: the token of the lease that is to be renewed or given back; 0 takes any that is
            free.
    """
    other, fence, until, _ = found
    lost = renewed and (other != holder or fence != renewed or until <= now)
    if lost or (other != holder and (not lifetime or until > now)):
        return as_found(found, now)
    if other != holder:
        fence = max(fence + 1, now)
    return Lease(holder, fence, lifetime, lifetime, now + lifetime)


def as_found(found: tuple[str, int, int, int], now: int) -> Lease:
    """A lease that is read without a change; see :func:`granted`."""
    holder, fence, until, granted_for = found
    left = min(max(0, until - now), granted_for or MAX_LEASE)
    return Lease(holder, fence, left, granted_for, now + left)


def fenced(cluster: str, holder: str) -> Fenced:
    """The error for a leader whose token is not the lease's, naming the holder."""
    return Fenced(
        f"cluster {cluster} is synced by another process now, or was deleted: take the lease and"
        " list again",
        holder,
    )


def trimmed(marks: str, number: int, before: int, total: int, limit: int) -> tuple[str, int, int]:
    """Whether the log is due for trimming after a transaction.

    Marks are places where the log may be cut: ``number:total`` pairs, oldest first, one for each
    time that the count of changes entered a new grain.

    Args:
        marks: the cluster's marks so far.
        number: of the transaction just written.
        before: changes ever logged before it.
        total: changes ever logged with it.
        limit: changes that the log must keep.

    Returns:
        The new marks, the number of the last transaction to drop (0: none), and of the last one
        whose undo entry is to be dropped.
    """
    grain = max(1, limit // GRAINS)
    if before // grain == total // grain:
        return marks, 0, 0
    # What is no mark is left out: it only makes the log longer for a while.
    kept = [*filter(_MARK.fullmatch, marks.split()), f"{number}:{total}"]
    last = undone = 0
    for mark in kept:
        at, _, count = mark.partition(":")
        if int(count) <= total - limit // UNDO_SHARE:
            undone = int(at)
    while int(kept[0].partition(":")[2]) <= total - limit:
        last = int(kept.pop(0).partition(":")[0])
    return " ".join(kept), last, undone


def undo(
    replaced: dict[Key, StoredObject | None],
    entry: Iterable[tuple[bytes, bytes]],
    wanted: Callable[[Key], bool],
) -> None:
    """Add what one more transaction replaced; what the first one replaced was there before all.

    Args:
        replaced: so far, by the transactions before it.
        entry: names, with the stored values; empty where there was none.
        wanted: which keys to add.
    """
    for name, value in entry:
        key = key_of(name)
        if key is not None and key not in replaced and wanted(key):
            replaced[key] = unpack(key, value) if value else None


def undone(since: Revision) -> RevisionCompacted:
    """The error for a revision that the undo entries do not reach back to."""
    return RevisionCompacted(
        f"revision {since.number} cannot be read any more: too much has changed since"
    )
