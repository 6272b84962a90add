"""When a kind is listed anew: after contact with the API server was lost, and now and then."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_SECONDS: Final = 240.0
"""After which the API server ends a watch, plus up to as much again, so that not all end at once;
client-go has five to ten minutes.
"""

SHORTEST_WATCH: Final = 2.0
"""Seconds."""

LISTED_PER_SECOND: Final = 4000
"""Objects that are listed in a second of this process's time. What a list costs is worked out from
its size: one that took long because the API server was starting is no reason to wait with the next.
"""

REST: Final = 100.0
"""A kind is not listed for so many times as long as its last list takes, unless contact was lost:
lists take at most one hundredth of the time.
"""

REST_AFTER_LOSS: Final = 10.0
"""The same when contact was lost: one tenth, where connections break all the time."""


class Contact:
    """One reflector's contact with the API server, and when that calls for a list.

    A resourceVersion says nothing about the history that it belongs to: an API server whose etcd
    was restored goes on from an older one and passes those that it had before. Only a list tells
    what is there. So there is one after each loss of contact, during which anything may have
    happened, and one after a bounded time in any case.

    Attributes:
        lost_at: since when the state may be another one than the API server's, on the clock; None
            while each change comes by the watch.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.lost_at: float | None = clock()
        self._last = clock()
        self._list_at = self._soonest = -math.inf

    @property
    def list_is_due(self) -> bool:
        """Whether the kind is to be listed now."""
        return self._clock() >= self._list_at

    def lag(self, *, watching: bool) -> float:
        """Seconds for which the state may have lacked something."""
        # Another thread asks, for metrics.
        if (lost_at := self.lost_at) is not None:
            return self._clock() - lost_at
        return 0.0 if watching else self._clock() - self._last

    def lose(self) -> None:
        """Note that something may have happened that no watch tells."""
        if self.lost_at is None:
            self.lost_at = self._clock()
        self._list_at = min(self._list_at, self._soonest)

    def listed(self, objects: int) -> None:
        """Note that a list of so many objects is taken."""
        self._last = self._clock()
        took = objects / LISTED_PER_SECOND
        self.lost_at = None
        self._soonest = self._last + REST_AFTER_LOSS * took
        self._list_at = self._last + max(WATCH_SECONDS * random.uniform(1.0, 2.0), REST * took)

    def next_watch(self) -> int:
        """Seconds for which to watch: until the next list, if that is soon."""
        left = self._list_at - self._clock()
        if left > 2 * WATCH_SECONDS:
            left = WATCH_SECONDS * random.uniform(1.0, 2.0)
        return math.ceil(max(SHORTEST_WATCH, left))

    def watched(self) -> None:
        """Note that a watch ended."""
        self._last = self._clock()
