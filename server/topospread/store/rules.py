"""What all backends keep: leases, errors, when the log is trimmed, how much is read at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.errors import (
    Conflict,
    Fenced,
    IdentityChanged,
    RevisionCompacted,
    RevisionOfOtherHistory,
)
from topospread.store.model import MAX_LEASE, Lease, Page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.store.model import Listed, StoredObject, Transaction

GRAINS: Final = 64
"""The log is trimmed in steps of 1/64 of its limit, so that a write rarely pays for it."""

REPLACED_KEPT: Final = 8
"""Identities of dropped histories that a cluster remembers."""

REPLACED_MILLISECONDS: Final = 86_400_000
"""For which it remembers them after the last one: a server that is away for longer starts anew."""

_MARK: Final = re.compile(r"[0-9]{1,20}:[0-9]{1,20}")


class LeaseRow(NamedTuple):
    """A lease as it is stored, see Lease; empty when there is none."""

    holder: str = ""
    fence: int = 0
    until: int = 0
    granted_for: int = 0

    def at(self, now: int) -> Lease:
        """The lease as it is read; milliseconds since 1970."""
        left = max(0, self.cut(now).until - now)
        return Lease(self.holder, self.fence, left, self.granted_for, now + left)

    def cut(self, now: int) -> LeaseRow:
        """The lease on a clock that may have been set back meanwhile.

        One that has longer to go than it was granted for lasts once more for that long, from now.
        """
        return self._replace(until=min(self.until, now + (self.granted_for or MAX_LEASE)))


def granted(found: LeaseRow, holder: str, lifetime: int, now: int) -> LeaseRow:
    """The lease after a holder asks for it; see Writer.acquire()."""
    other, fence, until, _ = found
    if other != holder and (not lifetime or until > now):
        return found.cut(now)
    if other != holder:
        fence = max(fence + 1, now)
    return LeaseRow(holder, fence, now + lifetime, lifetime)


def fenced(cluster: str, holder: str) -> Fenced:
    """The error for a leader whose token is not the lease's, naming the holder."""
    now = f"synced by {holder} now" if holder else "synced by nobody now, or was deleted"
    return Fenced(f"cluster {cluster} is {now}: acquire the lease and list again")


def other_identity(found: str) -> IdentityChanged:
    """The error for a cluster with another identity; it is not there when that is empty."""
    what = "has another identity" if found else "does not exist"
    return IdentityChanged(f"the cluster {what} in this store: it is not the one followed so far")


def other_history(number: int) -> RevisionOfOtherHistory:
    """The error for a revision with another tag than the log has, or from the future."""
    return RevisionOfOtherHistory(
        f"revision {number} is of another history than the store's: list again"
    )


def trimmed_past(number: int, oldest: tuple[int, str] | None = None) -> RevisionCompacted:
    """The error for a revision that the log does not reach back to; it does to the oldest one."""
    return RevisionCompacted(f"the log was trimmed past revision {number}: list again", oldest)


def conflict(scope: str, changed: int, number: int) -> Conflict:
    """The error for a scope that changed after a revision."""
    text = f"{scope!r} changed at revision {changed}, after {number}: evaluate again"
    return Conflict(text, revision=changed)


def with_listed(listed: int, feed: int, now: Listed | None) -> tuple[int, int]:
    """The kinds that were listed into a history, and those that its feeds list, as sets of bits.

    Bit ``n`` is for the kind with that number; ``now`` is what was just listed, if anything. No
    feed takes off what another one lists.
    """
    if now is None:
        return listed, feed
    return listed | 1 << now.kind, feed | sum(1 << kind for kind in now.kinds)


def is_complete(listed: int, feed: int) -> bool:
    """Whether each kind of all feeds was listed; not where there never was a feed."""
    return feed != 0 and not feed & ~listed


def replaced(identities: str, at: int, now: int) -> tuple[str, ...]:
    """The identities that are remembered as dropped, newest first; times in milliseconds."""
    return tuple(identities.split()) if now - at < REPLACED_MILLISECONDS else ()


def with_replaced(identities: str, at: int, now: int, identity: str) -> str:
    """The identities that are remembered, with one more."""
    others = [each for each in replaced(identities, at, now) if each != identity]
    return " ".join([identity, *others][:REPLACED_KEPT])


def trimmed(marks: str, number: int, before: int, total: int, limit: int) -> tuple[str, int]:
    """The marks after a transaction, and the number of the last one that leaves the log (0: none).

    Marks are places where the log may be cut: ``number:total`` pairs, oldest first, one for each
    time that the count of changes ever logged entered a new grain. ``before`` and ``total`` are
    that count without and with the transaction; the log keeps ``limit`` changes.
    """
    grain = max(1, limit // GRAINS)
    if before // grain == total // grain:
        return marks, 0
    # What is no mark is left out: it only makes the log longer for a while.
    kept = [*filter(_MARK.fullmatch, marks.split()), f"{number}:{total}"]
    last = 0
    while int(kept[0].partition(":")[2]) <= total - limit:
        last = int(kept.pop(0).partition(":")[0])
    return " ".join(kept), last


def page_of(objects: Iterable[StoredObject], limit: int, max_bytes: int) -> Page:
    """The first of some objects, as scan() returns them."""
    found: list[StoredObject] = []
    for each in objects:
        found.append(each)
        max_bytes -= len(each.payload)
        if max_bytes <= 0 or len(found) == limit:
            return Page(found, (each.key.namespace, each.key.name))
    return Page(found)


def first_of(transactions: Iterable[Transaction], limit: int) -> list[Transaction]:
    """The first of some transactions, whole ones until they hold so many changes."""
    found: list[Transaction] = []
    for each in transactions if limit else ():
        found.append(each)
        limit -= len(each.entries)
        if limit <= 0:
            break
    return found
