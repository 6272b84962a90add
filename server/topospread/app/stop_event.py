"""An event that a signal handler may set."""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

POLL_SECONDS: Final = 0.5
"""Seconds after which a signal is noticed at the latest: the system may give it to another thread,
and that ends no wait of this one.
"""


class StopEvent:
    """An event that is set once, also by a signal handler.

    A handler runs in the main thread between any two steps of it, also while that holds the lock of
    an event for which it is about to wait: setting the event would then wait for ever. A simple
    queue may be put to in the middle of anything.
    """

    def __init__(self) -> None:
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    def __bool__(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it; from any thread or signal handler."""
        self._is_set = True
        self._wakeups.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set or the time is over; for one thread. Returns whether it is set."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._is_set:
            left = (
                POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            )
            if left <= 0:
                break
            with suppress(Empty):
                self._wakeups.get(timeout=left)
        return self._is_set
