"""Errors that clients raise.

Errors that came over the wire hold the call's ``traceparent``; their cause is the gRPC error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    "FIELD_UNKNOWN": "Unknown field",
}
"""Kubernetes' text for each kind of violation; the last is the client's own."""

INVALID_FIELDS: Final = "INVALID_FIELDS"
"""Reason of requests that the client itself refuses, as servers give it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Error in one field of a request.

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
        """Text as the API server writes it, without the invalid value."""
        parts = (self.field, _WORDS.get(self.reason, ""), self.description)
        # Where there is no more to say, the kind of error is the description.
        return ": ".join(part for part in dict.fromkeys(parts) if part)


class TopospreadClientError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: gRPC's status; None where the client itself raised it.
        reason: for programs: an `ErrorReason`, that of a newer server, or why a connection failed;
            None where none is known.
        metadata: details of the reason, by name.
        retry_after: seconds to wait before the next try; None where the server did not give it.
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
    """Invalid connection options; the message names what to change. Nothing was sent."""


class InvalidRequest(TopospreadClientError):
    """Bad input. Nothing of the request was applied. Do not retry.

    Attributes:
        violations: everything that is wrong, as far as fields were named.
    """

    violations: tuple[Violation, ...] = ()


def invalid(path: str, description: str, reason: str = "FIELD_VALUE_INVALID") -> InvalidRequest:
    """Error for an argument of a caller, before anything is sent."""
    return invalid_fields([Violation(path, reason, description)])


def invalid_fields(violations: Sequence[Violation]) -> InvalidRequest:
    """Error for at least one violation that the client found, with the text of a server's."""
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    error = InvalidRequest(f"{violations[0].text}{more}", reason=INVALID_FIELDS)
    error.violations = tuple(violations)
    return error


class NotFound(TopospreadClientError):
    """Cluster, pod or object of a request that does not exist; ``reason`` names which."""


class PreconditionFailed(TopospreadClientError):
    """Request that assumes another state of the server."""


class CycleExpired(PreconditionFailed):
    """Cycle that the server does not have any more, in a request without a pod."""


class NodeTableChanged(PreconditionFailed):
    """Node table that is not the current one."""


class StoreIdentityChanged(PreconditionFailed):
    """Store that is another one than before; an operator must accept it."""


class NoFeedProgress(PreconditionFailed):
    """``not_older_than`` for a kind of which no sync reports its progress."""


class RevisionUnavailable(TopospreadClientError):
    """Revision that the store no longer has, or of another history. List again, then watch."""


class LimitExceeded(TopospreadClientError):
    """Limit of the server that a request exceeds; the message names it."""


class Conflict(TopospreadClientError):
    """Concurrent changes of others made the write impossible."""


class ReplaceIncomplete(Conflict):
    """Replacement that ended without its commit. Nothing was changed. Send all of it again."""


class DeadlineExceeded(TopospreadClientError):
    """No response within the time-out. A write may have happened."""


class Unavailable(TopospreadClientError):
    """No server at the address, or one that cannot serve requests now.

    Attributes:
        reached: whether a server responded at all.
    """

    reached: bool = False


class Closed(TopospreadClientError):
    """Call of a closed client or stream: open another one. A write may have happened."""


class Unauthenticated(TopospreadClientError):
    """Caller without a token or certificate that the server knows."""


class PermissionDenied(TopospreadClientError):
    """Caller without the role that ``metadata`` names."""


class NotSupported(TopospreadClientError):
    """Call that the server does not have."""


class ServerFault(TopospreadClientError):
    """Failure of the server, or a response that cannot be read."""
