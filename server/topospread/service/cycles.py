"""Cycles that later calls may resume: bounded in number and in age, per process."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.bounded import Budget
from topospread.errors import CycleExpired

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.index.groups import Group
    from topospread.service.cycle import Cycle

MOST_OFTEN: Final = 1.0
"""Seconds between two looks for those that have expired, at least."""


class Cycles:
    """Keeps cycles by identifier.

    Args:
        ttl: seconds that a cycle lives.
        capacity: how many are kept; the oldest go first.
        clock: seconds that only grow.
        budget: bytes of what they keep, with the counts that they rest on.
    """

    def __init__(
        self,
        ttl: float = 60.0,
        capacity: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or Budget.usual("cycles")
        self._budget.add(self)
        self._ttl = ttl
        self._capacity = capacity
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Cycle, int]] = OrderedDict()
        self._groups: dict[Group, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False
        self.size = 0

    def close(self) -> None:
        """Look for expired ones no more."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()

    def put(self, cycle: Cycle) -> str:
        """Keep a cycle; returns its identifier, which no other process has."""
        identifier = secrets.token_urlsafe(12)
        now = self._clock()
        size = cycle.size
        with self._lock:
            self._kept[identifier] = (now + self._ttl, cycle, size)
            self.size += size
            for group in cycle.groups:
                self._hold(group, cycle.growth)
            self._drop(now)
            # The oldest is worth the least: its Filter and Score have most likely been asked.
            while self._kept and (
                len(self._kept) > self._capacity or self.size > self._budget.most
            ):
                self._drop_oldest()
                self._budget.evicted += 1
            if self._timer is None and self._kept:
                self._look_later()
        return identifier

    def drop_expired(self) -> None:
        """Let go of those that nobody can resume any more; by itself, as long as there are any."""
        with self._lock:
            self._drop(self._clock())
            self._timer = None
            if self._kept:
                self._look_later()

    def _drop(self, now: float) -> None:
        while self._kept and next(iter(self._kept.values()))[0] <= now:
            self._drop_oldest()

    def _look_later(self) -> None:
        if self._closed:
            return
        left = next(iter(self._kept.values()))[0] - self._clock()
        self._timer = threading.Timer(max(MOST_OFTEN, left), self.drop_expired)
        self._timer.name, self._timer.daemon = "expired-cycles", True
        self._timer.start()

    def _drop_oldest(self) -> None:
        _, (_, gone, freed) = self._kept.popitem(last=False)
        self.size -= freed
        for group in gone.groups:
            self._let_go(group)

    def _hold(self, group: Group, growth: int) -> None:
        """Count a group once, however many cycles rest on it, with what it holds by now."""
        cycles, size = self._groups.get(group, (0, 0))
        now = group.size + growth
        self.size += now - size
        self._groups[group] = (cycles + 1, now)

    def _let_go(self, group: Group) -> None:
        cycles, size = self._groups.pop(group)
        if cycles > 1:
            self._groups[group] = (cycles - 1, size)
        else:
            self.size -= size

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
