"""What is worked out once and kept, within a number of bytes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LARGE = 16
"""An entry that takes more than this part of the bytes is large."""


class Bounded(Generic[Key, Value]):
    """Values by key, which start anew when there are too many or they are too large together.

    Large ones have a quarter of the bytes for themselves: a caller with large requests drives out
    nothing but other large ones. One that takes more than half is not kept at all.

    Threads may share one without a lock: at worst, a value that two put at once is counted twice,
    and one that is put while all go is made again.

    Attributes:
        kept: for look-ups.
    """

    __slots__ = ("_entries", "_large", "_large_size", "_most", "_size", "kept")

    def __init__(self, most: int, entries: int) -> None:
        """Begin with nothing.

        Args:
            most: bytes.
            entries: how many, of whatever size.
        """
        self._most = most
        self._entries = entries
        self._size = self._large_size = 0
        self._large: dict[Key, None] = {}
        self.kept: dict[Key, Value] = {}

    def is_large(self, size: int) -> bool:
        """Whether an entry of this size is a large one."""
        return size > self._most // _LARGE

    def put(self, key: Key, value: Value, size: int) -> bool:
        """Keep a value; returns whether those that are not large had to go before it."""
        if size > self._most // 2:
            return False
        if self.is_large(size):
            if self._large_size + size > self._most // 4:
                gone, self._large, self._large_size = self._large, {}, 0
                for each in gone.copy():
                    self.kept.pop(each, None)
            self._large[key] = None
            self._large_size += size
            self.kept[key] = value
            return False
        anew = self._start_anew_for(size)
        self._size += size
        self.kept[key] = value
        return anew

    def grew(self, key: Key, size: int) -> bool:
        """Count so many bytes more for a value that is kept; returns whether it had to go, too."""
        if key in self._large:
            self._large_size += size
        elif key in self.kept:
            if self._start_anew_for(size):
                return True
            self._size += size
        return False

    def _start_anew_for(self, size: int) -> bool:
        """Let all go that are not large where there is no room for so many bytes; whether so."""
        if self._size + size <= self._most * 3 // 4 and len(self.kept) < self._entries:
            return False
        large = self._large.copy()
        kept = self.kept.copy()
        self.kept = {key: kept[key] for key in large if key in kept}
        self._size = 0
        return True
