"""What store.lua answers: the result of a write, or the error for a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import (
    Conflict,
    IdentityChanged,
    RevisionCompacted,
    RevisionOfOtherHistory,
)
from topospread.store import values
from topospread.store.model import Applied, Key, Kind, Revision, WriteOutcome
from topospread.store.redis import reading
from topospread.store.redis.keys import check_format

if TYPE_CHECKING:
    from topospread.store.model import Unchanged
    from topospread.store.redis.connections import Reply

_OUTCOMES: Final = {
    "C": WriteOutcome.CREATED,
    "U": WriteOutcome.UPDATED,
    "=": WriteOutcome.UNCHANGED,
    "S": WriteOutcome.IGNORED_STALE,
    "D": WriteOutcome.DELETED,
    "N": WriteOutcome.NOT_FOUND,
}


def applied_of(reply: Reply) -> Applied:
    """The result of a write."""
    texts = (word.decode(errors="replace") for word in reply)
    _, number, tag, before, before_tag, outcomes, at, identity, *ended = texts
    return Applied(
        Revision(int(number), tag),
        Revision(int(before), before_tag),
        tuple(_OUTCOMES[letter] for letter in outcomes),
        tuple(Key(Kind.RESERVATION, *name.split("/", 1)) for name in ended if "/" in name),
        int(at),
        identity,
    )


def raise_refusal(cluster: str, reply: Reply, precondition: Unchanged | None) -> None:
    """Raise the error for a refusal of the script."""
    reason, *rest = (word.decode(errors="replace") for word in reply)
    number = precondition.revision.number if precondition else 0
    match reason:
        case "FORMAT":
            check_format(reply[1])
        case "IDENTITY":
            what = "has another identity" if rest[0] else "does not exist"
            raise IdentityChanged(
                f"the cluster {what} in this store: it is not the one followed so far"
            )
        case "TRIMMED":
            raise RevisionCompacted(f"the log was trimmed past revision {number}: list again")
        case "DIVERGED":
            raise RevisionOfOtherHistory(
                f"revision {number} is of another history than the store's: list again"
            )
        case "CONFLICT":
            raise Conflict(
                f"{rest[0]!r} changed at revision {rest[1]}, after {number}: evaluate again"
            )
        case "VANISHED":
            raise reading.vanished(cluster, *rest)
        case "UNREADABLE":
            raise values.unreadable(cluster, f"{rest[0]} is {rest[1]!r:.20}")
    raise AssertionError(f"store.lua answered {reason!r}")
