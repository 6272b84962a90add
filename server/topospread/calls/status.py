"""The gRPC statuses of errors, with details that clients can act on."""

from __future__ import annotations

import logging
from typing import Final

import grpc
from google.protobuf.any_pb2 import Any
from google.rpc import status_pb2

from topospread.codec.error_details import (
    INTERNAL,
    MAX_MESSAGE,
    TYPE_URL,
    UNEXPECTED,
    code_of,
    details_of,
    shortened,
)

LOG: Final = logging.getLogger(__name__)


def code_number(error: Exception | None) -> int:
    """The number of an error's status code; 0 without one."""
    number: int = 0 if error is None else grpc.StatusCode[code_of(error)].value[0]
    return number


def status_of(error: Exception, traceparent: str = "") -> status_pb2.Status:
    """The status of an error; one that is not in :mod:`topospread.errors` is logged, and INTERNAL.

    Args:
        error: why the call failed.
        traceparent: of the call, to find the logged error by.
    """
    status = status_pb2.Status(code=code_number(error))
    if code_of(error) == INTERNAL:
        LOG.error("a call failed unexpectedly", exc_info=error)
        status.message = UNEXPECTED
    else:
        status.message = shortened(str(error), MAX_MESSAGE)
    for detail in details_of(error, traceparent):
        packed = Any(type_url=f"{TYPE_URL}{detail.DESCRIPTOR.name}")
        packed.value = detail.SerializeToString()
        status.details.append(packed)
    return status


def trailers(status: status_pb2.Status, traceparent: str) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata that goes out with a status."""
    return (
        ("traceparent", traceparent),
        ("grpc-status-details-bin", status.SerializeToString()),
    )
