"""Every error that topospread raises on purpose.

The tree (each transport maps it to its own statuses in one place)::

    TopospreadError
    ├── InvalidRequest          bad input; carries all field violations at once
    ├── NotFound                a cluster, pod or object that is not there
    ├── PreconditionFailed      the caller's view is out of date
    │   ├── CycleExpired        an unknown cycle and no pod to make it again
    │   ├── NodeTableChanged    indices into a node table that is not the current one
    │   ├── IdentityChanged     the store is another one than the index was built from
    │   └── Fenced              another feeds the cluster now; what one feeder began is void
    ├── RevisionUnavailable     a revision that the log no longer reaches, or of another history
    ├── LimitExceeded           a bounded queue, batch or table is full
    │   └── RateExceeded        one caller calls too often
    ├── DeadlineExceeded        a wait ended with the call's deadline
    ├── CallerGone              nobody waits for the answer any more
    ├── Unauthenticated         the caller is not known; nothing more is said
    ├── PermissionDenied        the caller lacks a role, which the text names
    ├── NotOffered              a call of the API that this version does not have
    ├── Conflict                a precondition did not hold and retries ran out
    │   └── ReplaceIncomplete   a list ended before its sender said that it was whole
    ├── Unavailable             state not loaded, too stale, or the server is going away
    │   ├── StoreUnavailable    the store cannot be reached or refused to answer
    │   └── ClusterUnavailable  the cluster's API server cannot be reached or refused to answer
    ├── CorruptValue            a stored value that cannot be read
    └── ConfigError             settings that cannot be used; says which and what to write

Texts are for the person who calls: they say what to do, and never show a driver's own message or a
secret. The cause is kept in ``__cause__`` for the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing that is wrong with a request.

    Attributes:
        field: path as kubectl prints it, for example ``spec.topologySpreadConstraints[0].maxSkew``.
        description: the API server's text (its ``detail``).
        type: the API server's error type, for example ``Invalid value``.
        bad_value: the offending value, as JSON would show it; only for error texts.
    """

    field: str
    description: str
    type: str = "Invalid value"
    bad_value: object = None


class TopospreadError(Exception):
    """Base of all errors here."""


class InvalidRequest(TopospreadError):
    """Bad input. Nothing of the request was applied. Do not retry."""

    def __init__(self, message: str, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)

    @classmethod
    def of(cls, violations: Sequence[FieldViolation]) -> InvalidRequest:
        """Build the error from what is wrong, at least one violation."""
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        return cls(f"{first.field}: {first.description or first.type}{more}", violations)


class NotFound(TopospreadError):
    """Something named in the request does not exist."""


class PreconditionFailed(TopospreadError):
    """The caller's view is out of date; ``reason`` is a stable upper-case code."""

    reason = "PRECONDITION_FAILED"


class CycleExpired(PreconditionFailed):
    """The cycle is unknown here and the request carries no pod to make it again."""

    reason = "CYCLE_EXPIRED"


class NodeTableChanged(PreconditionFailed):
    """Indices refer to a node table that is not the current one; fetch it again."""

    reason = "NODE_TABLE_CHANGED"


class IdentityChanged(PreconditionFailed):
    """The store is not the one the index was built from; accept it or replace all kinds."""

    reason = "STORE_IDENTITY_CHANGED"


class Fenced(PreconditionFailed):
    """A write's token is not that of the feeder's lease: take the lease, and list again."""

    reason = "FEEDER_FENCED"


class RevisionUnavailable(TopospreadError):
    """The log does not have a revision: trimmed away, or of another history. List again."""


class LimitExceeded(TopospreadError):
    """A bounded resource is full; the text names the limit."""


class RateExceeded(LimitExceeded):
    """The caller calls more often than it may. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(TopospreadError):
    """Waiting ended with the caller's deadline."""


class CallerGone(TopospreadError):
    """The caller cancelled the call or its connection broke."""


class Unauthenticated(TopospreadError):
    """The caller showed nothing that is known here; it is told no more than that."""

    def __init__(self) -> None:
        super().__init__("a valid token or client certificate is needed")


class PermissionDenied(TopospreadError):
    """The caller is known and lacks a role. The text names the role. Do not retry."""


class NotOffered(TopospreadError):
    """This version does not have the call."""


class Conflict(TopospreadError):
    """Others changed what the decision rests on. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float = 0.05) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ReplaceIncomplete(Conflict):
    """A Replace ended without its commit. Nothing was changed. Send the whole list again."""

    reason = "REPLACE_INCOMPLETE"


class Unavailable(TopospreadError):
    """Cannot answer now. Retry after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(Unavailable):
    """The store is out of reach, read-only or full; nothing was written."""


class ClusterUnavailable(Unavailable):
    """The API server that a cluster is fed from is out of reach, or refused to answer."""


class CorruptValue(TopospreadError):
    """A stored value cannot be read; it is skipped, counted and logged with its key."""


class ConfigError(TopospreadError):
    """Settings that cannot be used. The text names the setting and what to write instead."""
