"""A rate limit for each caller: a token bucket, stored as one moment in time.

A bucket holds ``burst`` calls and fills by ``rate`` calls a second. It is full again at a moment
that each call puts off by 1/rate; one that would put it off by more than burst/rate from now is
refused.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.errors import RateExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MAX_CALLERS: Final = 10_000
"""Buckets that are kept; the least recently used go first."""


class RateLimiter:
    """The token buckets of all callers of a process.

    Args:
        rate: calls a second that each caller may make on average.
        burst: calls that it may make at once.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._interval = 1.0 / rate
        self._depth = burst / rate
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: Hashable) -> None:
        """Count a call.

        Raises:
            RateExceeded: there were too many; this one does not count.
        """
        now = self._clock()
        with self._lock:
            full_at = max(now, self._full_at.get(caller, now)) + self._interval
            # A nanosecond less: sums of fractions are not exact.
            wait = full_at - now - self._depth - 1e-9
            if wait <= 0:
                self._full_at[caller] = full_at
                self._full_at.move_to_end(caller)
                while len(self._full_at) > MAX_CALLERS:
                    self._full_at.popitem(last=False)
                return
        raise RateExceeded(
            f"more than {self._rate:g} calls a second: try again in {wait:.3f} s", wait
        )
