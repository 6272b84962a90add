"""Histories of a cluster: the revisions of the one followed, and whether another may replace it.

A store that was emptied, restored from elsewhere or exchanged looks like a small cluster. Following
it would show every scheduler free nodes, so a person or a sync has to confirm that it is
intended: by deleting the cluster, by a full list of each kind, or by accepting it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.errors import RevisionCompacted, RevisionOfOtherHistory, RevisionUnavailable
from topospread.replica.view import Token
from topospread.store.model import Revision
from topospread.store.values import OBSERVABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.store.api import Reader
    from topospread.store.model import Head, Kind

MAX_TAGS: Final = 4096
"""Transactions whose tags are remembered. A token is rarely that old; then the store is asked."""

LISTED_KINDS: Final = OBSERVABLE
"""Kinds that a full list of the cluster has; the others are the store's own."""


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
            self._reader.verify(self._cluster, token.identity, token.revision)
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
    """The cluster was deleted on purpose: what is there now is intended, if anything is."""
    REPLACED = auto()
    """It is gone, and since then the present history was confirmed in all kinds."""
    LOST = auto()
    """It is gone, and the present history is not confirmed."""


class HistoryArbiter:
    """Judges the heads that a store shows to a replica which follows one history.

    Args:
        identity: of the history that is followed.
    """

    def __init__(self, identity: str) -> None:
        self.identity: Final = identity
        self._present = identity
        self._least: Mapping[Kind, int] = {}

    def classify(self, head: Head) -> HistoryStatus:
        """The status of the followed history; to be called with each head, oldest first.

        Confirmations from before the change was first seen count nothing: another store may have
        been in use for long, and a store that was empty may have been filled from an old copy.
        """
        if head.identity == self.identity:
            self._present = self.identity
            return HistoryStatus.SAME
        if self.identity in head.dropped:
            return HistoryStatus.DROPPED
        if head.identity != self._present:
            if head.identity == "":
                # A store that lacks the cluster: confirmations there are made since.
                self._least = {kind: head.confirmed.get(kind, head.at) for kind in LISTED_KINDS}
            elif self._present != "":
                self._least = {kind: head.confirmed.get(kind, 0) + 1 for kind in LISTED_KINDS}
            self._present = head.identity
        counted = all(head.confirmed.get(kind, -1) >= self._least[kind] for kind in LISTED_KINDS)
        return HistoryStatus.REPLACED if counted else HistoryStatus.LOST

    def accept(self, identity: str) -> None:
        """Take the history with this identity as intended, whatever is confirmed."""
        self._present = identity
        self._least = dict.fromkeys(LISTED_KINDS, -1)
