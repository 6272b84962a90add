"""Time-outs of calls, and what is repeated after their server went away.

gRPC's own retries are not used: they know methods and no requests, end after five tries, and each
try of this loop would be five of theirs.
"""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Any, Final

import grpc

from topospread_client._errors import LimitExceeded, TopospreadClientError, Unavailable, invalid

if TYPE_CHECKING:
    from topospread_client._methods import Method

INITIAL_PAUSE: Final = 0.1
MAX_PAUSE: Final = 1.0
"""Seconds between tries: quick enough after a restart, and no burden while nothing answers."""

MAX_REFUSALS: Final = 4
"""Retries of a call that servers refuse for now: each of them is work for a busy server."""

MAX_CANCELS: Final = 2
"""Retries of a call that a server cancels, as it does when it stops: in a rolling restart, the one
that answers then may stop next.
"""

_UNSENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS",
)
"""How gRPC's messages begin where there was no connection to send a call over."""

_NO_DEADLINE: Final = 365 * 86400.0
"""Seconds from which on gRPC is given no deadline: its arithmetic overflows."""


def seconds(timeout: float | None, default: float) -> float:
    """Time-out of a call; `math.inf` for none.

    Raises:
        InvalidRequest: the time-out is no positive number.
    """
    chosen = default if timeout is None else timeout
    try:
        positive = not isinstance(chosen, bool) and chosen > 0  # NaN is not
    except TypeError:
        positive = False
    if not positive:
        text = f"{chosen!r}: must be more than 0 seconds; math.inf is no limit"
        raise invalid("timeout", text)
    return chosen


def may_be_repeated(method: Method, request: Any) -> bool:
    """Whether a call may be made again when it may have arrived: docs/api.md has the reasons."""
    match method.name:
        case "PlacePod" | "ReserveNode":
            return bool(request.request_id)
        case "ReleaseReservation":
            return bool(request.reservation_id)
        case "ApplyObjects":
            return not request.force and all(map(_has_version, request.objects))
    return method.idempotent


def _has_version(given: Any) -> bool:
    content = given.WhichOneof("content")
    return content is not None and bool(getattr(given, content).metadata.resource_version)


class Retries:
    """Deadline of a call over all its tries, and the pauses between them.

    Args:
        timeout: seconds for all tries.
        retry_timeout: seconds after which no try begins; 0 for a single try.

    Attributes:
        may_have_arrived: whether a server may have received the call in one of the tries.
    """

    def __init__(self, timeout: float, retry_timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._retry_timeout = retry_timeout
        self._in_doubt = self.may_have_arrived = False
        self.restart()

    def restart(self, most: float = math.inf) -> None:
        """Begin to retry, anew after a success: for so many seconds from now on at most."""
        wait = min(self._retry_timeout, most)
        until = time.monotonic() + wait if wait > 0 else -math.inf
        self._retry_until = min(until, self._deadline)
        self._pause = INITIAL_PAUSE
        self._cancels = self._refusals = 0

    def remaining(self) -> float | None:
        """Seconds for a try that begins now, as gRPC takes them: None for no deadline."""
        left = max(self._deadline - time.monotonic(), 0.001)
        return left if left < _NO_DEADLINE else None

    def next_pause(self, error: TopospreadClientError) -> float | None:
        """Seconds until the next try; None where the error is final."""
        if isinstance(error, LimitExceeded):
            # Refused before anything was done. Without a time to wait, the same call never passes.
            self._refusals += 1
            if error.retry_after is None or self._refusals > MAX_REFUSALS:
                return None
        elif not isinstance(error, Unavailable):
            return None
        else:
            unsent = not error.reached and str(error).startswith(_UNSENT)
            self.may_have_arrived |= not unsent
            self._in_doubt |= not (error.reached or unsent)
            self._cancels += error.code is grpc.StatusCode.CANCELLED
            if self._cancels > MAX_CANCELS:
                return None
        # Twice as long each time.
        pause = self._pause * random.uniform(0.8, 1.2)
        if error.retry_after is not None:
            # Not all at once: those that were refused together would be so again.
            pause = max(pause, error.retry_after * random.uniform(1.0, 1.5))
        self._pause = min(2 * self._pause, MAX_PAUSE)
        return pause if time.monotonic() + pause < self._retry_until else None

    def final_error(self, method: Method, error: TopospreadClientError) -> TopospreadClientError:
        """Error to raise after the last try; that of a write says that it may have happened."""
        if not method.idempotent and self._in_doubt and isinstance(error, Unavailable):
            text = f"{error}; whether the call was carried out is not known: "
            error.args = (f"{text}look before you make it again",)
        return error
