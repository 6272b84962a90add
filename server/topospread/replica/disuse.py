"""Since when nobody has asked for a group, told without a clock on the way of a decision.

A decision notes on a group the sequence of the snapshot that it used. What the sequence was at some
moments is noted here, so that a sequence tells a time.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS: Final = 4
"""Looks in the time after which a group is let go: so much later than its end it may be noticed."""


class Disuse:
    """When to let go of groups, and of which. One thread's.

    Args:
        seconds: without a use, after which a group is let go.
        now: seconds on a clock that does not jump.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._marks: deque[tuple[float, int]] = deque()

    def left(self) -> float:
        """Seconds until it is time to look; 0 when it is."""
        marks = self._marks
        return max(0.0, marks[-1][0] + self._seconds / LOOKS - self._now()) if marks else 0.0

    def before(self, sequence: int) -> int:
        """The sequence before which a last use is too long ago; 0 as long as none can be.

        Args:
            sequence: of the newest snapshot; the next one has a higher one.
        """
        now, found = self._now(), 0
        self._marks.append((now, sequence))
        while self._marks[0][0] <= now - self._seconds:
            _, found = self._marks.popleft()
        return found
