"""When the store was last heard of, and when to ask it again."""

from __future__ import annotations

import time
from typing import Final

FIRST_PAUSE: Final = 0.05
LAST_PAUSE: Final = 1.0
"""Seconds between two tries to reach the store: doubling, and short at the end, so that writes go
on soon after it is back.
"""


class Contact:
    """Written by the thread that follows, read by all."""

    def __init__(self) -> None:
        self._stale_since: float | None = None
        self._confirmed_at: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def stale_for(self) -> float:
        """Seconds since the store was last heard of; 0 while it answers."""
        since = self._stale_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    @property
    def age(self) -> float:
        """Seconds since the view was last known to be the newest state; 0 before the first load."""
        confirmed = self._confirmed_at
        return 0.0 if confirmed is None else max(0.0, time.monotonic() - confirmed)

    @property
    def broken(self) -> bool:
        """Whether the store does not answer, or shows another history."""
        return self._stale_since is not None

    def heard(self) -> None:
        """The store answered."""
        self._stale_since = None
        self._pause = FIRST_PAUSE

    def confirmed(self) -> None:
        """The view is the newest state, as of now."""
        self._confirmed_at = time.monotonic()

    def missed(self) -> None:
        """The view may be old from now on."""
        if self._stale_since is None:
            self._stale_since = time.monotonic()

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        pause = self._pause
        self._pause = min(pause * 2, LAST_PAUSE)
        return pause
