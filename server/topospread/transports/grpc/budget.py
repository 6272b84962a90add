"""A bound for what calls that are under way keep of what they have received."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from topospread.errors import LimitExceeded, QueueFull, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class MemoryBudget:
    """Bytes that the calls of a process may keep together.

    Args:
        most: bytes.
        setting: that says how many, for errors.
    """

    def __init__(self, most: int, setting: str) -> None:
        self._most = most
        self._setting = setting
        self._lock = threading.Lock()
        self._taken = 0

    @contextmanager
    def share(self) -> Generator[Callable[[int], None]]:
        """One call's part, which is given back at the end of the context.

        It is a function that takes bytes, before they are kept. It raises LimitExceeded when there
        are not as many left.
        """
        own = 0

        def take(size: int) -> None:
            nonlocal own
            with self._lock:
                if self._taken + size > self._most:
                    raise self._refusal(own)
                self._taken += size
                own += size

        try:
            yield take
        finally:
            with self._lock:
                self._taken -= own

    def _refusal(self, own: int) -> LimitExceeded:
        if own == self._taken:
            text = f"objects: more than {self._most} bytes in one call ({self._setting})"
            return TooLarge(text, self._setting, self._most)
        return QueueFull(
            f"objects: more than {self._most} bytes in calls at once ({self._setting}): try again"
            " later"
        )
