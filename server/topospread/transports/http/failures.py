"""Errors to HTTP statuses, in one place."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf.json_format import MessageToDict

from topospread.codec.error_details import TYPE_URL, UNEXPECTED, details_of
from topospread.errors import (
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
    TooLarge,
    TopospreadError,
    Unauthenticated,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG: Final = logging.getLogger(__name__)

MAX_TEXT: Final = 4096

_STATUSES: Final[Sequence[tuple[type[TopospreadError], int, str]]] = (
    (InvalidRequest, 400, "INVALID_ARGUMENT"),
    (Unauthenticated, 401, "UNAUTHENTICATED"),
    (PermissionDenied, 403, "PERMISSION_DENIED"),
    (NotFound, 404, "NOT_FOUND"),
    (MethodNotServed, 404, "UNIMPLEMENTED"),
    (PreconditionFailed, 409, "FAILED_PRECONDITION"),
    (RevisionUnavailable, 503, "OUT_OF_RANGE"),
    (TooLarge, 413, "RESOURCE_EXHAUSTED"),
    (LimitExceeded, 429, "RESOURCE_EXHAUSTED"),
    (DeadlineExceeded, 504, "DEADLINE_EXCEEDED"),
    (Conflict, 409, "ABORTED"),
    (Unavailable, 503, "UNAVAILABLE"),
    (CorruptValue, 500, "DATA_LOSS"),
)


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """The response to a failed call.

    Attributes:
        status: HTTP's.
        code: gRPC's name for the same, which metrics count by.
        text: for the caller.
        details: for programs: google.rpc's messages in JSON.
        retry_after: seconds after which trying again may help; None where it does not.
    """

    status: int
    code: str
    text: str
    details: Sequence[dict[str, Any]] = ()
    retry_after: float | None = None

    @property
    def body(self) -> bytes:
        """The body of a response with another status than 200, in JSON."""
        return orjson.dumps({"Error": self.text, "Details": self.details})

    @property
    def headers(self) -> dict[str, str]:
        """The headers of such a response."""
        headers = {"content-type": "application/json"}
        if self.retry_after is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after))
        return headers


class HttpError(TopospreadError):
    """An error with a status of its own, for requests that are wrong as HTTP."""

    def __init__(self, status: int, error: TopospreadError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


def failure_of(error: Exception, traceparent: str = "") -> HttpFailure:
    """The response to an error; an unexpected one is a bug: logged, answered with 500.

    Args:
        error: that a call raised.
        traceparent: of the call; finds what only the log has.
    """
    own = error.status if isinstance(error, HttpError) else 0
    if isinstance(error, HttpError):
        error = error.error
    details = [
        {"@type": f"{TYPE_URL}{detail.DESCRIPTOR.name}", **MessageToDict(detail)}
        for detail in details_of(error, traceparent)
    ]
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return HttpFailure(own or status, code, _text(error), details, error.retry_after)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return HttpFailure(500, "INTERNAL", UNEXPECTED, details)


def _text(error: TopospreadError) -> str:
    """All that is wrong, as far as that is readable."""
    text = str(error)
    if isinstance(error, InvalidRequest) and any(v.field for v in error.violations):
        text = "; ".join(f"{v.field}: {v.description or v.type}" for v in error.violations)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
