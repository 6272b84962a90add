"""What store.lua answers: the result of a write, or the error for a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.store import rules, values
from topospread.store.model import Applied, Revision, WriteOutcome
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
        tuple(key for name in ended if (key := values.key_of(name.encode())) is not None),
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
            raise rules.other_identity(rest[0])
        case "TRIMMED":
            raise rules.trimmed_past(number)
        case "DIVERGED":
            raise rules.other_history(number)
        case "CONFLICT":
            raise rules.conflict(rest[0], int(rest[1]), number)
        case "UNREADABLE":
            raise values.unreadable(cluster, f"{rest[0]} is {rest[1]!r:.20}")
    raise AssertionError(f"store.lua answered {reason!r}")
