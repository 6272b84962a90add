"""When the reservations of a cluster are due, on the store's clock."""

from __future__ import annotations

import heapq
import random
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.store.api import Key

PAUSE: Final = 0.3
"""Seconds between two looks at what is due, give or take a half: every replica looks."""


class Dues:
    """Which reservation is due next. One thread's."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._order: list[tuple[int, str, Key]] = []

    def note(self, key: Key, at: int) -> None:
        """A reservation was written, or with 0 has ended or has no end."""
        if not at:
            self._at.pop(key, None)
            return
        self._at[key] = at
        heapq.heappush(self._order, (at, f"{key.namespace}/{key.name}", key))
        # Renewals leave their old entries behind.
        if len(self._order) > 2 * len(self._at) + 64:
            self._order = [(at, f"{k.namespace}/{k.name}", k) for k, at in self._at.items()]
            heapq.heapify(self._order)

    def next(self) -> int:
        """Milliseconds since 1970 at which the next one is due; 0 when there is none."""
        order = self._order
        while order and self._at.get(order[0][2]) != order[0][0]:
            heapq.heappop(order)
        return order[0][0] if order else 0


class StoreClock:
    """When to look for what is due, by this machine's clock and what the store said of its own.

    Args:
        now: seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead = 0.0
        self._not_before = 0.0

    def told(self, at: int) -> None:
        """The store's clock stood there a moment ago."""
        self._ahead = at / 1000 - self._now()

    def looked(self) -> None:
        """What is due was looked for."""
        self._not_before = self._now() + PAUSE * random.uniform(0.5, 1.5)

    def seconds_until(self, due: int) -> float:
        """Seconds until something that is due then should be looked for; 0 when it is time."""
        now = self._now()
        return max(0.0, due / 1000 - (now + self._ahead), self._not_before - now)
