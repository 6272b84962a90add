"""Time-outs of calls, and retries after their server went away."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

from topospread_client._errors import LimitExceeded, TopospreadClientError, Unavailable, invalid
from topospread_client._status import CANCELLED

if TYPE_CHECKING:
    from topospread_client._operations import RpcCall

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
    """Time-out of a call.

    Args:
        timeout: of the caller; `math.inf` for none.
        default: where the caller gave none.

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


def to_grpc(timeout: float) -> float | None:
    """Time-out as gRPC takes it: None for no deadline."""
    return timeout if timeout < _NO_DEADLINE else None


class RetryTimer:
    """Deadline of a call over all its tries, and the pauses between them.

    Args:
        timeout: seconds for all tries.
        retry_timeout: seconds after which no try begins; 0 for a single try.

    Attributes:
        may_have_arrived: whether a server may have received the call in one of the tries.
    """

    __slots__ = (
        "_cancels",
        "_deadline",
        "_pause",
        "_refusals",
        "_retry_until",
        "_sent",
        "may_have_arrived",
    )

    def __init__(self, timeout: float, retry_timeout: float) -> None:
        now = time.monotonic()
        self._deadline = now + timeout
        self._retry_until = now + min(timeout, retry_timeout) if retry_timeout > 0 else -math.inf
        self._pause = INITIAL_PAUSE
        self._cancels = self._refusals = 0
        self._sent = False
        self.may_have_arrived = False

    def remaining(self) -> float | None:
        """Seconds for a try that begins now, as gRPC takes them."""
        return to_grpc(max(self._deadline - time.monotonic(), 0.001))

    def restart(self, retry_timeout: float) -> None:
        """Begin to retry anew after a success: for so many seconds from now on."""
        self._retry_until = min(time.monotonic() + retry_timeout, self._deadline)
        self._pause = INITIAL_PAUSE
        self._cancels = self._refusals = 0

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
            self.may_have_arrived = self.may_have_arrived or not unsent
            self._sent = self._sent or not (error.reached or unsent)
            self._cancels += error.code is CANCELLED
            if self._cancels > MAX_CANCELS:
                return None
        # Twice as long each time.
        pause = self._pause * random.uniform(0.8, 1.2)
        if error.retry_after is not None:
            # Not all at once: those that were refused together would be so again.
            pause = max(pause, error.retry_after * random.uniform(1.0, 1.5))
        self._pause = min(2 * self._pause, MAX_PAUSE)
        return pause if time.monotonic() + pause < self._retry_until else None

    def final_error(self, call: RpcCall, error: TopospreadClientError) -> TopospreadClientError:
        """Error to raise after the last try; that of a write says that it may have happened."""
        if call.rpc.idempotent or not (self._sent and isinstance(error, Unavailable)):
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
