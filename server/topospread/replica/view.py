"""Views, tokens and how fresh a view must be.

A view is a snapshot together with the point in history that it stands for.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.errors import InvalidRequest
from topospread.store.model import Revision

if TYPE_CHECKING:
    from topospread.index.snapshot import Snapshot
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
