"""Aggregates of a group's counts: what decisions read instead of one entry per node.

An aggregate is built once from the counts on all slots and then follows each change by touching one
or two entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from typing_extensions import override

from topospread.spread.cells import Cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.spread.cells import CountChange
    from topospread.spread.topology import Eligibility, Ints, Partition


class AggregateValue(Protocol):
    """What an aggregate gives."""

    @property
    def nbytes(self) -> int:
        """Bytes, about."""
        ...


Value = TypeVar("Value", bound=AggregateValue)


class Aggregate(Protocol[Value]):
    """A way to add counts up; equal aggregates of one node table give equal values."""

    def build(self, nodes: NodeTable, counts: NDArray[np.int32]) -> Value:
        """The value for [slots] counts."""
        ...

    def follow(
        self,
        nodes: NodeTable,
        former: Value,
        changes: Sequence[CountChange],
        counts: NDArray[np.int32],
    ) -> Value:
        """The value for [slots] counts, by what changed since the former one."""
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
        # Most groups are on few of the nodes.
        slots = np.flatnonzero(counts)
        slots = slots[nodes.mask(self.eligibility)[slots] & (domains.ids[slots] >= 0)]
        # bincount adds up as float64, which is exact far beyond any number of pods.
        array: Ints = np.bincount(
            domains.ids[slots], weights=counts[slots], minlength=len(domains.values)
        ).astype(np.int64)
        array.flags.writeable = False
        return array

    def follow(
        self,
        nodes: NodeTable,
        former: Ints,
        changes: Sequence[CountChange],
        counts: NDArray[np.int32],
    ) -> Ints:
        """One domain's count changes, if the node is eligible."""
        del counts
        array = former.copy()
        domain_of = nodes.domains(self.key).ids.item
        eligible = nodes.mask(self.eligibility).item
        for slot, _, delta in changes:
            domain = domain_of(slot)
            if domain >= 0 and eligible(slot):
                array[domain] += delta
        array.flags.writeable = False
        return array


@dataclass(frozen=True, slots=True)
class NodesByCount:
    """How many nodes of each class hold how many matching pods, and which."""

    partition: Partition

    @property
    def nbytes(self) -> int:
        """A part of the partition."""
        return 100 + self.partition.nbytes // 4

    def build(self, nodes: NodeTable, counts: NDArray[np.int32]) -> Cells:
        """Count the nodes; free slots are in no class."""
        del nodes
        ids = self.partition.ids
        held = ids >= 0
        own = counts[held]
        width = int(own.max(initial=0)) + 1
        cells = ids[held] * width + own
        size = self.partition.size
        rows = np.bincount(cells, minlength=size * width).reshape(size, width)
        return Cells.of(self.partition, counts, rows.tolist())

    def follow(
        self,
        nodes: NodeTable,
        former: Cells,
        changes: Sequence[CountChange],
        counts: NDArray[np.int32],
    ) -> Cells:
        """Nodes go from one cell to another."""
        del nodes
        return former.changed(counts, changes)
