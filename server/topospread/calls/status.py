"""The statuses of errors, and their details as google.rpc's messages, for clients to act on."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from topospread.errors import InvalidRequest, TopospreadError, code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

    from topospread.errors import FieldViolation

LOG: Final = logging.getLogger(__name__)

MAX_DETAILS: Final = 3500
"""Bytes of details: gRPC refuses trailers above 8 KiB, of which base64 and the message take their
part.
"""

MAX_MESSAGE: Final = 1024
"""Bytes of a text for people."""

MAX_NAME: Final = 512
"""Bytes of a name, which a caller may have made up."""

DOMAIN: Final = "topospread.io"

UNEXPECTED: Final = "an unexpected error; the server's log has it"
"""The text for a defect of the server."""

TYPE_URL: Final = "type.googleapis.com/google.rpc."

INTERNAL: Final = TopospreadError.code
"""The code of a defect of the server."""

_VIOLATIONS: Final = {
    "Required value": "FIELD_VALUE_REQUIRED",
    "Invalid value": "FIELD_VALUE_INVALID",
    "Unsupported value": "FIELD_VALUE_NOT_SUPPORTED",
    "Duplicate value": "FIELD_VALUE_DUPLICATE",
    "Forbidden": "FIELD_VALUE_FORBIDDEN",
    "Not found": "FIELD_VALUE_NOT_FOUND",
    "Too long": "FIELD_VALUE_TOO_LONG",
    "Too many": "FIELD_VALUE_TOO_MANY",
}
"""The API server's error types, and their causes in upper snake case."""

PUSHBACK: Final = "grpc-retry-pushback-ms"


def code_number(error: Exception | None) -> int:
    """The number of an error's status code; 0 without one."""
    number: int = 0 if error is None else code_pb2.Code.Value(code_of(error))
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
        packed = any_pb2.Any(type_url=f"{TYPE_URL}{detail.DESCRIPTOR.name}")
        packed.value = detail.SerializeToString()
        status.details.append(packed)
    return status


def trailers(
    status: status_pb2.Status, traceparent: str, error: Exception
) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata that goes out with a status.

    What RetryInfo says to programs, `grpc-retry-pushback-ms` says to gRPC's own retries: when to
    try again; and by a negative number that it never helps.
    """
    after: float | None = getattr(error, "retry_after", None)
    pushback: tuple[tuple[str, str | bytes], ...] = ()
    if after is not None:
        pushback = ((PUSHBACK, str(math.ceil(after * 1000))),)
    elif code_of(error) == "RESOURCE_EXHAUSTED":
        pushback = ((PUSHBACK, "-1"),)
    return (
        ("traceparent", traceparent),
        ("grpc-status-details-bin", status.SerializeToString()),
        *pushback,
    )


def details_of(error: Exception, traceparent: str = "") -> Iterator[Message]:
    """The details of an error.

    Args:
        error: one that is not ours is a defect.
        traceparent: of the call or the question, for what only the log can tell.
    """
    if not isinstance(error, TopospreadError):
        # W3C: version, trace id, span id, flags.
        _, _, trace = traceparent.partition("-")
        metadata = {"traceId": trace.partition("-")[0]} if trace else {}
        yield error_details_pb2.ErrorInfo(reason=INTERNAL, domain=DOMAIN, metadata=metadata)
        return
    metadata = _bounded(error.metadata)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    yield info
    if isinstance(error, InvalidRequest):
        yield _bad_request(error.violations, MAX_DETAILS - info.ByteSize())
    for name, fields in error.details().items():
        yield getattr(error_details_pb2, name)(**_bounded(fields))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        yield error_details_pb2.RetryInfo(retry_delay=delay)


def _bounded(fields: Any, most: int = MAX_NAME) -> Any:
    """Fields whose texts are cut."""
    if isinstance(fields, str):
        return shortened(fields, most)
    if isinstance(fields, Mapping):
        longest = {"description": MAX_MESSAGE}
        return {name: _bounded(value, longest.get(name, most)) for name, value in fields.items()}
    return [_bounded(each, most) for each in fields] if isinstance(fields, list) else fields


def _bad_request(violations: Sequence[FieldViolation], most: int) -> error_details_pb2.BadRequest:
    """The BadRequest of as many violations as fit; a last one has the number of the others."""
    message = error_details_pb2.BadRequest()
    for position, violation in enumerate(violations):
        field = error_details_pb2.BadRequest.FieldViolation(
            field=shortened(violation.field, MAX_NAME),
            description=shortened(violation.description or violation.type, MAX_MESSAGE),
            reason=_VIOLATIONS[violation.type],
        )
        if message.ByteSize() + field.ByteSize() > most:
            more = len(violations) - position
            message.field_violations.add(field="", description=f"… and {more} more")
            break
        message.field_violations.append(field)
    return message


def shortened(text: str, most: int) -> str:
    """The text, or its beginning in as many bytes."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - 3].decode(errors="ignore") + "…"
