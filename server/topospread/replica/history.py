"""Histories of a cluster: the revisions of the one followed, and whether another may replace it.

A store that was emptied or exchanged looks like a small cluster. Following it would show every
scheduler free nodes, so another history is followed only if the cluster was deleted, or once each
kind has been listed into it. Until then the last view answers, and writes are refused.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.errors import RevisionCompacted, RevisionOfOtherHistory, RevisionUnavailable
from topospread.replica.view import Token
from topospread.store.model import Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.api import Reader
    from topospread.store.model import Head, Transaction

MAX_TAGS: Final = 4096
"""Transactions whose tags are remembered. A token is rarely that old; then the store is asked."""


class RevisionTags:
    """Tags of the last transactions of the followed history. One thread writes, others check."""

    def __init__(self, cluster: str, reader: Reader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._tags: dict[int, str] = {}

    def begin(self, revision: Revision) -> None:
        """Forget all tags and begin with this revision."""
        self._tags = {revision.number: revision.tag}

    def add(self, revision: Revision) -> None:
        """Remember the tag of the next transaction."""
        self._tags[revision.number] = revision.tag
        self._tags.pop(revision.number - MAX_TAGS, None)

    def check(self, token: Token) -> None:
        """Refuse a token whose revision is not part of the history, though its number was reached.

        Raises:
            RevisionUnavailable: it is not, or the log does not reach back to it.
            IdentityChanged: the store has another history by now.
            StoreUnavailable: only the store knows.
        """
        tag = self._tags.get(token.revision.number)
        if tag is None:
            self.verify(token)
        elif tag != token.revision.tag:
            raise _lost(token)

    def verify(self, token: Token) -> None:
        """Ask the store whether a revision is part of its history; errors as of check()."""
        try:
            self._reader.follow(self._cluster, token.identity, token.revision, wait=0, limit=0)
        except RevisionCompacted as cause:
            text = f"revision {token.revision.number} is older than the store's log"
            raise compacted(f"{text}: read again without it", token.identity, cause) from cause
        except RevisionUnavailable as cause:
            raise _lost(token) from cause


def _lost(token: Token) -> RevisionUnavailable:
    return RevisionOfOtherHistory(
        f"revision {token.revision.number} is no part of the store's history: it was lost when the "
        "store failed over: read again without it"
    )


def compacted(text: str, identity: str, cause: RevisionCompacted) -> RevisionCompacted:
    """The store's error for a trimmed log, with the oldest revision as callers carry it."""
    if cause.oldest is None:
        return RevisionCompacted(text)
    oldest = Token(identity, Revision(*cause.oldest)).encode()
    return RevisionCompacted(text, cause.oldest, oldest)


class HistoryStatus(Enum):
    """Status of a followed history, judged by what the store has now."""

    SAME = auto()
    """The store has it."""
    DROPPED = auto()
    """The cluster was deleted: what is there now is meant, if anything is."""
    REPLACED = auto()
    """It is gone, and each kind was listed into the present one."""
    LOST = auto()
    """It is gone, and the present one is not complete."""


def check_continued(identity: str, revision: Revision, head: Head) -> None:
    """See that a head may come after a revision; following the log shows whether it does.

    Raises:
        RevisionUnavailable: it is of another history, or of one that lost the revision.
    """
    now = head.revision
    if head.identity != identity or (now.number <= revision.number and now != revision):
        raise RevisionOfOtherHistory(
            "the cluster was deleted, or the store lost writes, while it was read: read again"
        )


def log_until(
    follow: Callable[[Revision], Sequence[Transaction]], after: Revision, last: int
) -> Iterator[Sequence[Transaction]]:
    """Read the log after a revision until it has come to a number, or past it.

    Args:
        follow: returns what comes after a revision now.
        after: the revision.
        last: a number that the store has been seen to have.

    Raises:
        RevisionUnavailable: it has it no more; also what follow() raises.
    """
    while after.number < last:
        found = follow(after)
        if not found:
            raise RevisionOfOtherHistory("the store lost writes while it was read: read again")
        yield found
        after = found[-1].revision


def status_of(identity: str, head: Head) -> HistoryStatus:
    """The status of the history with this identity, by the store's head."""
    if head.identity == identity:
        return HistoryStatus.SAME
    if identity in head.replaced:
        return HistoryStatus.DROPPED
    return HistoryStatus.REPLACED if head.complete else HistoryStatus.LOST
