"""What a signal handler says to the main thread."""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

LOOK: Final = 0.5
"""Seconds after which a signal is noticed at the latest: the system may give it to another thread,
and that ends no wait of this one.
"""


class Told:
    """As an event that is set once, but a signal handler may set it.

    A handler runs in the main thread between any two steps of it, also while that holds the lock of
    an event for which it is about to wait: setting the event would then wait for ever. A simple
    queue may be put to in the middle of anything.
    """

    def __init__(self) -> None:
        self._words: SimpleQueue[None] = SimpleQueue()
        self._said = False

    def __bool__(self) -> bool:
        """Whether it was said."""
        return self._said

    def say(self) -> None:
        """Say it; from any thread or signal handler."""
        self._said = True
        self._words.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is said or the time is over; for one thread. Returns whether it is."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._said:
            left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            with suppress(Empty):
                self._words.get(timeout=left)
        return self._said
