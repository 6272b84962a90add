"""The slots of nodes: where each name stands in the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_SPARE_SLOTS: Final = 64
"""Free slots added at least when the node arrays grow."""


class NodeSlots:
    """The slots of node names, with a reference count each.

    A name has a slot as long as a node of that name exists or a counted pod is bound to it, so pods
    may come before their node and outlive it; they are counted on a slot that is not alive.
    """

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._names: list[str] = []
        self._references: list[int] = []
        self._free: list[int] = []

    @property
    def capacity(self) -> int:
        """Slots in use or free."""
        return len(self._references)

    def of(self, name: str) -> int:
        """The slot of a name, taken from the free ones when it has none."""
        slot = self._of.get(name)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._free.pop()
            self._of[name] = slot
            self._names[slot] = name
        return slot

    @property
    def names(self) -> Sequence[str]:
        """The names by slot; those of free slots mean nothing."""
        return self._names

    def acquire(self, slot: int) -> None:
        """Count one more node or pod that refers to a slot."""
        self._references[slot] += 1

    def release(self, slot: int) -> None:
        """Count one less."""
        self._references[slot] -= 1
        self.reclaim(slot)

    def reclaim(self, slot: int) -> None:
        """Free a slot that neither a node nor a pod refers to."""
        if not self._references[slot] and self._of.get(self._names[slot]) == slot:
            del self._of[self._names[slot]]
            self._free.append(slot)

    def _grow(self) -> None:
        first = len(self._references)
        spare = max(MIN_SPARE_SLOTS, first // 8)
        self._references.extend([0] * spare)
        self._names.extend([""] * spare)
        self._free.extend(range(first + spare - 1, first - 1, -1))
