"""Resource usage: what the pods on each node take of its resources, counted as changes come.

As with groups, a version remembers the one before it and the differences; amounts are worked out at
the first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.spread.topology import Ints

MAX_PENDING: Final = 512
"""Differences a version may carry before the amounts are worked out."""

SPARSE: Final = 8
"""Slots up to which a resource has no array: pods may name resources that no others do."""

PODS: Final = "pods"

_WRAP: Final = 1 << 64


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
        """[capacity] the amount of a resource that is taken on each slot."""
        amounts = self._made.get(resource)
        if amounts is None and resource not in self._base and resource not in self._pending:
            # No pod takes any: callers may ask for whatever they like, and it is not kept.
            return np.zeros(capacity, dtype=np.int64)
        if amounts is None or amounts.size < capacity:
            amounts = self._worked_out(resource, capacity)
            amounts.flags.writeable = False
            self._made[resource] = amounts
        return amounts if amounts.size == capacity else amounts[:capacity]

    def on(self, slot: int) -> dict[str, int]:
        """The amounts taken on one slot, by resource; without those of which nothing is."""
        taken = {
            name: int(self.taken(name, slot + 1)[slot]) for name in (*self._base, *self._pending)
        }
        return {name: amount for name, amount in taken.items() if amount}

    def changed(self, differences: Mapping[tuple[str, int], int]) -> Usage:
        """The next version; ``differences`` maps (resource, slot) to an amount."""
        base, pending, size = self._base, self._pending, self._size
        if size > MAX_PENDING:
            pending = {
                name: left
                for name, held in pending.items()
                if (left := {slot: amount for slot, amount in held.items() if amount})
            }
            size = 0
            for name, held in pending.items():
                if len(held) > SPARSE or name in base:
                    self.taken(name, 0)  # works all amounts out, whatever part is asked for
        made = dict(self._made)
        if made:
            # Amounts that were read are built upon.
            base = {name: amounts for name, amounts in {**base, **made}.items() if amounts.any()}
            pending = {name: by_slot for name, by_slot in pending.items() if name not in made}
        changed = dict(pending)
        own: dict[str, dict[int, int]] = {}
        for (resource, slot), amount in differences.items():
            by_slot = own.get(resource)
            if by_slot is None:
                by_slot = own[resource] = dict(changed.get(resource, ()))
            by_slot[slot] = by_slot.get(slot, 0) + amount
        changed |= own
        return Usage(base, changed, size + len(differences))

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
