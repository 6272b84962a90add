"""The one place where errors become HTTP statuses."""

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
    NotFound,
    NotOffered,
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


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's end without an answer.

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
        """What goes with a status other than 200, in JSON."""
        return orjson.dumps({"Error": self.text, "Details": self.details})

    @property
    def headers(self) -> dict[str, str]:
        """Of such an answer."""
        headers = {"content-type": "application/json"}
        if self.retry_after is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after))
        return headers


class Refused(TopospreadError):  # noqa: N818 - named after what is the case
    """A request that is wrong as HTTP: an error with a status of its own."""

    def __init__(self, status: int, error: TopospreadError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


_STATUSES: Final[Sequence[tuple[type[TopospreadError], int, str]]] = (
    (InvalidRequest, 400, "INVALID_ARGUMENT"),
    (Unauthenticated, 401, "UNAUTHENTICATED"),
    (PermissionDenied, 403, "PERMISSION_DENIED"),
    (NotFound, 404, "NOT_FOUND"),
    (NotOffered, 404, "UNIMPLEMENTED"),
    (PreconditionFailed, 409, "FAILED_PRECONDITION"),
    (RevisionUnavailable, 503, "OUT_OF_RANGE"),
    (TooLarge, 413, "RESOURCE_EXHAUSTED"),
    (LimitExceeded, 429, "RESOURCE_EXHAUSTED"),
    (DeadlineExceeded, 504, "DEADLINE_EXCEEDED"),
    (Conflict, 409, "ABORTED"),
    (Unavailable, 503, "UNAVAILABLE"),
    (CorruptValue, 500, "DATA_LOSS"),
)


def failure_of(error: Exception, traceparent: str = "") -> Failure:
    """What a caller sees of an error; one that is not ours is a bug: logged, shown as 500.

    Args:
        error: why there is no answer.
        traceparent: of the call, for what only the log can tell.
    """
    own = error.status if isinstance(error, Refused) else 0
    if isinstance(error, Refused):
        error = error.error
    details = [
        {"@type": f"{TYPE_URL}{detail.DESCRIPTOR.name}", **MessageToDict(detail)}
        for detail in details_of(error, traceparent)
    ]
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Failure(own or status, code, _text(error), details, error.retry_after)
    LOG.error("a call failed unexpectedly", exc_info=error)
    return Failure(500, "INTERNAL", UNEXPECTED, details)


def _text(error: TopospreadError) -> str:
    """All that is wrong, as far as that is readable."""
    text = str(error)
    if isinstance(error, InvalidRequest) and any(v.field for v in error.violations):
        text = "; ".join(f"{v.field}: {v.description or v.type}" for v in error.violations)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
