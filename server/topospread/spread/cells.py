"""Partitions into classes of nodes, and cells: nodes of a class with the same number of pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEPT: Final = 8
"""Members kept per cell: five nodes are named by default."""

CountChange = tuple[int, int, int]
"""A slot, the matching pods on it before, and how many more there are now."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The nodes by class: nodes of one class differ in nothing but their own pods.

    Attributes:
        ids: [slots] the class; −1 where the slot is free.
        members: for each class its slots, in the order of the node names as bytes.
        nodes: [classes] how many there are.
        domains: for each of the traits' keys, [classes] the domain; −1 where the label is absent.
        labelled: for each of the traits' labels, [classes] whether it is there.
        eligible: for each of the traits' eligibilities, [classes] whether the nodes are in.
        rank: [slots] position in the order of the node names; the node table's own.
        order: [nodes] slots in that order; the node table's own.
        made: results that follow from it alone, by name.
    """

    ids: NDArray[np.int32]
    members: Sequence[NDArray[np.int32]]
    nodes: NDArray[np.int64]
    domains: Sequence[NDArray[np.int32]]
    labelled: Sequence[NDArray[np.bool_]]
    eligible: Sequence[NDArray[np.bool_]]
    rank: NDArray[np.int32]
    order: NDArray[np.intp]
    made: dict[str, object] = field(init=False, repr=False, default_factory=dict)

    @property
    def size(self) -> int:
        """The number of classes."""
        return len(self.members)

    @property
    def nbytes(self) -> int:
        """Bytes, about, with its cells where nothing is counted."""
        traits = len(self.domains) + len(self.labelled) + len(self.eligible)
        by_class = (700 + 8 * traits) * self.size
        return 2000 + 200 * traits + by_class + 16 * self.ids.size


class Cells:
    """The cells of a partition's nodes, for one version of a group's counts.

    Attributes:
        held: [classes] the numbers of matching pods that nodes hold, ascending; 0 where no node is.
        within: [classes][as held] nodes that hold at most so many.
        nodes: [classes] all nodes.
        width: one more than the most that any node holds.
        partition: the nodes by class.
        counts: [slots] matching pods; None: nothing is counted, all nodes hold 0.
        members: the first nodes by name of cells that were named, by class and own pods.
    """

    __slots__ = (
        "_both",
        "_every",
        "_of_nodes",
        "_rows",
        "counts",
        "held",
        "members",
        "nodes",
        "partition",
        "width",
        "within",
    )

    def __init__(
        self,
        partition: Partition,
        counts: NDArray[np.int32] | None,
        rows: Sequence[Sequence[int]],
        both: Sequence[tuple[list[int], list[int]]],
    ) -> None:
        self.held = [held for held, _ in both]
        self.within = [within for _, within in both]
        self.nodes = [within[-1] for within in self.within]
        self.width = max(map(len, rows), default=1)
        self._rows = rows
        self._both = both
        self.partition = partition
        self.counts = counts
        # Filled at the first read; threads that read at once find the same.
        self.members: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._of_nodes: NDArray[np.intp] | None = None
        self._every: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls,
        partition: Partition,
        counts: NDArray[np.int32] | None,
        rows: Sequence[Sequence[int]],
    ) -> Cells:
        """Look at the rows once; the arguments are those of the class."""
        return cls(partition, counts, rows, [_held_and_within(row) for row in rows])

    def changed(self, counts: NDArray[np.int32], changes: Sequence[CountChange]) -> Cells:
        """The cells after counts changed to these; what is known of the other cells is kept."""
        class_of = self.partition.ids.item
        rows, both = list(self._rows), list(self._both)
        members = self.members.copy()
        copied: dict[int, list[int]] = {}
        for slot, before, delta in changes:
            number, after = class_of(slot), before + delta
            if number < 0:
                continue
            row = copied.get(number)
            if row is None:
                row = rows[number] = copied[number] = list(rows[number])
            row += [0] * (after + 1 - len(row))
            row[before] -= 1
            row[after] += 1
            members.pop((number, before), None)
            members.pop((number, after), None)
        for number, row in copied.items():
            both[number] = _held_and_within(row)
        made = Cells(self.partition, counts, rows, both)
        made.members, made._every = members, self._every
        return made

    @classmethod
    def uncounted(cls, partition: Partition) -> Cells:
        """The cells of nodes without matching pods, made once for a partition."""
        made = partition.made.get("uncounted")
        if not isinstance(made, Cells):
            made = cls.of(partition, None, [(nodes,) for nodes in partition.nodes.tolist()])
            partition.made["uncounted"] = made
        return made

    @property
    def nbytes(self) -> int:
        """Bytes, about, of what it holds by now."""
        arrays = [each for each in (self._of_nodes, self._every) if each is not None]
        entries = sum(map(len, self.held)) + 2 * KEPT * len(self.members)
        held = 1024 + 64 * entries + 8 * sum(map(len, self._rows))
        return held + sum([each.nbytes for each in arrays])

    @property
    def of_nodes(self) -> NDArray[np.intp]:
        """[nodes] each node's cell, in the order of the names: class times width, plus own pods."""
        if self._of_nodes is None:
            partition = self.partition
            order = partition.order
            cell = partition.ids[order].astype(np.intp) * self.width
            if self.counts is not None:
                cell += self.counts[order]
            self._of_nodes = cell
        return self._of_nodes

    @property
    def every(self) -> NDArray[np.intp]:
        """[nodes] all positions in the order of the names."""
        if self._every is None:
            self._every = np.arange(self.of_nodes.size)
        return self._every


def _held_and_within(row: Sequence[int]) -> tuple[list[int], list[int]]:
    held = [n for n, nodes in enumerate(row) if nodes]
    within = list(accumulate([nodes for nodes in row if nodes]))
    return held or [0], within or [0]
