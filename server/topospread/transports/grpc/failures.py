"""The one place where errors become gRPC statuses, with details that clients can act on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc import status_pb2

from topospread.codec.error_details import (
    MAX_MESSAGE,
    TYPE_URL,
    UNEXPECTED,
    details_of,
    shortened,
)
from topospread.errors import (
    CallerGone,
    Conflict,
    CorruptValue,
    DeadlineExceeded,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotOffered,
    PermissionDenied,
    PreconditionFailed,
    RevisionUnavailable,
    TopospreadError,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from topospread.transports.grpc.context import Context

LOG: Final = logging.getLogger(__name__)

_CODES: Final[Sequence[tuple[type[TopospreadError], grpc.StatusCode]]] = (
    (InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (PreconditionFailed, grpc.StatusCode.FAILED_PRECONDITION),
    (RevisionUnavailable, grpc.StatusCode.OUT_OF_RANGE),
    (LimitExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (CallerGone, grpc.StatusCode.CANCELLED),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (PermissionDenied, grpc.StatusCode.PERMISSION_DENIED),
    (NotOffered, grpc.StatusCode.UNIMPLEMENTED),
    (Conflict, grpc.StatusCode.ABORTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (CorruptValue, grpc.StatusCode.DATA_LOSS),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's end without an answer."""

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...]

    def status(self) -> status_pb2.Status:
        """As a message."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            name = detail.DESCRIPTOR.name
            packed = Any(type_url=f"{TYPE_URL}{name}", value=detail.SerializeToString())
            status.details.append(packed)
        return status


def failure_of(error: Exception, traceparent: str = "") -> Failure:
    """What a caller sees of an error; one that is not ours is a bug: logged, shown as INTERNAL.

    Args:
        error: why there is no answer.
        traceparent: of the call or the question, for what only the log can tell.
    """
    code = code_of(error)
    details = tuple(details_of(error, traceparent))
    if code is not grpc.StatusCode.INTERNAL:
        return Failure(code, shortened(str(error), MAX_MESSAGE), details)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return Failure(code, UNEXPECTED, details)


def end(context: Context, failure: Failure, traceparent: str = "") -> NoReturn:
    """End a call with a status, its details and the trace that tells more.

    The status goes out alone: after a message, even an empty one, no client's retry policy would
    repeat the call.
    """
    trailers: list[tuple[str, str | bytes]] = []
    if traceparent:
        trailers.append(("traceparent", traceparent))
    trailers.append(("grpc-status-details-bin", failure.status().SerializeToString()))
    context.set_trailing_metadata(tuple(trailers))
    context.abort(failure.code, failure.message)


def code_of(error: Exception) -> grpc.StatusCode:
    """The status of an error; INTERNAL for one that is not ours."""
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )
