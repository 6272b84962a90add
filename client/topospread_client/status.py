"""From a failed gRPC call to an error of this package: the one place that knows status codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from topospread_client import errors
from topospread_client.tracing import Metadata, traceparent_in
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

CANCELLED: Final = grpc.StatusCode.CANCELLED
AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, CANCELLED})
"""How calls end when their server goes away: those that it can tell nothing any more are CANCELLED.

Calls that this side cancels are not judged here.
"""

_DETAILS_KEY: Final = "grpc-status-details-bin"
_PRECONDITIONS: Final[Mapping[str, type[errors.PreconditionFailed]]] = {
    kind.reason: kind
    for kind in (
        errors.CycleExpired,
        errors.NodeTableChanged,
        errors.IdentityChanged,
        errors.Fenced,
    )
}
_PLAIN: Final[Mapping[grpc.StatusCode, type[errors.TopospreadClientError]]] = {
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.OUT_OF_RANGE: errors.RevisionUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.UNIMPLEMENTED: errors.NotSupported,
    grpc.StatusCode.UNAUTHENTICATED: errors.NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: errors.NotPermitted,
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
    traceparent = traceparent_in(trailing) or traceparent_in(initial)
    details = _details_in(trailing)
    message = failed.details() or ""
    if failed.code() in AWAY:
        reached = bool(trailing or initial)
        return errors.Unavailable(
            message or "the server cannot answer now",
            retry_after=_retry_after(details),
            reached=reached,
            traceparent=traceparent,
        )
    return _error(failed.code(), message, details, traceparent)


def error_in_answer(status: common_pb2.RpcStatus) -> errors.TopospreadClientError:
    """The error that an answer holds about a part of itself, for example one pod of a batch."""
    codes = {code.value[0]: code for code in grpc.StatusCode}
    code = codes.get(status.code, grpc.StatusCode.UNKNOWN)
    if code in AWAY:
        retry_after = _retry_after(status)
        return errors.Unavailable(status.message, retry_after=retry_after, reached=True)
    return _error(code, status.message, status, None)


def _error(
    code: grpc.StatusCode,
    message: str,
    details: common_pb2.RpcStatus,
    traceparent: str | None,
) -> errors.TopospreadClientError:
    message = message or code.name
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return errors.InvalidRequest(message, _violations(details), traceparent=traceparent)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        info = _find(details, common_pb2.ErrorInfo())
        kind = _PRECONDITIONS.get(info.reason if info else "", errors.PreconditionFailed)
        return kind(message, traceparent=traceparent)
    if code is grpc.StatusCode.ABORTED:
        retry_after = _retry_after(details)
        info = _find(details, common_pb2.ErrorInfo())
        if info is not None and info.reason == errors.ReplaceIncomplete.reason:
            return errors.ReplaceIncomplete(
                message, retry_after=retry_after, traceparent=traceparent
            )
        return errors.Conflict(message, retry_after=retry_after, traceparent=traceparent)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        retry_after = _retry_after(details)
        return errors.LimitExceeded(message, retry_after=retry_after, traceparent=traceparent)
    return _PLAIN.get(code, errors.ServerFault)(message, traceparent=traceparent)


def _details_in(trailing: Metadata) -> common_pb2.RpcStatus:
    for key, value in trailing:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return common_pb2.RpcStatus.FromString(value)
            except DecodeError:
                break  # the status itself still stands; only its details are lost
    return common_pb2.RpcStatus()


def _find(details: common_pb2.RpcStatus, mirror: _M) -> _M | None:
    """The detail of google.rpc's message with the mirror's name, read as the mirror."""
    for detail in details.details:
        if detail.type_url.endswith(f"/google.rpc.{mirror.DESCRIPTOR.name}"):
            try:
                mirror.MergeFromString(detail.value)
            except DecodeError:
                return None
            return mirror
    return None


def _violations(details: common_pb2.RpcStatus) -> list[errors.Violation]:
    bad_request = _find(details, common_pb2.BadRequest())
    if bad_request is None:
        return []
    return [
        errors.Violation(field=v.field, type=v.reason, detail=v.description)
        for v in bad_request.field_violations
    ]


def _retry_after(details: common_pb2.RpcStatus) -> float | None:
    info = _find(details, common_pb2.RetryInfo())
    if info is None:
        return None
    return info.retry_delay.seconds + info.retry_delay.nanos / 1e9
