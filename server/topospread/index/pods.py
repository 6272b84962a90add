"""The pod table: which label set and which slot each pod counts for, and what it takes there.

Two integer columns, so that a group never seen before is counted by array operations over all pods,
and a name to row map, so that a change finds what the pod counted for before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.kube.demands import Requests

_NONE: Final = -1
_FIRST_CAPACITY: Final = 256


class Place(NamedTuple):
    """Slot, label set and requests of a pod.

    Attributes:
        slot: of its node.
        label_set: that it counts for; −1 when it does not count.
        requests: what it takes there; None for nothing.
    """

    slot: int
    label_set: int
    requests: Requests | None


class PodTable:
    """Rows of all pods of a cluster. Belongs to one builder; not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._label_set = np.full(_FIRST_CAPACITY, _NONE, dtype=np.int32)
        self._slot = np.full(_FIRST_CAPACITY, _NONE, dtype=np.int32)
        self._requests: list[Requests | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Pods, counted or not."""
        return len(self._rows)

    def place(self, key: str) -> Place | None:
        """The place of a pod; None when it is unknown, or neither counts nor takes anything."""
        row = self._rows.get(key)
        if row is None:
            return None
        slot = int(self._slot[row])
        if slot == _NONE:
            return None
        return Place(slot, int(self._label_set[row]), self._requests[row])

    def put(self, key: str, place: Place | None) -> None:
        """Store where a pod is from now on."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._new_row()
        self._slot[row], self._label_set[row], self._requests[row] = place or _NOWHERE

    def remove(self, key: str) -> None:
        """Forget a pod; unknown ones are ignored."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._slot[row], self._label_set[row], self._requests[row] = _NOWHERE
            self._free.append(row)

    def count(self, label_sets: NDArray[np.bool_], slots: int) -> NDArray[np.int32]:
        """[slots] pods whose label set is marked.

        Args:
            label_sets: [label sets + 1] marks by number; the last one belongs to rows that count
                for nothing.
            slots: length of the answer.
        """
        used = slice(0, len(self._requests))
        chosen = self._slot[used][label_sets[self._label_set[used]]]
        return np.bincount(chosen, minlength=slots).astype(np.int32)

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = len(self._requests)
        if row == self._slot.size:
            grown = np.full(row, _NONE, dtype=np.int32)
            self._label_set = np.concatenate([self._label_set, grown])
            self._slot = np.concatenate([self._slot, grown])
        self._requests.append(None)
        return row


_NOWHERE: Final = Place(_NONE, _NONE, None)
