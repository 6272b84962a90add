"""Groups: matching pods per slot for one (namespace, selector), one immutable version per change.

A new version is made without touching an array: it remembers the version it came from and the
differences. Counts are worked out at the first read, so that a change of a group that is not read
costs next to nothing. An aggregate, which decisions read instead of one entry per node, is built
once from the counts on all slots, and then follows each change by one or two entries. Two threads
that work counts out at once get equal results; no lock is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from topospread.spread.cells import Cells

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from topospread.index.nodes import NodeTable
    from topospread.spread.cells import CountChange, Partition
    from topospread.spread.topology import Eligibility, GroupKey, Ints

MAX_PENDING: Final = 512
"""Differences a version may carry before the builder works the counts out."""

MAX_AGGREGATES: Final = 64
"""Aggregates kept per version: one per (eligibility, key) and one per partition in use."""

MAX_RESULTS: Final = 256
"""Results kept per version: a few per shape, and shapes that count one group differ in little."""

MAX_AGGREGATE_BYTES: Final = 2 << 20
"""Bytes of them, as soon as they are more than FEW_AGGREGATES."""

FEW_AGGREGATES: Final = 8

MAX_RESULT_BYTES: Final = 1 << 20
"""Bytes of a version's results and their keys; a key of more than a quarter is not kept."""

OVERHEAD: Final = 1024
"""Bytes, about, of a group or a result beside its arrays."""

Counts = NDArray[np.int32]


class DomainCounts(NamedTuple):
    """[domains] matching pods on eligible nodes of each domain of a key."""

    eligibility: Eligibility
    key: str

    @property
    def nbytes(self) -> int:
        """The conditions on nodes, and the key."""
        return 100 + len(self.key) + self.eligibility.nbytes

    def build(self, nodes: NodeTable, counts: Counts) -> Ints:
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
        counts: Counts,
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


class NodesByCount(NamedTuple):
    """How many nodes of each class hold how many matching pods, and which."""

    partition: Partition

    @property
    def nbytes(self) -> int:
        """A part of the partition."""
        return 100 + self.partition.nbytes // 4

    def build(self, nodes: NodeTable, counts: Counts) -> Cells:
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
        counts: Counts,
    ) -> Cells:
        """Nodes go from one cell to another."""
        del nodes
        return former.changed(counts, changes)


Aggregate = DomainCounts | NodesByCount
"""A way to add counts up; equal ones of one node table give equal values."""

_Aggregates = dict[Aggregate, Any]


class Group:
    """One version of a group's counts."""

    __slots__ = (
        "_aggregates",
        "_base",
        "_base_aggregates",
        "_counts",
        "_pending",
        "key",
        "memo",
        "use",
    )

    def __init__(
        self,
        key: GroupKey,
        counts: Counts | None,
        use: GroupUsage,
        *,
        base: Counts | None = None,
        pending: Mapping[int, int] | None = None,
        base_aggregates: tuple[NodeTable, _Aggregates] | None = None,
    ) -> None:
        self.key = key
        self.use = use
        self.memo = ResultMemo(use)
        self._counts = counts
        self._base = base
        self._pending: Mapping[int, int] = pending or {}
        self._base_aggregates = base_aggregates
        self._aggregates: tuple[NodeTable, _Aggregates] | None = None

    @property
    def size(self) -> int:
        """Bytes, about, of what this version holds by now."""
        size = OVERHEAD + self.memo.size + self.key.nbytes
        size += sum([each.nbytes for each in (self._counts, self._base) if each is not None])
        for aggregates in (self._aggregates, self._base_aggregates):
            if aggregates is not None:
                size += _held(aggregates[1])
        return size

    def counts(self, capacity: int) -> Counts:
        """[capacity] matching pods on each slot."""
        counts = self._counts
        if counts is None:
            assert self._base is not None
            counts = _resized(self._base, max(capacity, 1 + max(self._pending, default=-1)))
            for slot, delta in self._pending.items():
                counts[slot] += delta
            counts.flags.writeable = False
            self._counts = counts
            self.use.grew()
        if counts.size < capacity:
            counts = _resized(counts, capacity)
            counts.flags.writeable = False
            self._counts = counts
            self.use.grew()
        # Slots beyond the table hold pods of nodes that are unknown at this revision.
        return counts if counts.size == capacity else counts[:capacity]

    @overload
    def aggregate(self, nodes: NodeTable, aggregate: DomainCounts) -> Ints: ...

    @overload
    def aggregate(self, nodes: NodeTable, aggregate: NodesByCount) -> Cells: ...

    def aggregate(self, nodes: NodeTable, aggregate: Aggregate) -> Any:
        """The value of an aggregate; derived from the previous version, where that has it."""
        aggregates = self._aggregates
        if aggregates is None or aggregates[0] is not nodes:
            aggregates = self._aggregates = (nodes, {})
        known = aggregates[1].get(aggregate)
        if known is not None:
            return known
        # Also where they are not looked at: the next version then derives from this one.
        counts = self.counts(nodes.capacity)
        value = self._derived(nodes, aggregate, counts)
        if value is None:
            value = aggregate.build(nodes, counts)
        if len(aggregates[1]) >= FEW_AGGREGATES and (
            len(aggregates[1]) >= MAX_AGGREGATES or _held(aggregates[1]) > MAX_AGGREGATE_BYTES
        ):
            aggregates[1].clear()
        aggregates[1][aggregate] = value
        self.use.grew()
        return value

    def changed(self, deltas: Mapping[int, int]) -> Group:
        """The next version; ``deltas`` maps slots to differences."""
        if self._counts is None and len(self._pending) > MAX_PENDING:
            self.counts(0)  # works all counts out, whatever part of them is asked for
        if self._counts is not None:
            return Group(
                self.key,
                None,
                self.use,
                base=self._counts,
                pending=deltas,
                base_aggregates=self._aggregates,
            )
        pending = dict(self._pending)
        for slot, delta in deltas.items():
            pending[slot] = pending.get(slot, 0) + delta
        return Group(
            self.key,
            None,
            self.use,
            base=self._base,
            pending=pending,
            base_aggregates=self._base_aggregates,
        )

    def drop_aggregates(self) -> None:
        """Drop what was worked out for a node table that is not the current one any more.

        Old snapshots work it out again when they are read. A group that is not read would keep
        the table and all that is cached on it for as long as the group itself is kept.
        """
        self._aggregates = self._base_aggregates = None
        self.memo = ResultMemo(self.use)

    def _derived(self, nodes: NodeTable, aggregate: Aggregate, counts: Counts) -> Any:
        """The value derived from the previous version, if that has it for this node table."""
        base_aggregates = self._base_aggregates
        if base_aggregates is None or base_aggregates[0] is not nodes:
            return None
        known = base_aggregates[1].get(aggregate)
        if known is None:
            return None
        base = self._base
        assert base is not None
        size, before = base.size, base.item
        changes = [
            (slot, before(slot) if slot < size else 0, delta)
            for slot, delta in self._pending.items()
            if delta and slot < nodes.capacity
        ]
        return aggregate.follow(nodes, known, changes, counts)


