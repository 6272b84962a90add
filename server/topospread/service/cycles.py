"""Cycles that later calls may resume: bounded in number and in age, per process."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.errors import CycleExpired

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.index.groups import Group
    from topospread.service.cycle import Cycle


MAX_BYTES: Final = 16 << 20
"""Of what the cycles of one process keep, with the counts that they rest on."""


class Cycles:
    """Keeps cycles by identifier.

    Args:
        ttl: seconds that a cycle lives.
        capacity: how many are kept; the oldest go first.
        clock: seconds that only grow.
    """

    def __init__(
        self, ttl: float = 60.0, capacity: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl = ttl
        self._capacity = capacity
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Cycle, int]] = OrderedDict()
        self._groups: dict[Group, tuple[int, int]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def put(self, cycle: Cycle) -> str:
        """Keep a cycle; returns its identifier, which no other process has."""
        identifier = secrets.token_urlsafe(12)
        now = self._clock()
        size = cycle.size
        with self._lock:
            self._kept[identifier] = (now + self._ttl, cycle, size)
            self._size += size
            for group in cycle.groups:
                self._hold(group, cycle.growth)
            while self._kept and (
                len(self._kept) > self._capacity
                or self._size > MAX_BYTES
                or next(iter(self._kept.values()))[0] <= now
            ):
                _, (_, gone, freed) = self._kept.popitem(last=False)
                self._size -= freed
                for group in gone.groups:
                    self._let_go(group)
        return identifier

    def _hold(self, group: Group, growth: int) -> None:
        """Count a group once, however many cycles rest on it, with what it holds by now."""
        cycles, size = self._groups.get(group, (0, 0))
        now = group.size + growth
        self._size += now - size
        self._groups[group] = (cycles + 1, now)

    def _let_go(self, group: Group) -> None:
        cycles, size = self._groups.pop(group)
        if cycles > 1:
            self._groups[group] = (cycles - 1, size)
        else:
            self._size -= size

    def get(self, identifier: str) -> Cycle | None:
        """The cycle, or None when it is unknown here or too old."""
        kept = self._kept.get(identifier)
        if kept is None or kept[0] <= self._clock():
            return None
        return kept[1]

    def expired(self, identifier: str) -> CycleExpired:
        """The error for a cycle that cannot be resumed."""
        return CycleExpired(
            f"cycle {identifier!r} is not known to this process: it expired after {self._ttl:g} s, "
            "or another process made it. Call PreFilter again, or send the pod along"
        )
