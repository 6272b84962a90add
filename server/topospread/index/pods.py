"""The pod table: which label set and which slot each pod counts for.

Two integer columns, so that a group never seen before is counted by array operations over all pods,
and a name to row map, so that a change finds what the pod counted for before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NONE: Final = -1
_FIRST_CAPACITY: Final = 256


class PodTable:
    """Rows of all pods of a cluster. Belongs to one builder; not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._label_set = np.full(_FIRST_CAPACITY, _NONE, dtype=np.int32)
        self._slot = np.full(_FIRST_CAPACITY, _NONE, dtype=np.int32)
        self._free: list[int] = []
        self._used = 0

    def __len__(self) -> int:
        """Pods, counted or not."""
        return len(self._rows)

    def counted(self, key: str) -> tuple[int, int] | None:
        """(label set, slot) that a pod counts for; None when it is unknown or not counted."""
        row = self._rows.get(key)
        if row is None:
            return None
        slot = int(self._slot[row])
        return None if slot == _NONE else (int(self._label_set[row]), slot)

    def put(self, key: str, counts_for: tuple[int, int] | None) -> None:
        """Note what a pod counts for from now on."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._new_row()
        self._label_set[row], self._slot[row] = counts_for or (_NONE, _NONE)

    def remove(self, key: str) -> None:
        """Forget a pod; unknown ones are ignored."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._label_set[row] = self._slot[row] = _NONE
            self._free.append(row)

    def count(self, label_sets: NDArray[np.bool_], slots: int) -> NDArray[np.int32]:
        """[slots] pods whose label set is marked.

        Args:
            label_sets: [label sets + 1] marks by number; the last one belongs to rows that count
                for nothing.
            slots: length of the answer.
        """
        used = slice(0, self._used)
        chosen = self._slot[used][label_sets[self._label_set[used]]]
        return np.bincount(chosen, minlength=slots).astype(np.int32)

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = self._used
        if row == self._slot.size:
            grown = np.full(row, _NONE, dtype=np.int32)
            self._label_set = np.concatenate([self._label_set, grown])
            self._slot = np.concatenate([self._slot, grown])
        self._used += 1
        return row
