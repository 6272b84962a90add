"""Timers of a replica: backoff, expiries of reservations, checks for idle groups."""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.store.model import Key


FIRST_PAUSE: Final = 0.05
LAST_PAUSE: Final = 1.0
"""Seconds between two tries to reach the store: doubling, and short at the end, so that writes go
on soon after it is back.
"""

CHECKS_PER_TTL: Final = 4
"""Checks within the time after which a group is dropped: bounds how late an idle one is noticed."""

CHECK_INTERVAL: Final = 0.3
"""Seconds between two checks for due reservations, give or take a half: every replica checks."""


class StoreHealth:
    """The time of the store's last answer; written by the thread that follows, read by all.

    Attributes:
        stale_since: when the store did not answer first; None while it does.
    """

    def __init__(self) -> None:
        self.stale_since: float | None = None
        self._confirmed_at: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def stale_for(self) -> float:
        """Seconds since the store last answered; 0 while it does."""
        since = self.stale_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    @property
    def age(self) -> float:
        """Seconds since the view was last known to be the newest state; 0 before the first load."""
        confirmed = self._confirmed_at
        return 0.0 if confirmed is None else max(0.0, time.monotonic() - confirmed)

    def confirmed_since(self, when: float) -> bool:
        """Whether the view was known to be the newest state after this, on the monotonic clock."""
        return self._confirmed_at is not None and self._confirmed_at > when

    @property
    def failing(self) -> bool:
        """Whether the store does not answer, or shows another history."""
        return self.stale_since is not None

    def succeeded(self) -> None:
        """Note that the store answered."""
        self.stale_since = None
        self._pause = FIRST_PAUSE

    def view_confirmed(self) -> None:
        """Note that the view is the newest state, as of now."""
        self._confirmed_at = time.monotonic()

    def failed(self) -> None:
        """Note that the view may be old from now on."""
        if self.stale_since is None:
            self.stale_since = time.monotonic()

    def next_backoff(self) -> float:
        """Seconds to wait before the next try; doubles from call to call."""
        pause = self._pause
        self._pause = min(pause * 2, LAST_PAUSE)
        return pause


class IdleTracker:
    """Schedules the checks for idle groups, and finds those idle for too long. One thread's.

    Args:
        seconds: without a use, after which a group is dropped.
        now: seconds on a clock that does not jump.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._marks: deque[tuple[float, int]] = deque()

    def seconds_until_check(self) -> float:
        """Seconds until it is time to check; 0 when it is."""
        marks = self._marks
        if not marks:
            return 0.0
        return max(0.0, marks[-1][0] + self._seconds / CHECKS_PER_TTL - self._now())

    def idle_before(self, sequence: int) -> int:
        """The sequence before which a last use is too long ago; 0 as long as none can be."""
        now, found = self._now(), 0
        self._marks.append((now, sequence))
        while self._marks[0][0] <= now - self._seconds:
            _, found = self._marks.popleft()
        return found


class ExpiryQueue:
    """Reservations by the time when they are due. One thread's."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._order: list[tuple[int, str, Key]] = []

    def update(self, key: Key, at: int) -> None:
        """Note when a written reservation is due; 0: it has ended or is never due."""
        if not at:
            self._at.pop(key, None)
            return
        self._at[key] = at
        heapq.heappush(self._order, (at, f"{key.namespace}/{key.name}", key))
        # Renewals leave their old entries behind.
        if len(self._order) > 2 * len(self._at) + 64:
            self._order = [(at, f"{k.namespace}/{k.name}", k) for k, at in self._at.items()]
            heapq.heapify(self._order)

    def next_due(self) -> int:
        """Milliseconds since 1970 at which the next one is due; 0 when there is none."""
        order = self._order
        while order and self._at.get(order[0][2]) != order[0][0]:
            heapq.heappop(order)
        return order[0][0] if order else 0


class StoreClock:
    """Schedules checks for due reservations, by the local clock and its offset to the store's."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead = 0.0
        self._not_before = 0.0

    def observe(self, at: int) -> None:
        """Note the store's time of a moment ago, in milliseconds since 1970."""
        self._ahead = at / 1000 - self._now()

    def checked(self) -> None:
        """Note that due reservations were looked for."""
        self._not_before = self._now() + CHECK_INTERVAL * random.uniform(0.5, 1.5)

    def seconds_until(self, due: int) -> float:
        """Seconds until something that is due then should be looked for; 0 when it is time."""
        now = self._now()
        return max(0.0, due / 1000 - (now + self._ahead), self._not_before - now)
