"""The history that a replica follows, to tell a revision that it holds from one that was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import RevisionCompacted, RevisionOfOtherHistory, RevisionUnavailable
from topospread.replica.view import Token
from topospread.store.api import Revision

if TYPE_CHECKING:
    from topospread.store.api import Reader

REMEMBERED: Final = 4096
"""Transactions whose tags are remembered. A token is rarely that old; then the store is asked."""


class History:
    """Tags of the last transactions of one cluster. One thread writes, others check."""

    def __init__(self, cluster: str, reader: Reader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._tags: dict[int, str] = {}

    def begin(self, revision: Revision) -> None:
        """Another history, or the same from here on."""
        self._tags = {revision.number: revision.tag}

    def add(self, revision: Revision) -> None:
        """The next transaction."""
        self._tags[revision.number] = revision.tag
        self._tags.pop(revision.number - REMEMBERED, None)

    def check(self, token: Token) -> None:
        """Refuse a token whose revision is not part of the history, though its number was reached.

        Raises:
            RevisionUnavailable: it is not, or the log no longer tells.
            IdentityChanged: the store has another history by now.
            StoreUnavailable: only the store could tell.
        """
        tag = self._tags.get(token.revision.number)
        if tag is None:
            self.ask(token)
        elif tag != token.revision.tag:
            raise _no_part(token)

    def ask(self, token: Token) -> None:
        """Let the store tell whether a revision is part of its history; errors as for check()."""
        try:
            self._reader.verify(self._cluster, token.identity, token.revision)
        except RevisionCompacted as cause:
            text = f"revision {token.revision.number} is older than the store's log"
            raise compacted(f"{text}: read again without it", token.identity, cause) from cause
        except RevisionUnavailable as cause:
            raise _no_part(token) from cause


def _no_part(token: Token) -> RevisionUnavailable:
    return RevisionOfOtherHistory(
        f"revision {token.revision.number} is no part of the store's history: it was lost when the "
        "store failed over: read again without it"
    )


def compacted(text: str, identity: str, cause: RevisionCompacted) -> RevisionCompacted:
    """What the store says of its log, with the oldest revision as callers carry it."""
    if cause.oldest is None:
        return RevisionCompacted(text)
    oldest = Token(identity, Revision(*cause.oldest)).encode()
    return RevisionCompacted(text, cause.oldest, oldest)
