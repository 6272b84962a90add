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
    code_of,
    details_of,
    shortened,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message


LOG: Final = logging.getLogger(__name__)


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

    def trailers(self, traceparent: str) -> tuple[tuple[str, str | bytes], ...]:
        """The metadata that goes out with it."""
        details = ("grpc-status-details-bin", self.proto().SerializeToString())
        return (("traceparent", traceparent), details)

    def proto(self) -> status_pb2.Status:
        """The status as a google.rpc.Status."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            name = detail.DESCRIPTOR.name
            packed = Any(type_url=f"{TYPE_URL}{name}", value=detail.SerializeToString())
            status.details.append(packed)
        return status


def code_number(error: Exception | None) -> int:
    """The number of an error's status code; 0 without one."""
    number: int = 0 if error is None else grpc.StatusCode[code_of(error)].value[0]
    return number


def status_of(error: Exception, traceparent: str = "") -> RpcStatus:
    """The status of an error; one that is not in :mod:`topospread.errors` is logged, and INTERNAL.

    Args:
        error: why the call failed.
        traceparent: of the call, to find the logged error by.
    """
    code = grpc.StatusCode[code_of(error)]
    details = tuple(details_of(error, traceparent))
    if code is not grpc.StatusCode.INTERNAL:
        return RpcStatus(code, shortened(str(error), MAX_MESSAGE), details)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return RpcStatus(code, UNEXPECTED, details)
