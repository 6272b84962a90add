"""Failed gRPC calls → errors of this package; no other module knows status codes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from topospread_client import _errors as errors
from topospread_client._arguments import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Metadata: TypeAlias = "Iterable[tuple[str, str | bytes]]"
"""gRPC metadata of blocking and asyncio calls."""

UNAVAILABLE_CODES: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""Codes of calls whose server went away: it ends those that it cannot answer with CANCELLED.

Calls that this side cancels are handled before.
"""

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
    **dict.fromkeys(UNAVAILABLE_CODES, errors.Unavailable),
}
_REASONS: Final[Mapping[str, type[errors.TopospreadClientError]]] = {
    "CYCLE_EXPIRED": errors.CycleExpired,
    "NODE_TABLE_CHANGED": errors.NodeTableChanged,
    "STORE_IDENTITY_CHANGED": errors.StoreIdentityChanged,
    "NO_FEED_PROGRESS": errors.NoFeedProgress,
    "REPLACE_INCOMPLETE": errors.ReplaceIncomplete,
}

_NO_CONNECTION: Final = "failed to connect"
"""How gRPC's text begins where a server could not be connected to."""

_OTHER_NAME: Final = ("SERVER_CERTIFICATE_FOR_OTHER_NAME", "its certificate is for another name")
_CONNECTION_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "WRONG_VERSION_NUMBER": ("TLS_NOT_SERVED", "the server does not speak TLS"),
    "CERTIFICATE_VERIFY_FAILED": (
        "SERVER_CERTIFICATE_NOT_TRUSTED",
        "its certificate is not of the CA that is given, or not valid now",
    ),
    "Hostname Verification Check failed": _OTHER_NAME,
    "is not in peer certificate": _OTHER_NAME,  # until gRPC 1.80 or so
    "http1.x server": ("NOT_GRPC", "the server speaks HTTP/1"),
    "Socket closed": (
        "CONNECTION_CLOSED",
        "so does a server that speaks TLS alone, or does not take the client's certificate",
    ),
}
"""Parts of gRPC's own texts, the reason that each stands for, and a hint."""

_M = TypeVar("_M", bound=Message)


class GrpcFailure(Protocol):
    """What the errors of blocking and asyncio gRPC calls have in common."""

    code: Callable[[], grpc.StatusCode]
    details: Callable[[], str | None]
    initial_metadata: Callable[[], Metadata | None]
    trailing_metadata: Callable[[], Metadata | None]


def error_of(failed: GrpcFailure) -> errors.TopospreadClientError:
    """Error to raise for a failed gRPC call."""
    trailing = list(failed.trailing_metadata() or ())
    initial = list(failed.initial_metadata() or ())
    text, reason = failed.details() or "", None
    if text.startswith(_NO_CONNECTION):
        found = next((hint for part, hint in _CONNECTION_HINTS.items() if part in text), None)
        if found is not None:
            reason, hint = found
            text = f"{text}: {hint}"
    error = _error(failed.code(), text, _details_in(trailing))
    error.reason = error.reason or reason
    error.traceparent = traceparent_in(trailing) or traceparent_in(initial)
    if isinstance(error, errors.Unavailable):
        error.reached = bool(trailing or initial)
    return error


def had_started(failed: BaseException) -> bool:
    """Whether a server had started to carry out a call that failed."""
    return isinstance(failed, grpc.RpcError) and bool(
        cast("GrpcFailure", failed).initial_metadata()
    )


def stream_ended() -> errors.Unavailable:
    """Error of a watch that its server ends: a silent end would look like no changes."""
    error = errors.Unavailable("the server ended the stream: open another one")
    error.reached = True
    return error


def error_from_status(status: status_pb2.Status) -> errors.TopospreadClientError:
    """Error in a response about a part of it, for example one pod of a batch."""
    checked(status_pb2.Status, status, "status")
    error = _error(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, status)
    if isinstance(error, errors.Unavailable):
        error.reached = True
    return error


def _error(
    code: grpc.StatusCode, message: str, details: status_pb2.Status
) -> errors.TopospreadClientError:
    info = _find(details, error_details_pb2.ErrorInfo)
    if info is None or info.domain != "topospread.io":
        info = error_details_pb2.ErrorInfo()
    retry = _find(details, error_details_pb2.RetryInfo)
    kind = _KINDS.get(code, errors.ServerFault)
    closer = _REASONS.get(info.reason)
    error = (closer if closer is not None and issubclass(closer, kind) else kind)(
        message or ("the server cannot answer now" if code in UNAVAILABLE_CODES else code.name),
        code=code,
        reason=info.reason or None,
        metadata=info.metadata,
        retry_after=None if retry is None else retry.retry_delay.ToTimedelta().total_seconds(),
    )
    if isinstance(error, errors.InvalidRequest):
        bad = _find(details, error_details_pb2.BadRequest) or error_details_pb2.BadRequest()
        found = bad.field_violations
        error.violations = tuple(errors.Violation(v.field, v.reason, v.description) for v in found)
    return error


def traceparent_in(metadata: Metadata | None) -> str | None:
    """Trace context that the server returned."""
    value = dict(metadata or ()).get("traceparent")
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _details_in(trailing: Metadata) -> status_pb2.Status:
    details = dict(trailing).get("grpc-status-details-bin", b"")
    with suppress(DecodeError, TypeError):  # the status itself still stands
        return status_pb2.Status.FromString(details)
    return status_pb2.Status()


def _find(details: status_pb2.Status, kind: type[_M]) -> _M | None:
    """Detail of the type of a message of google.rpc."""
    for detail in details.details:
        if detail.type_url.endswith(f"/google.rpc.{kind.DESCRIPTOR.name}"):
            with suppress(DecodeError):
                return kind.FromString(detail.value)
            return None
    return None
