"""A cache that is bounded in bytes, and how much the caches of each name hold."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar
from weakref import ref

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MIB: Final = 1 << 20

LARGEST_KEY: Final = 16 << 10
"""Bytes of a pod that decide about it: what follows from one that has more is not kept.

So a caller's large pods drive out nobody else's. A real pod has a tenth of that.
"""


GROUP_BYTES: Final = 48 * MIB
"""Of the counts of a cluster's selectors, by default."""


class Sized(Protocol):
    """A cache that counts its bytes."""

    @property
    def size(self) -> int:
        """Bytes, about, that it holds."""
        ...


class Budget:
    """The bytes that each cache of one name may hold, and what all of them do hold.

    Attributes:
        most: bytes of one cache.
        evicted: entries that were evicted for lack of space, so far.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.evicted = 0
        self._caches: set[ref[Sized]] = set()

    @property
    def size(self) -> int:
        """Bytes, about, of all caches of the name."""
        alive = [each() for each in self._caches.copy()]
        return sum([cache.size for cache in alive if cache is not None])

    def add(self, cache: Sized) -> None:
        """Count what a cache holds, for as long as it is there."""
        self._caches.add(ref(cache, self._caches.discard))


BUDGETS: Final[Mapping[str, Budget]] = {
    name: Budget(most * MIB)
    for name, most in {
        # Of the process.
        "shapes": 14,
        "cycles": 20,
        "demands": 2,
        "claims": 2,
        "bursts": 2,
        "refused": 16,
        "inspections": 256,
        # Of each cluster.
        "masks": 8,
        "memberships": 4,
        "partitions": 24,
        "plans": 12,
        "rows": 8,
        "namespaces": 4,
        "volumes": 32,
    }.items()
}
"""By the name of the cache; the counts of selectors have one of their own (--max-group-bytes)."""


_Shared = Sequence[tuple[Hashable, int]]


class _Generation(Generic[Key, Value]):
    __slots__ = ("entries", "shared", "size")

    def __init__(self) -> None:
        self.entries: dict[Key, tuple[Value, int, _Shared]] = {}
        self.shared: set[Hashable] = set()
        self.size = 0


class Cache(Generic[Key, Value]):
    """Values by key, in two generations that hold half of the bytes each.

    What is put or asked for belongs to the younger one. When that is full the older one is dropped,
    with all that was not asked for since the time before, and the younger one takes its place.

    Threads share a cache without a lock: at worst a value is counted twice, or made again.
    """

    __slots__ = ("__weakref__", "_budget", "_older", "_younger")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._younger: _Generation[Key, Value] = _Generation()
        self._older: _Generation[Key, Value] = _Generation()
        budget.add(self)

    def __len__(self) -> int:
        return len(self._younger.entries) + len(self._older.entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._younger.entries or key in self._older.entries

    @property
    def size(self) -> int:
        """Bytes, about, that it holds."""
        return self._younger.size + self._older.size

    def get(self, key: Key) -> Value | None:
        """The value of a key; None when none is kept."""
        entry = self._younger.entries.get(key)
        if entry is None:
            older = self._older
            entry = older.entries.pop(key, None)
            if entry is None:
                return None
            older.size -= entry[1]
            self.put(key, *entry)
        return entry[0]

    def put(self, key: Key, value: Value, size: int, shared: _Shared = ()) -> None:
        """Keep a value, unless it is larger than a generation.

        Args:
            key: of the value.
            value: what to keep.
            size: bytes, about, of both.
            shared: what other values may refer to, too, and its bytes; counted once a generation.
        """
        younger, most = self._younger, self._budget.most // 2
        added = size + sum([of for each, of in shared if each not in younger.shared])
        if younger.size + added > most:
            added = size + sum([of for _, of in shared])
            if added > most:
                return
            self._budget.evicted += len(self._older.entries)
            self._older, younger = younger, _Generation()
            self._younger = younger
        former = younger.entries.get(key)
        if former is not None:
            added -= former[1]
        younger.size += added
        younger.shared.update([each for each, _ in shared])
        younger.entries[key] = value, size, shared
