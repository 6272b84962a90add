"""The codes of errors by their names in gRPC, and their details as google.rpc's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2

from topospread.errors import InvalidRequest, NotFound, TooLarge, TooManyClusters, TopospreadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

    from topospread.errors import FieldViolation

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

INTERNAL: Final = "INTERNAL"
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


def code_of(error: Exception) -> str:
    """The name of an error's code; INTERNAL for one that is not in :mod:`topospread.errors`."""
    return error.code if isinstance(error, TopospreadError) else INTERNAL


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
        yield error_details_pb2.ErrorInfo(reason="INTERNAL", domain=DOMAIN, metadata=metadata)
        return
    metadata = {key: shortened(value, MAX_NAME) for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    yield info
    if isinstance(error, InvalidRequest):
        yield bad_request(error.violations, MAX_DETAILS - info.ByteSize())
    if isinstance(error, NotFound):
        yield error_details_pb2.ResourceInfo(
            resource_type=error.kind,
            resource_name=shortened(error.name, MAX_NAME),
            owner=shortened(error.cluster, MAX_NAME),
        )
    if isinstance(error, TooLarge | TooManyClusters):
        limit = error_details_pb2.QuotaFailure.Violation(
            subject=error.subject,
            description=shortened(str(error), MAX_MESSAGE),
            quota_value=error.limit,
        )
        yield error_details_pb2.QuotaFailure(violations=[limit])
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        yield error_details_pb2.RetryInfo(retry_delay=delay)


def bad_request(
    violations: Sequence[FieldViolation], most: int = MAX_DETAILS
) -> error_details_pb2.BadRequest:
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
