"""The gRPC statuses of errors, with details that clients can act on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
    MethodNotServed,
    NotFound,
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
    (MethodNotServed, grpc.StatusCode.UNIMPLEMENTED),
    (Conflict, grpc.StatusCode.ABORTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (CorruptValue, grpc.StatusCode.DATA_LOSS),
)


@dataclass(frozen=True, slots=True)
class RpcStatus:
    """A status other than OK.

    Attributes:
        code: of gRPC.
        message: for people.
        details: for programs.
    """

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...]

    def proto(self) -> status_pb2.Status:
        """The status as a google.rpc.Status."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            name = detail.DESCRIPTOR.name
            packed = Any(type_url=f"{TYPE_URL}{name}", value=detail.SerializeToString())
            status.details.append(packed)
        return status


def status_of(error: Exception, traceparent: str = "") -> RpcStatus:
    """The status of an error; one that is not in :mod:`topospread.errors` is logged, and INTERNAL.

    Args:
        error: why the call failed.
        traceparent: of the call, to find the logged error by.
    """
    code = code_of(error)
    details = tuple(details_of(error, traceparent))
    if code is not grpc.StatusCode.INTERNAL:
        return RpcStatus(code, shortened(str(error), MAX_MESSAGE), details)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return RpcStatus(code, UNEXPECTED, details)


def code_of(error: Exception) -> grpc.StatusCode:
    """The status code of an error; INTERNAL for one that is not in :mod:`topospread.errors`."""
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )
