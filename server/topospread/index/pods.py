"""The slots of nodes, and for each pod its slot, label set, requests, class and what it holds.

Integer columns, so that a group never seen before is counted, and the pods of a class are found, by
array operations over all pods; and a name to row map, so that a change finds what the pod counted
for before.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from topospread.index.pod_classes import PodClass
    from topospread.kube.demands import Holds, Requests


_NONE: Final = -1


class Place(NamedTuple):
    """Slot, label set, requests and class of a pod, and what it holds.

    Attributes:
        slot: of its node; −1 when it has none, or neither counts nor takes anything there.
        label_set: that it counts for; −1 when it does not count. That of a terminating pod is
            another than that of others.
        requests: what it takes there; None for nothing.
        pod_class: number of its class; −1 for none.
        holds: beside amounts; None for nothing.
    """

    slot: int
    label_set: int
    requests: Requests | None
    pod_class: int = _NONE
    holds: Holds | None = None


class PodTable:
    """Rows of all pods of a cluster. Belongs to one builder; not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._keys: list[str] = []
        self._requests: list[Requests | None] = []
        self._holds: list[Holds | None] = []
        # Not NumPy's, where reading or writing one element takes several times as long.
        self._slot, self._label_set, self._class = array("i"), array("i"), array("i")
        self._free: list[int] = []

    def __len__(self) -> int:
        """Pods, counted or not."""
        return len(self._rows)

    def place(self, key: str) -> Place | None:
        """The place of a pod; None when it is unknown, or has no slot and no class."""
        row = self._rows.get(key)
        if row is None:
            return None
        slot, pod_class = self._slot[row], self._class[row]
        if slot == pod_class == _NONE:
            return None
        return Place(slot, self._label_set[row], self._requests[row], pod_class, self._holds[row])

    def put(self, key: str, place: Place | None) -> None:
        """Store where a pod is from now on."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._new_row()
            self._keys[row] = key
        (
            self._slot[row],
            self._label_set[row],
            self._requests[row],
            self._class[row],
            self._holds[row],
        ) = place or _NOWHERE

    def remove(self, key: str) -> None:
        """Forget a pod; unknown ones are ignored."""
        if key in self._rows:
            self.put(key, None)
            row = self._rows.pop(key)
            self._keys[row] = ""
            self._free.append(row)

    def count(self, label_sets: NDArray[np.bool_], slots: int) -> NDArray[np.int32]:
        """[slots] pods whose label set is marked.

        Args:
            label_sets: [label sets + 1] marks by number; the last one belongs to rows that count
                for nothing.
            slots: length of the answer.
        """
        chosen = _column(self._slot)[label_sets[_column(self._label_set)]]
        return np.bincount(chosen, minlength=slots).astype(np.int32)

    def sorted(self) -> SortedSlots:
        """The slots of all pods by label set, as they are now: quicker where many are counted."""
        return SortedSlots(_column(self._label_set), _column(self._slot))

    def members(self, classes: Sequence[PodClass | None], nodes: Sequence[str]) -> PodMembers:
        """The pods by class as they are now, which do not change any more."""
        columns = _column(self._class).copy(), _column(self._slot).copy()
        return PodMembers(tuple(self._keys), *columns, tuple(classes), tuple(nodes))

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        self._keys.append("")
        self._requests.append(None)
        self._holds.append(None)
        for column in (self._slot, self._label_set, self._class):
            column.append(_NONE)
        return len(self._requests) - 1


@dataclass(frozen=True, slots=True, eq=False)
class PodMembers:
    """The pods of a snapshot by class.

    Attributes:
        keys: by row: namespace/name of a pod; of a reservation it ends with a slash.
        numbers: [rows] of the class; −1 for none.
        slots: [rows] of the node; −1 for none.
        classes: by number.
        nodes: names by slot.
    """

    keys: Sequence[str]
    numbers: NDArray[np.int32]
    slots: NDArray[np.int32]
    classes: Sequence[PodClass | None]
    nodes: Sequence[str]

    def of(self, classes: Iterable[PodClass]) -> Iterator[tuple[PodClass, str, str]]:
        """Class, name and node of the pods of some classes, in no order.

        A class of another snapshot that is not in this one has no pods. The node of a pending pod
        is empty.
        """
        chosen: dict[int, PodClass] = {}
        for each in classes:
            if each.number < len(self.classes) and self.classes[each.number] is each:
                chosen[each.number] = each
        marks = np.zeros(len(self.classes) + 1, dtype=np.bool_)
        marks[list(chosen)] = True
        rows = np.flatnonzero(marks[self.numbers])
        found = zip(
            rows.tolist(), self.numbers[rows].tolist(), self.slots[rows].tolist(), strict=True
        )
        for row, number, slot in found:
            name = self.keys[row].rpartition("/")[2]
            yield chosen[number], name, self.nodes[slot] if slot >= 0 else ""

    def on(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """Namespace and name of the pods of all classes on some nodes, in no order."""
        marks = np.array([name in nodes for name in self.nodes] + [False], dtype=np.bool_)
        for row in np.flatnonzero(marks[self.slots] & (self.numbers != _NONE)).tolist():
            namespace, _, name = self.keys[row].partition("/")
            yield namespace, name

    def without_class(self, namespace: str) -> list[str]:
        """Names of the pods of a namespace that are in no class: terminating ones, or ended."""
        prefix = f"{namespace}/"
        keys = (self.keys[row] for row in np.flatnonzero(self.numbers == _NONE).tolist())
        return [
            key.removeprefix(prefix)
            for key in keys
            if key.startswith(prefix) and not key.endswith("/")
        ]


class SortedSlots:
    """The slots of pods by label set."""

    def __init__(self, label_sets: NDArray[np.int32], slots: NDArray[np.int32]) -> None:
        order = np.argsort(label_sets, kind="stable")
        self._slots = slots[order]
        ascending = label_sets[order]
        last = int(ascending[-1]) if ascending.size else _NONE
        self._starts = np.searchsorted(ascending, np.arange(last + 2)).tolist()

    def count(self, label_sets: Sequence[int], slots: int) -> NDArray[np.int32]:
        """[slots] pods that have one of the label sets, each given once by its number."""
        starts, found = self._starts, self._slots
        parts = [found[starts[number] : starts[number + 1]] for number in label_sets]
        chosen = np.concatenate(parts) if parts else found[:0]
        return np.bincount(chosen, minlength=slots).astype(np.int32)


def _column(values: array[int]) -> NDArray[np.int32]:
    """A view, which must be gone before the column grows."""
    return np.frombuffer(values, dtype=np.int32)


_NOWHERE: Final = Place(_NONE, _NONE, None)


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
