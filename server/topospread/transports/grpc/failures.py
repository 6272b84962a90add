"""The one place where errors become gRPC statuses, with details that clients can act on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

from topospread.errors import (
    CallerGone,
    Conflict,
    CorruptValue,
    DeadlineExceeded,
    FieldViolation,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotOffered,
    PermissionDenied,
    PreconditionFailed,
    RateExceeded,
    ReplaceIncomplete,
    RevisionUnavailable,
    TopospreadError,
    Unauthenticated,
    Unavailable,
)
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

LOG: Final = logging.getLogger(__name__)

MAX_DETAILS: Final = 3500
"""Bytes of details: gRPC refuses trailers above 8 KiB, of which base64 and the message take their
part.
"""

MAX_MESSAGE: Final = 1024

DOMAIN: Final = "topospread"

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
    details: tuple[Message, ...] = ()

    def status(self) -> common_pb2.RpcStatus:
        """As a message; details beyond the size that trailers allow are left out."""
        status = common_pb2.RpcStatus(code=self.code.value[0], message=self.message)
        for detail in self.details:
            name = detail.DESCRIPTOR.name
            packed = Any(
                type_url=f"type.googleapis.com/google.rpc.{name}", value=detail.SerializeToString()
            )
            status.details.append(packed)
        return status


def failure_of(error: Exception) -> Failure:
    """What a caller sees of an error; one that is not ours is a bug: logged, shown as INTERNAL."""
    code = code_of(error)
    if code is not grpc.StatusCode.INTERNAL:
        return Failure(code, _short(str(error)), tuple(_details(error)))
    LOG.error("a call failed unexpectedly", exc_info=error)
    return Failure(code, "an unexpected error; the server's log has it")


def code_of(error: Exception) -> grpc.StatusCode:
    """The status of an error; INTERNAL for one that is not ours."""
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )


def _details(error: Exception) -> list[Message]:
    if isinstance(error, InvalidRequest) and error.violations:
        return [bad_request(error.violations)]
    if isinstance(error, PreconditionFailed):
        return [common_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if isinstance(error, Conflict | Unavailable | RateExceeded):
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        retry = common_pb2.RetryInfo(retry_delay=delay)
        if isinstance(error, ReplaceIncomplete):
            return [common_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN), retry]
        return [retry]
    return []


def bad_request(violations: Sequence[FieldViolation]) -> common_pb2.BadRequest:
    """As many violations as fit, and a last one that says how many more there are."""
    message = common_pb2.BadRequest()
    for position, violation in enumerate(violations):
        field = common_pb2.BadRequest.FieldViolation(
            field=violation.field[:256],
            description=violation.description[:1024],
            reason=violation.type,
        )
        if message.ByteSize() + field.ByteSize() > MAX_DETAILS:
            more = len(violations) - position
            message.field_violations.add(field="", description=f"… and {more} more")
            break
        message.field_violations.append(field)
    return message


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
