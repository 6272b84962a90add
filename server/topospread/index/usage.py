"""What the pods on each node take of its resources, counted as changes come.

As with groups, a version remembers the one before it and the differences; amounts are worked out
when somebody asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.spread.topology import Ints

MAX_PENDING: Final = 512
"""Differences a version may carry before the amounts are worked out."""

PODS: Final = "pods"

_WRAP: Final = 1 << 64

_Differences = dict[str, dict[int, int]]


class Usage:
    """One version of all amounts, in the scheduler's units, by resource and slot."""

    __slots__ = ("_base", "_made", "_pending", "_size")

    def __init__(
        self, base: Mapping[str, Ints], pending: Mapping[str, Mapping[int, int]], size: int
    ) -> None:
        self._base = base
        self._pending = pending
        self._size = size
        self._made: dict[str, Ints] = {}

    def taken(self, resource: str, capacity: int) -> Ints:
        """[capacity] what is taken on each slot."""
        amounts = self._made.get(resource)
        if amounts is None or amounts.size < capacity:
            amounts = self._worked_out(resource, capacity)
            amounts.flags.writeable = False
            self._made[resource] = amounts
        return amounts if amounts.size == capacity else amounts[:capacity]

    def changed(self, differences: Mapping[tuple[str, int], int]) -> Usage:
        """The next version; ``differences`` maps (resource, slot) to an amount."""
        pending: _Differences = {name: dict(by_slot) for name, by_slot in self._pending.items()}
        for (resource, slot), amount in differences.items():
            by_slot = pending.setdefault(resource, {})
            by_slot[slot] = by_slot.get(slot, 0) + amount
        size = self._size + len(differences)
        if size <= MAX_PENDING:
            return Usage(self._base, pending, size)
        whole = Usage(self._base, pending, size)
        base = {name: whole.taken(name, 0) for name in (*self._base, *pending)}
        return Usage({name: amounts for name, amounts in base.items() if amounts.any()}, {}, 0)

    def _worked_out(self, resource: str, capacity: int) -> Ints:
        base, pending = self._base.get(resource), self._pending.get(resource, {})
        held = 0 if base is None else base.size
        amounts = np.zeros(max(capacity, held, 1 + max(pending, default=-1)), dtype=np.int64)
        if base is not None:
            amounts[:held] = base
        # Wrapping around is what can be undone, should thousands ask for more than there is of any
        # resource in the world.
        wrapped = amounts.view(np.uint64)
        for slot, amount in pending.items():
            wrapped[slot] = (int(wrapped[slot]) + amount) % _WRAP
        return amounts


NO_USAGE: Final = Usage({}, {}, 0)
