"""Every error that a client raises.

Errors that came over the wire hold the call's ``traceparent``; their cause is the gRPC error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import grpc

_WORDS: Final = {
    "FIELD_VALUE_REQUIRED": "Required value",
    "FIELD_VALUE_INVALID": "Invalid value",
    "FIELD_VALUE_NOT_SUPPORTED": "Unsupported value",
    "FIELD_VALUE_DUPLICATE": "Duplicate value",
    "FIELD_VALUE_FORBIDDEN": "Forbidden",
    "FIELD_VALUE_NOT_FOUND": "Not found",
    "FIELD_VALUE_TOO_LONG": "Too long",
    "FIELD_VALUE_TOO_MANY": "Too many",
}
"""The API server's kinds of error."""

INVALID_FIELDS: Final = "INVALID_FIELDS"
"""The reason of what the client itself refuses, as a server says it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a request.

    Attributes:
        field: path from the request's root, for example
            ``pod.object.spec.topologySpreadConstraints[0].maxSkew``.
        reason: for programs, for example ``FIELD_VALUE_INVALID``.
        description: the API server's text.
    """

    field: str
    reason: str
    description: str

    @property
    def text(self) -> str:
        """As the API server words it, without the offending value."""
        parts = (self.field, _WORDS.get(self.reason, ""), self.description)
        # Where there is no more to say, the kind of error is the description.
        return ": ".join(part for part in dict.fromkeys(parts) if part)


class TopospreadClientError(Exception):
    """Base of all errors here.

    Attributes:
        code: gRPC's status; None where the client itself raised it.
        reason: for programs: an `ErrorReason`, or what only a newer server says; None where no
            server said one.
        metadata: what the server says beside the reason, by name.
        retry_after: seconds to wait before the next try; None where the server did not say.
        traceparent: W3C trace context of the failed call; None where the server did not send one.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        traceparent: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.retry_after = retry_after
        self.traceparent = traceparent


class BadConnection(TopospreadClientError):
    """Connection options that cannot be used; the text says what to change. Nothing was sent."""


class InvalidRequest(TopospreadClientError):
    """Bad input. Nothing of the request was applied. Do not retry.

    Attributes:
        violations: everything that is wrong, as far as fields were named.
    """

    violations: tuple[Violation, ...] = ()


def invalid(path: str, description: str, reason: str = "FIELD_VALUE_INVALID") -> InvalidRequest:
    """What is raised for something that a caller gave, before anything is sent.

    Args:
        path: of what is wrong, from the request's root.
        description: what is wrong there.
        reason: the kind of error.
    """
    violation = Violation(path, reason, description)
    error = InvalidRequest(violation.text, reason=INVALID_FIELDS)
    error.violations = (violation,)
    return error


class NotFound(TopospreadClientError):
    """Something named in the request does not exist; ``reason`` tells a cluster from a pod."""


class PreconditionFailed(TopospreadClientError):
    """The caller's view is out of date."""


class CycleExpired(PreconditionFailed):
    """The cycle is unknown to that process and the request carried no pod to make it again."""


class NodeTableChanged(PreconditionFailed):
    """Indices refer to a node table that is not the current one."""


class StoreIdentityChanged(PreconditionFailed):
    """The store is another one than was followed; an operator must accept it."""


class Fenced(PreconditionFailed):
    """A write's fencing token is not the present lease's: acquire the lease, and list again."""


class LeaseLost(PreconditionFailed):
    """The lease is another's, or has ended: acquire it anew."""


class NoFeedProgress(PreconditionFailed):
    """``not_older_than`` names a kind of which no feed says how far it has read."""


class RevisionUnavailable(TopospreadClientError):
    """A revision that the log no longer reaches, or of another history. List again, then watch."""


class LimitExceeded(TopospreadClientError):
    """The server refused at once instead of queueing; the text names the limit."""


class Conflict(TopospreadClientError):
    """Others changed what the write rests on."""


class ReplaceIncomplete(Conflict):
    """A list ended without its commit. Nothing was changed. Send the whole list again."""


class DeadlineExceeded(TopospreadClientError):
    """No answer within the time-out. A write may have happened."""


class Unavailable(TopospreadClientError):
    """No server at that address, or one that cannot answer now.

    Attributes:
        reached: whether a server answered at all.
    """

    reached: bool = False


class Closed(TopospreadClientError):
    """The client or the stream was closed: open another one. A write may have happened."""


class Unauthenticated(TopospreadClientError):
    """The caller showed no token or certificate that the server knows."""


class PermissionDenied(TopospreadClientError):
    """The caller lacks the role that ``metadata`` names."""


class NotSupported(TopospreadClientError):
    """This server does not have that call."""


class ServerFault(TopospreadClientError):
    """The server failed, or sent what cannot be read. Not the caller's fault."""
