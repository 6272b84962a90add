"""Errors to HTTP statuses, in one place."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf.json_format import MessageToDict

from topospread.codec.error_details import INTERNAL, TYPE_URL, UNEXPECTED, code_of, details_of
from topospread.errors import InvalidRequest, TooLarge, TopospreadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG: Final = logging.getLogger(__name__)

MAX_TEXT: Final = 4096

_STATUSES: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 404,
    "FAILED_PRECONDITION": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "DATA_LOSS": 500,
    "OUT_OF_RANGE": 503,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""By gRPC's code for the same error."""

_TOO_LARGE: Final = 413


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
    code = code_of(error)
    if isinstance(error, TopospreadError) and code in _STATUSES:
        status = own or (_TOO_LARGE if isinstance(error, TooLarge) else _STATUSES[code])
        return HttpFailure(status, code, _text(error), details, error.retry_after)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return HttpFailure(500, INTERNAL, UNEXPECTED, details)


def _text(error: TopospreadError) -> str:
    """All that is wrong, as far as that is readable."""
    text = str(error)
    if isinstance(error, InvalidRequest) and any(v.field for v in error.violations):
        text = "; ".join(f"{v.field}: {v.description or v.type}" for v in error.violations)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
