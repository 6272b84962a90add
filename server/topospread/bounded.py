"""Caches that are bounded in bytes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final, Generic, Protocol, TypeVar
from weakref import ref

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MIB: Final = 1 << 20

PROCESS: Final[Mapping[str, int]] = {
    "shapes": 14,
    "cycles": 16,
    "demands": 2,
    "claims": 2,
    "bursts": 2,
    "refused": 16,
}
"""Caches of a process, with the MiB of each under the default of --max-cache-bytes."""

CLUSTER: Final[Mapping[str, int]] = {
    "groups": 48,
    "masks": 8,
    "partitions": 16,
    "plans": 16,
    "rows": 8,
}
"""Those of each cluster, under the default of --max-cluster-cache-bytes."""

_LARGE = 16
"""An entry that takes more than this part of the bytes is large."""


class Sized(Protocol):
    """A cache that counts its bytes.

    Attributes:
        size: bytes, about, that it holds.
    """

    @property
    def size(self) -> int:
        """See above."""
        ...


class Budget:
    """The bytes that each cache of one kind may hold, and the sum of what they hold.

    Attributes:
        most: bytes of one cache.
        evicted: entries that were evicted for lack of space, so far.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.evicted = 0
        self._caches: set[ref[Sized]] = set()

    @classmethod
    def usual(cls, name: str) -> Budget:
        """Under the default settings."""
        return cls({**PROCESS, **CLUSTER}[name] * MIB)

    @property
    def size(self) -> int:
        """Bytes, about, that they hold."""
        alive = [each() for each in self._caches.copy()]
        return sum([cache.size for cache in alive if cache is not None])

    def add(self, cache: Sized) -> None:
        """Count what a cache holds, for as long as it is there."""
        self._caches.add(ref(cache, self._caches.discard))


Budgets = Mapping[str, Budget]
"""By the names of PROCESS or CLUSTER."""


def budgets(caches: Mapping[str, int], most: int) -> dict[str, Budget]:
    """Divide a number of bytes between caches in the default proportions."""
    whole = sum(caches.values())
    return {name: Budget(most * part // whole) for name, part in caches.items()}


USUAL: Final[Budgets] = {name: Budget.usual(name) for name in (*PROCESS, *CLUSTER)}
"""For parts that are not configured."""


class _Entry(Generic[Value]):
    __slots__ = ("size", "used", "value")

    def __init__(self, value: Value, size: int, used: int) -> None:
        self.value = value
        self.size = size
        self.used = used


class Bounded(Generic[Key, Value]):
    """A cache by key, bounded in bytes; the least recently used entries are evicted.

    What an entry costs to make differs little within a cache, so the one used last is the one most
    worth its bytes. Large entries have a quarter of the bytes for themselves: a caller with large
    requests evicts nothing but other large ones. An entry that takes more than that is not kept.

    Threads may share one without a lock: at worst, a value that two put at once is counted twice
    until some have to go, and one that is put meanwhile is made again.
    """

    __slots__ = ("__weakref__", "_budget", "_entries", "_large_size", "_small_size", "_tick")

    def __init__(self, budget: Budget) -> None:
        """Create an empty cache."""
        self._budget = budget
        self._entries: dict[Key, _Entry[Value]] = {}
        self._small_size = self._large_size = 0
        self._tick = 0
        budget.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    @property
    def size(self) -> int:
        """Bytes, about, that it holds."""
        return self._small_size + self._large_size

    def is_large(self, size: int) -> bool:
        """Whether an entry of this size is a large one."""
        return size > self._budget.most // _LARGE

    def get(self, key: Key) -> Value | None:
        """The value of a key; None when none is kept."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = self._tick
        return entry.value

    def put(self, key: Key, value: Value, size: int) -> bool:
        """Keep a value; returns whether entries that are not large were evicted for it."""
        if size > self._budget.most // 4:
            return False
        former = self._entries.pop(key, None)
        if former is not None:
            self._count(former.size, -former.size)
        self._tick += 1
        large = self.is_large(size)
        gone = self._evict_for(size, large=large)
        self._entries[key] = _Entry(value, size, self._tick)
        self._count(size, size)
        return gone and not large

    def grew(self, key: Key, size: int) -> None:
        """Count so many bytes more for a value that is kept."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count(entry.size, -entry.size)
            self.put(key, entry.value, entry.size + size)

    def clear(self) -> None:
        """Evict all entries."""
        self._budget.evicted += len(self._entries)
        self._entries = {}
        self._small_size = self._large_size = 0

    def _count(self, size: int, change: int) -> None:
        if self.is_large(size):
            self._large_size += change
        else:
            self._small_size += change

    def _evict_for(self, size: int, *, large: bool) -> bool:
        """Evict entries where so many bytes do not fit; returns whether it did."""
        most = self._budget.most // 4 if large else self._budget.most * 3 // 4
        held = self._large_size if large else self._small_size
        if held + size <= most:
            return False
        # Added up anew, because threads may have counted something twice.
        entries = [
            (entry.used, entry.size, key)
            for key, entry in self._entries.copy().items()
            if self.is_large(entry.size) is large
        ]
        entries.sort(key=itemgetter(0))
        held = sum([each for _, each, _ in entries])
        # A tenth of the small ones at once, so that a stream of new ones does not sort at each.
        allowed = most - size if large else most * 9 // 10 - size
        for _, freed, key in entries:
            if held <= allowed:
                break
            if self._entries.pop(key, None) is not None:
                held -= freed
                self._budget.evicted += 1
        if large:
            self._large_size = held
        else:
            self._small_size = held
        return True
