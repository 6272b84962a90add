"""Responses over HTTP: errors to statuses, in one place, and compression."""

from __future__ import annotations

import gzip
import logging
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from google.protobuf.json_format import MessageToDict
from starlette.responses import Response

from topospread.calls.status import INTERNAL, TYPE_URL, UNEXPECTED, details_of
from topospread.errors import InvalidRequest, TooLarge, TopospreadError, code_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG: Final = logging.getLogger(__name__)

MAX_TEXT: Final = 4096

MIN_COMPRESSED: Final = 1400
"""Bytes that fit one packet of a usual network: compressing these gains nothing."""

LEVEL: Final = 1
"""Of compression: names of nodes are so alike that more effort finds little more."""

GZIP: Final = (b"gzip", b"x-gzip")

TOO_LARGE: Final = 413

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


class HttpFailure(NamedTuple):
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
        again = self.retry_after
        retry = {} if again is None else {"retry-after": str(math.ceil(again))}
        return {"content-type": "application/json", **retry}


def with_status(status: int, error: TopospreadError) -> TopospreadError:
    """The error, answered with this status of HTTP."""
    error.http_status = status
    return error


def failure_of(error: Exception, traceparent: str = "") -> HttpFailure:
    """The response to an error; an unexpected one is a bug: logged, answered with 500."""
    details = [
        {"@type": f"{TYPE_URL}{detail.DESCRIPTOR.name}", **MessageToDict(detail)}
        for detail in details_of(error, traceparent)
    ]
    code = code_of(error)
    if isinstance(error, TopospreadError) and code in _STATUSES:
        status = error.http_status or (
            TOO_LARGE if isinstance(error, TooLarge) else _STATUSES[code]
        )
        return HttpFailure(status, code, _text(error), details, error.retry_after)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return HttpFailure(500, INTERNAL, UNEXPECTED, details)


def error_response(error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error, where no call was begun."""
    failure = failure_of(error)
    return Response(failure.body, failure.status, {**failure.headers, **(headers or {})})


def body_too_large(limit: int) -> TooLarge:
    """The error for a body beyond the limit."""
    setting = "--http-max-body-bytes"
    return TooLarge(f"the request is larger than {limit} bytes ({setting})", setting, limit)


def compressed(body: bytes, accepted: bytes) -> tuple[bytes, bool]:
    """A body, compressed if that pays and Accept-Encoding allows it, and whether it is."""
    if len(body) <= MIN_COMPRESSED or not _accepts_gzip(accepted):
        return body, False
    return gzip.compress(body, LEVEL, mtime=0), True


def _accepts_gzip(accepted: bytes) -> bool:
    for each in accepted.lower().split(b","):
        name, _, quality = each.partition(b";")
        if name.strip() in (*GZIP, b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


def _text(error: TopospreadError) -> str:
    """All that is wrong, as far as that is readable."""
    text = str(error)
    if isinstance(error, InvalidRequest) and any(v.field for v in error.violations):
        text = "; ".join(f"{v.field}: {v.description or v.type}" for v in error.violations)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
