"""Every error that a client raises.

The tree::

    TopospreadClientError
    ├── BadConnection           options that no connection can be made with
    ├── InvalidRequest          bad input; carries all field violations at once
    ├── NotFound                a cluster, pod or object that is not there
    ├── PreconditionFailed      the caller's view is out of date; ``reason`` says which
    │   ├── CycleExpired        an unknown cycle, and no pod to make it again
    │   ├── NodeTableChanged    indices into a node table that is not the current one
    │   ├── IdentityChanged     the store is another one than the server's index was built from
    │   └── Fenced              another feeds the cluster now; list again under a lease of one's own
    ├── RevisionUnavailable     the change log no longer reaches back to that revision: list again
    ├── LimitExceeded           a queue, batch or table of the server is full
    ├── Conflict                others changed what the write rests on: retry after ``retry_after``
    │   └── ReplaceIncomplete   a list that did not arrive as a whole; nothing was changed
    ├── DeadlineExceeded        no answer within the time-out
    ├── Unavailable             no server there, or one that cannot answer now
    ├── Closed                  the client or the stream was closed, before the call or during it
    ├── NotPermitted            the caller is not known or may not do this
    ├── NotSupported            this server does not have that call
    └── ServerFault             the server failed; its log says more under the trace id

Errors that came over the wire hold the call's ``traceparent``; their cause is the gRPC error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a request.

    Attributes:
        field: path as kubectl prints it, for example ``spec.topologySpreadConstraints[0].maxSkew``.
        type: the API server's kind of error, for example ``Invalid value``.
        detail: the API server's text.
    """

    field: str
    type: str
    detail: str

    @property
    def text(self) -> str:
        """As the API server words it, without the offending value."""
        return ": ".join(part for part in (self.field, self.type, self.detail) if part)


class TopospreadClientError(Exception):
    """Base of all errors here.

    Attributes:
        traceparent: W3C trace context of the failed call; None when the server did not send one.
    """

    def __init__(self, message: str, *, traceparent: str | None = None) -> None:
        super().__init__(message)
        self.traceparent = traceparent


class BadConnection(TopospreadClientError):
    """Connection options that cannot be used; the text says what to change. Nothing was sent."""


class InvalidRequest(TopospreadClientError):
    """Bad input. Nothing of the request was applied. Do not retry.

    Attributes:
        violations: everything that is wrong, as far as the server named fields.
    """

    def __init__(
        self, message: str, violations: Sequence[Violation] = (), *, traceparent: str | None = None
    ) -> None:
        super().__init__(message, traceparent=traceparent)
        self.violations = tuple(violations)


class NotFound(TopospreadClientError):
    """Something named in the request does not exist."""


class PreconditionFailed(TopospreadClientError):
    """The caller's view is out of date; ``reason`` is a stable upper-case code."""

    reason: ClassVar[str] = "PRECONDITION_FAILED"


class CycleExpired(PreconditionFailed):
    """The cycle is unknown to that process and the request carried no pod to make it again."""

    reason: ClassVar[str] = "CYCLE_EXPIRED"


class NodeTableChanged(PreconditionFailed):
    """Indices refer to a node table that is not the current one."""

    reason: ClassVar[str] = "NODE_TABLE_CHANGED"


class IdentityChanged(PreconditionFailed):
    """The store is another one than the index was built from; an operator must accept it."""

    reason: ClassVar[str] = "STORE_IDENTITY_CHANGED"


class Fenced(PreconditionFailed):
    """A write's fence is not that of the feeder's lease: take the lease, and list again."""

    reason: ClassVar[str] = "FEEDER_FENCED"


class RevisionUnavailable(TopospreadClientError):
    """A revision that the log no longer reaches, or of another history. List again, then watch."""


class LimitExceeded(TopospreadClientError):
    """The server refused at once instead of queueing; the text names the limit.

    Attributes:
        retry_after: seconds to wait before the next try; None when the server did not say.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, traceparent: str | None = None
    ) -> None:
        super().__init__(message, traceparent=traceparent)
        self.retry_after = retry_after


class Conflict(TopospreadClientError):
    """Others changed what the write rests on.

    Attributes:
        retry_after: seconds to wait before the next try; None when the server did not say.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, traceparent: str | None = None
    ) -> None:
        super().__init__(message, traceparent=traceparent)
        self.retry_after = retry_after


class ReplaceIncomplete(Conflict):
    """A list ended without its commit. Nothing was changed. Send the whole list again."""

    reason: ClassVar[str] = "REPLACE_INCOMPLETE"


class DeadlineExceeded(TopospreadClientError):
    """No answer within the time-out. A write may have happened."""


class Unavailable(TopospreadClientError):
    """No server at that address, or one that cannot answer now.

    Attributes:
        retry_after: seconds to wait before the next try; None when the server did not say.
        reached: whether a server answered at all.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        reached: bool = False,
        traceparent: str | None = None,
    ) -> None:
        super().__init__(message, traceparent=traceparent)
        self.retry_after = retry_after
        self.reached = reached


class Closed(TopospreadClientError):
    """The client or the stream was closed: open another one. A write may have happened."""


class NotPermitted(TopospreadClientError):
    """The caller is not known to the server, or may not do this."""


class NotSupported(TopospreadClientError):
    """This server does not have that call."""


class ServerFault(TopospreadClientError):
    """The server failed, or sent what cannot be read. Not the caller's fault."""
