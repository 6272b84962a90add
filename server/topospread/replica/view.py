"""Views, tokens, how fresh a view must be, and the history that it belongs to.

A view is a snapshot together with the point in history that it stands for. A store that was emptied
or exchanged looks like a small cluster. Following it would show every scheduler free nodes, so
another history is followed only if the cluster was deleted, or once each kind has been listed into
it. Until then the last view answers, and writes are refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    ClusterLoading,
    InvalidRequest,
    RevisionCompacted,
    RevisionOfOtherHistory,
    RevisionUnavailable,
)
from topospread.store.model import Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.store.api import Reader
    from topospread.store.model import Head, Transaction
    from topospread.store.values import Observed


# Python's int() also takes signs, blanks, other scripts' digits and numbers of any size.
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_LAST: Final = 2**63 - 2
"""The largest that both stores can look for what follows."""

_LONGEST: Final = 512
"""Characters of a token at most; real ones are far shorter."""


@dataclass(frozen=True, slots=True)
class Token:
    """A revision as callers carry it: opaque to them, and bound to one store's history."""

    identity: str
    revision: Revision

    def encode(self) -> str:
        """The text that callers see; empty for the state of no cluster."""
        if not self.identity:
            return ""
        text = f"{self.identity}.{self.revision.number}.{self.revision.tag}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, encoded: str) -> Token:
        """Read a token.

        Raises:
            InvalidRequest: it is not one of ours.
        """
        try:
            if len(encoded) > _LONGEST:
                raise ValueError("too long")
            padded = encoded + "=" * (-len(encoded) % 4)
            raw = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
            identity, number, tag = raw.decode("ascii").split(".")
            if not identity or not _NUMBER.fullmatch(number) or int(number) > _LAST:
                raise ValueError("no number of a revision")
            return cls(identity, Revision(int(number), tag))
        except (ValueError, binascii.Error) as cause:
            text = "must be a revision that an earlier answer carried"
            raise InvalidRequest.at("", text, bad_value=encoded[:_LONGEST]) from cause


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A view of a cluster: the state that a decision is computed from.

    Attributes:
        token: of the revision, encoded once.
        published_at: seconds on the monotonic clock.
        observed: how far the API server was read, for each kind that a sync reports.
        meta: the serialized ResponseMeta of answers, while the store is reachable.
    """

    snapshot: Snapshot
    identity: str
    revision: Revision
    token: str
    published_at: float
    observed: Observed = ()
    meta: bytes = b""


class Freshness(Enum):
    """The required freshness of the state behind an answer."""

    MINIMIZE_LATENCY = auto()
    AT_LEAST_AS_FRESH = auto()
    FULLY_CONSISTENT = auto()
    NOT_OLDER_THAN = auto()


@dataclass(frozen=True, slots=True)
class Consistency:
    """A caller's demand.

    Attributes:
        token: with AT_LEAST_AS_FRESH.
        max_staleness: seconds that the store may have been out of reach; None: any.
        observed: with NOT_OLDER_THAN: versions of the API server.
    """

    freshness: Freshness = Freshness.MINIMIZE_LATENCY
    token: Token | None = None
    max_staleness: float | None = None
    observed: Observed = ()


DEFAULT_CONSISTENCY: Final = Consistency()


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
            ClusterLoading: it is part of the store's, and what is followed is not any more.
            IdentityChanged: the store has another history by now.
            StoreUnavailable: only the store knows.
        """
        tag = self._tags.get(token.revision.number)
        if tag == token.revision.tag:
            return
        self.verify(token)
        if tag is not None:
            raise ClusterLoading(
                "the store lost writes when it failed over, and its state is being loaded anew: "
                "try again"
            )

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
