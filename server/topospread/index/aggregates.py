"""Aggregates of a group's counts: small arrays that decisions read instead of one entry per node.

An aggregate is built once from the counts on all slots and then follows each change by touching one
or two entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.spread.topology import Eligibility, Ints, Partition


class Aggregate(Protocol):
    """A way to make an array of counts; equal aggregates of one node table give equal arrays."""

    def build(self, nodes: NodeTable, counts: NDArray[np.int32]) -> Ints:
        """The array for [slots] counts."""
        ...

    def follow(self, nodes: NodeTable, array: Ints, slot: int, before: int, delta: int) -> Ints:
        """The array after one slot's count changed: `array` itself, or a longer one."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes, about, of what it refers to; a part, if others refer to it, too."""
        ...

    @override
    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """[domains] matching pods on eligible nodes of each domain of a key."""

    eligibility: Eligibility
    key: str

    @property
    def nbytes(self) -> int:
        """The conditions on nodes, and the key."""
        return 100 + len(self.key) + self.eligibility.nbytes

    def build(self, nodes: NodeTable, counts: NDArray[np.int32]) -> Ints:
        """Add up by domain."""
        domains = nodes.domains(self.key)
        counted = nodes.mask(self.eligibility) & (domains.ids >= 0)
        # bincount adds up as float64, which is exact far beyond any number of pods.
        return np.bincount(
            domains.ids[counted], weights=counts[counted], minlength=len(domains.values)
        ).astype(np.int64)

    def follow(self, nodes: NodeTable, array: Ints, slot: int, before: int, delta: int) -> Ints:
        """One domain's count changes, if the node is eligible."""
        del before
        domain = nodes.domains(self.key).ids[slot]
        if domain >= 0 and nodes.mask(self.eligibility)[slot]:
            array[domain] += delta
        return array


@dataclass(frozen=True, slots=True)
class CountOfCounts:
    """[classes, counts] how many nodes of each class hold so many matching pods."""

    partition: Partition

    @property
    def nbytes(self) -> int:
        """A part of the partition."""
        return 100 + self.partition.nbytes // 16

    def build(self, nodes: NodeTable, counts: NDArray[np.int32]) -> Ints:
        """Count the nodes; free slots are in no class."""
        del nodes
        ids = self.partition.ids
        held = ids >= 0
        own = counts[held]
        width = int(own.max(initial=0)) + 2  # room for the next pod without a longer array
        cells = ids[held] * width + own
        size = self.partition.size
        return np.bincount(cells, minlength=size * width).reshape(size, width)

    def follow(self, nodes: NodeTable, array: Ints, slot: int, before: int, delta: int) -> Ints:
        """One node goes from one count to another."""
        del nodes
        node_class = self.partition.ids[slot]
        if node_class < 0:
            return array
        after = before + delta
        if after >= array.shape[1]:
            longer = np.zeros((array.shape[0], after + 2), dtype=np.int64)
            longer[:, : array.shape[1]] = array
            array = longer
        array[node_class, before] -= 1
        array[node_class, after] += 1
        return array
