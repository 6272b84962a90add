"""How long a call lasts, and when it is made again because its server went away."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

from topospread_client._errors import TopospreadClientError, Unavailable, invalid

if TYPE_CHECKING:
    from topospread_client._operations import Ask

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between tries: quick enough after a restart, and no burden while nothing answers."""

_UNSENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS",
)
"""How gRPC begins to say that there was no connection to send a call over."""

_NO_DEADLINE: Final = 365 * 86400.0
"""Seconds from which on gRPC is given no deadline: its own arithmetic has an end."""


def seconds(timeout: float | None, default: float) -> float:
    """A call's time-out.

    Args:
        timeout: as a caller gave it; `math.inf` for none.
        default: for callers who gave none.

    Raises:
        InvalidRequest: it is no time, or none is left.
    """
    chosen = default if timeout is None else timeout
    try:
        some = chosen > 0  # NaN is not
    except TypeError:
        some = False
    if not some:
        text = f"{chosen!r}: must be more than 0 seconds; math.inf is no limit"
        raise invalid("timeout", text)
    return chosen


def to_grpc(timeout: float) -> float | None:
    """The same as gRPC takes it."""
    return timeout if timeout < _NO_DEADLINE else None


class Repeats:
    """The tries of one call.

    Args:
        timeout: seconds for all of them.
        lasts: seconds after which none begins; 0: there is but one.

    Attributes:
        may_have_arrived: whether a server may know the call from one of the tries.
    """

    __slots__ = ("_due", "_pause", "_sent", "_until", "may_have_arrived")

    def __init__(self, timeout: float, lasts: float) -> None:
        now = time.monotonic()
        self._due = now + timeout
        self._until = now + min(timeout, lasts) if lasts > 0 else -math.inf
        self._pause = FIRST_PAUSE
        self._sent = False
        self.may_have_arrived = False

    def left(self) -> float | None:
        """Seconds for a try that begins now, as gRPC takes them."""
        return to_grpc(max(self._due - time.monotonic(), 0.001))

    def begin_anew(self, lasts: float) -> None:
        """It has worked since it began: what fails now may be repeated for so many seconds."""
        self._until = min(time.monotonic() + lasts, self._due)
        self._pause = FIRST_PAUSE

    def pause_after(self, error: TopospreadClientError) -> float | None:
        """Seconds until the next try; None when the error stands."""
        if not isinstance(error, Unavailable):
            return None
        unsent = not error.reached and str(error).startswith(_UNSENT)
        self.may_have_arrived = self.may_have_arrived or not unsent
        self._sent = self._sent or not (error.reached or unsent)
        pause = max(self._pause * random.uniform(0.8, 1.2), error.retry_after or 0.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return pause if time.monotonic() + pause < self._until else None

    def told(self, ask: Ask, error: TopospreadClientError) -> TopospreadClientError:
        """What is said in the end: of a write whose answer was lost, that it may have happened."""
        if ask.rpc.safe or not (self._sent and isinstance(error, Unavailable)):
            return error
        unknown = Unavailable(
            f"{error}; whether the call was carried out is not known: "
            "look before you make it again",
            code=error.code,
            reason=error.reason,
            metadata=error.metadata,
            retry_after=error.retry_after,
            traceparent=error.traceparent,
        )
        unknown.reached = error.reached
        unknown.__cause__ = error.__cause__
        return unknown