class ResultMemo:
    """Results that rest on one version; they go when it goes, or when there are too many.

    Attributes:
        get: the kept result of a key; None when there is none.
    """

    __slots__ = ("_held", "_results", "_sizes", "_use", "get")

    def __init__(self, use: GroupUsage) -> None:
        self._use = use
        self._clear()
        self._sizes: dict[Hashable, int] | None = None
        self._held = 0

    def _clear(self) -> None:
        self._results: dict[Hashable, object] = {}
        self.get: Callable[[Hashable], object] = self._results.get

    @property
    def size(self) -> int:
        """Bytes, about, of the results."""
        total = self._held
        results = self._results.copy()
        if self._sizes is None or len(self._sizes) > len(results):
            self._sizes = {}
        for key, result in results.items():
            size = getattr(result, "nbytes", None)
            if size is None and (size := self._sizes.get(key)) is None:
                size = self._sizes[key] = OVERHEAD + _bytes_of(result)
            total += size
        return total

    def put(self, key: Hashable, result: object, size: int | None = None) -> None:
        """Keep a result.

        Args:
            key: what it is for.
            result: what was worked out.
            size: bytes of the key, and of what the result's own size leaves out; None: as the
                key's first part says.
        """
        if size is None:
            size = getattr(key[0], "nbytes", 0) if isinstance(key, tuple) else 0
        if size > MAX_RESULT_BYTES // 4:
            return
        if key not in self._results:
            self._held += size
        if len(self._results) >= MAX_RESULTS or self._held > MAX_RESULT_BYTES:
            self._clear()
            self._held = size
        self._results[key] = result
        self._use.grew()


def _held(aggregates: _Aggregates) -> int:
    return sum([aggregate.nbytes + value.nbytes for aggregate, value in aggregates.copy().items()])


def _bytes_of(result: object) -> int:
    """Bytes, about, of a tuple or list with its elements; 0 of anything else."""
    if not isinstance(result, (tuple, list)):
        return 0
    return 80 + 8 * len(result) + sum(map(_bytes_of, result))


class GroupUsage:
    """The time of a group's last use; shared by all its versions and written without a lock.

    Attributes:
        last_used: the sequence of the snapshot that was asked.
        measured: whether the group holds no more than when its size was last looked at.
    """

    __slots__ = ("_grown", "_key", "last_used", "measured")

    def __init__(self, last_used: int, key: GroupKey, grown: deque[GroupKey]) -> None:
        self.last_used = last_used
        self.measured = False
        self._key = key
        self._grown = grown
        grown.append(key)

    def grew(self) -> None:
        """Request that the group is measured again."""
        if self.measured:
            self.measured = False
            self._grown.append(self._key)


def _resized(counts: Counts, capacity: int) -> Counts:
    """A writable copy with at least `capacity` slots."""
    if counts.size >= capacity:
        # NumPy releases the interpreter's lock to copy so much: a wait for other threads each time.
        return np.frombuffer(bytearray(counts.data), dtype=np.int32)
    copy = np.zeros(capacity, dtype=np.int32)
    copy[: counts.size] = counts
    return copy
