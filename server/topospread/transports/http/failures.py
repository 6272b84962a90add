"""The one place where errors become HTTP statuses."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidRequest,
    LimitExceeded,
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

LOG: Final = logging.getLogger(__name__)

MAX_TEXT: Final = 4096

BAD: Final = "INVALID_ARGUMENT"
"""The code of requests that cannot be read."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's end without an answer.

    Attributes:
        status: HTTP's.
        code: gRPC's name for the same, which metrics count by.
        text: for the caller.
    """

    status: int
    code: str
    text: str


class Refused(TopospreadError):  # noqa: N818 - named after what is the case
    """A request that is wrong as HTTP; ``failure`` says how."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(status, code, text)


_STATUSES: Final[Sequence[tuple[type[TopospreadError], int, str]]] = (
    (InvalidRequest, 400, BAD),
    (Unauthenticated, 401, "UNAUTHENTICATED"),
    (PermissionDenied, 403, "PERMISSION_DENIED"),
    (NotFound, 404, "NOT_FOUND"),
    (PreconditionFailed, 409, "FAILED_PRECONDITION"),
    (RevisionUnavailable, 503, "OUT_OF_RANGE"),
    (LimitExceeded, 429, "RESOURCE_EXHAUSTED"),
    (DeadlineExceeded, 504, "DEADLINE_EXCEEDED"),
    (Conflict, 409, "ABORTED"),
    (Unavailable, 503, "UNAVAILABLE"),
)


def failure_of(error: Exception) -> Failure:
    """What a caller sees of an error; one that is not ours is a bug: logged, shown as 500."""
    if isinstance(error, Refused):
        return error.failure
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Failure(status, code, _text(error))
    LOG.error("a call failed unexpectedly", exc_info=error)
    return Failure(500, "INTERNAL", "an unexpected error; the server's log has it")


def _text(error: Exception) -> str:
    """All that is wrong, as far as that is readable."""
    text = str(error)
    if isinstance(error, InvalidRequest) and len(error.violations) > 1:
        text = "; ".join(f"{v.field}: {v.description or v.type}" for v in error.violations)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
