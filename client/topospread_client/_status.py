"""From a failed gRPC call to an error of this package: the one place that knows status codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from topospread_client import _errors as errors
from topospread_client._enums import ErrorReason
from topospread_client._tracing import Metadata, traceparent_in

if TYPE_CHECKING:
    from collections.abc import Mapping

CANCELLED: Final = grpc.StatusCode.CANCELLED
AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, CANCELLED})
"""How calls end when their server goes away: those that it can tell nothing any more are CANCELLED.

Calls that this side cancels are not judged here.
"""

_DETAILS_KEY: Final = "grpc-status-details-bin"
_DOMAIN: Final = "topospread.io"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

_KINDS: Final[Mapping[grpc.StatusCode, type[errors.TopospreadClientError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: errors.PreconditionFailed,
    grpc.StatusCode.OUT_OF_RANGE: errors.RevisionUnavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.LimitExceeded,
    grpc.StatusCode.ABORTED: errors.Conflict,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: errors.NotSupported,
    **dict.fromkeys(AWAY, errors.Unavailable),
}
_REASONS: Final[Mapping[str, type[errors.TopospreadClientError]]] = {
    ErrorReason.CYCLE_EXPIRED: errors.CycleExpired,
    ErrorReason.NODE_TABLE_CHANGED: errors.NodeTableChanged,
    ErrorReason.STORE_IDENTITY_CHANGED: errors.StoreIdentityChanged,
    ErrorReason.FENCED: errors.Fenced,
    ErrorReason.LEASE_LOST: errors.LeaseLost,
    ErrorReason.NO_FEED_PROGRESS: errors.NoFeedProgress,
    ErrorReason.REPLACE_INCOMPLETE: errors.ReplaceIncomplete,
}

_M = TypeVar("_M", bound=Message)


class FailedCall(Protocol):
    """What sync and aio gRPC errors have in common."""

    def code(self) -> grpc.StatusCode:
        """How the call ended."""

    def details(self) -> str | None:
        """The server's or the channel's text."""

    def initial_metadata(self) -> Metadata | None:
        """What the server sent before its answer."""

    def trailing_metadata(self) -> Metadata | None:
        """What the server sent after its answer."""


def error_of(failed: FailedCall) -> errors.TopospreadClientError:
    """The error to raise instead of a failed gRPC call."""
    trailing = list(failed.trailing_metadata() or ())
    initial = list(failed.initial_metadata() or ())
    error = _error(failed.code(), failed.details() or "", _details_in(trailing))
    error.traceparent = traceparent_in(trailing) or traceparent_in(initial)
    if isinstance(error, errors.Unavailable):
        error.reached = bool(trailing or initial)
    return error


def accepted(failed: BaseException) -> bool:
    """Whether a server had begun to carry out the call that failed."""
    return isinstance(failed, grpc.RpcError) and bool(cast("FailedCall", failed).initial_metadata())


def ended() -> errors.Unavailable:
    """The error of a watch that its server ends: silence would tell that nothing changes."""
    error = errors.Unavailable("the server ended the stream: open another one")
    error.reached = True
    return error


def error_in_answer(status: status_pb2.Status) -> errors.TopospreadClientError:
    """The error that an answer holds about a part of itself, for example one pod of a batch."""
    error = _error(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, status)
    if isinstance(error, errors.Unavailable):
        error.reached = True
    return error


def _error(
    code: grpc.StatusCode, message: str, details: status_pb2.Status
) -> errors.TopospreadClientError:
    info = _find(details, error_details_pb2.ErrorInfo())
    if info is None or info.domain != _DOMAIN:
        info = error_details_pb2.ErrorInfo()
    kind = _KINDS.get(code, errors.ServerFault)
    closer = _REASONS.get(info.reason)
    error = (closer if closer is not None and issubclass(closer, kind) else kind)(
        message or ("the server cannot answer now" if code in AWAY else code.name),
        code=code,
        reason=info.reason or None,
        metadata=info.metadata,
        retry_after=_retry_after(details),
    )
    if isinstance(error, errors.InvalidRequest):
        error.violations = tuple(_violations(details))
    return error


def _details_in(trailing: Metadata) -> status_pb2.Status:
    for key, value in trailing:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break  # the status itself still stands; only its details are lost
    return status_pb2.Status()


def _find(details: status_pb2.Status, mirror: _M) -> _M | None:
    """The detail of google.rpc's message with the mirror's name, read as the mirror."""
    for detail in details.details:
        if detail.type_url.endswith(f"/google.rpc.{mirror.DESCRIPTOR.name}"):
            try:
                mirror.MergeFromString(detail.value)
            except DecodeError:
                return None
            return mirror
    return None


def _violations(details: status_pb2.Status) -> list[errors.Violation]:
    bad_request = _find(details, error_details_pb2.BadRequest())
    if bad_request is None:
        return []
    return [
        errors.Violation(field=v.field, reason=v.reason, description=v.description)
        for v in bad_request.field_violations
    ]


def _retry_after(details: status_pb2.Status) -> float | None:
    info = _find(details, error_details_pb2.RetryInfo())
    if info is None:
        return None
    seconds: float = info.retry_delay.ToTimedelta().total_seconds()
    return seconds
