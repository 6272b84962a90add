"""Cells: the nodes of one class that hold the same number of matching pods."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.spread.topology import Partition

SLICE: Final = 256
"""Slots that are compared at once; NumPy holds the interpreter's lock up to some 500."""

KEPT: Final = 8
"""Members kept per cell: five nodes are named by default."""


class Cells:
    """The cells of a partition's nodes, for one version of a group's counts.

    Attributes:
        held: [classes] the numbers of matching pods that nodes hold, ascending; 0 where no node is.
        within: [classes][as held] nodes that hold at most so many.
        nodes: [classes] all nodes.
        width: one more than the most that any node holds.
    """

    __slots__ = (
        "_counts",
        "_every",
        "_members",
        "_of_nodes",
        "_partition",
        "held",
        "nodes",
        "width",
        "within",
    )

    def __init__(
        self,
        partition: Partition,
        rows: Sequence[Sequence[int]],
        counts: NDArray[np.int32] | None,
    ) -> None:
        """Look at the rows once.

        Args:
            partition: the nodes by class.
            rows: [classes][n] nodes that hold n matching pods.
            counts: [slots] matching pods; None: nothing is counted, all nodes hold 0.
        """
        self.held = [[n for n, nodes in enumerate(row) if nodes] or [0] for row in rows]
        self.within = [list(accumulate([nodes for nodes in row if nodes])) or [0] for row in rows]
        self.nodes = [within[-1] for within in self.within]
        self.width = max(map(len, rows), default=1)
        self._partition = partition
        self._counts = counts
        # Filled at the first read; threads that read at once find the same.
        self._members: dict[tuple[int, int], list[int]] = {}
        self._of_nodes: NDArray[np.intp] | None = None
        self._every: NDArray[np.intp] | None = None

    @classmethod
    def uncounted(cls, partition: Partition) -> Cells:
        """The cells of nodes without matching pods, made once for a partition."""
        made = partition.made.get("uncounted")
        if not isinstance(made, Cells):
            made = cls(partition, [(nodes,) for nodes in partition.nodes.tolist()], None)
            partition.made["uncounted"] = made
        return made

    @property
    def nbytes(self) -> int:
        """Bytes, about, of what it holds by now."""
        arrays = [each for each in (self._of_nodes, self._every) if each is not None]
        entries = sum(map(len, self.held)) + KEPT * len(self._members)
        return 1024 + 64 * entries + sum([each.nbytes for each in arrays])

    @property
    def of_nodes(self) -> NDArray[np.intp]:
        """[nodes] each node's cell, in the order of the names: class times width, plus own pods."""
        if self._of_nodes is None:
            partition = self._partition
            order = partition.order
            cell = partition.ids[order].astype(np.intp) * self.width
            if self._counts is not None:
                cell += self._counts[order]
            self._of_nodes = cell
        return self._of_nodes

    @property
    def every(self) -> NDArray[np.intp]:
        """[nodes] all positions in the order of the names."""
        if self._every is None:
            self._every = np.arange(self.of_nodes.size)
        return self._every

    def members(self, number: int, own: int, count: int) -> list[int]:
        """The first slots of a cell, by name.

        Args:
            number: of the class.
            own: matching pods that each node holds.
            count: slots wanted, if there are so many.
        """
        if count > KEPT:
            return self._look(number, own, count)
        known = self._members.get((number, own))
        if known is None:
            known = self._members[number, own] = self._look(number, own, KEPT)
        return known[:count]

    def _look(self, number: int, own: int, count: int) -> list[int]:
        slots = self._partition.members[number]
        if self._counts is None:
            first: list[int] = slots[:count].tolist()
            return first
        found: list[int] = []
        # In slices, because the first few are nearly always in the first one, and because NumPy
        # releases the interpreter's lock over longer arrays: a wait for other threads each time.
        for begin in range(0, slots.size, SLICE):
            part = slots[begin : begin + SLICE]
            found += part[self._counts[part] == own].tolist()
            if len(found) >= count:
                break
        return found[:count]
