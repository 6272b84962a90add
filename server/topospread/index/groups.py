"""Groups: matching pods per slot for one (namespace, selector), an immutable version a change.

A new version is made without touching an array: it remembers the version it came from and the
differences. Counts are worked out when somebody asks, so that a group nobody asks about costs a
change next to nothing. Two threads that work them out at once get equal results; no lock is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topospread.spread.topology import GroupKey, Ints

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Hashable, Mapping

    from topospread.index.nodes import NodeTable
    from topospread.index.views import View

MAX_PENDING: Final = 512
"""Differences a version may carry before the builder works the counts out."""

MAX_VIEWS: Final = 64
"""Views kept a version: one a (eligibility, key) and one a partition in use."""

MAX_RESULTS: Final = 256
"""Results kept a version: a few a shape, and shapes that count one group differ in little."""

MAX_VIEW_BYTES: Final = 2 << 20
"""Of these, as soon as they are more than FEW_VIEWS."""

FEW_VIEWS: Final = 8

MAX_RESULT_BYTES: Final = 1 << 20
"""Of what the results of a version are kept for; what takes more than a quarter is not kept."""

OVERHEAD: Final = 1024
"""Bytes, about, of a group or a result beside its arrays."""

Counts = NDArray[np.int32]
_Views = dict["View", Ints]


class Group:
    """One version of a group's counts."""

    __slots__ = ("_base", "_base_views", "_counts", "_pending", "_views", "key", "memo", "use")

    def __init__(
        self,
        key: GroupKey,
        counts: Counts | None,
        use: LastUse,
        *,
        base: Counts | None = None,
        pending: Mapping[int, int] | None = None,
        base_views: tuple[NodeTable, _Views] | None = None,
    ) -> None:
        self.key = key
        self.use = use
        self.memo = Memo(use)
        self._counts = counts
        self._base = base
        self._pending: Mapping[int, int] = pending or {}
        self._base_views = base_views
        self._views: tuple[NodeTable, _Views] | None = None

    @property
    def size(self) -> int:
        """Bytes, about, of what this version holds by now."""
        size = OVERHEAD + self.memo.size + self.key.nbytes
        size += sum([each.nbytes for each in (self._counts, self._base) if each is not None])
        for views in (self._views, self._base_views):
            if views is not None:
                size += _held(views[1])
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

    def view(self, nodes: NodeTable, view: View) -> Ints:
        """The array of a view; from the version this one came from, where that had it."""
        views = self._views
        if views is None or views[0] is not nodes:
            views = self._views = (nodes, {})
        array = views[1].get(view)
        if array is None:
            array = self._derived(nodes, view)
            if array is None:
                array = view.build(nodes, self.counts(nodes.capacity))
            array.flags.writeable = False
            if len(views[1]) >= FEW_VIEWS and (
                len(views[1]) >= MAX_VIEWS or _held(views[1]) > MAX_VIEW_BYTES
            ):
                views[1].clear()
            views[1][view] = array
            self.use.grew()
        return array

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
                base_views=self._views,
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
            base_views=self._base_views,
        )

    def forget_views(self) -> None:
        """Let go of what was worked out for a node table that is not the current one any more.

        Old snapshots work it out again when they are asked. A group that nobody asks about would
        keep the table and all that is cached on it for as long as the group itself is kept.
        """
        self._views = self._base_views = None
        self.memo = Memo(self.use)

    def _derived(self, nodes: NodeTable, view: View) -> Ints | None:
        """From the version this one came from, if that has the view for this node table."""
        base_views = self._base_views
        if base_views is None or base_views[0] is not nodes:
            return None
        known = base_views[1].get(view)
        if known is None:
            return None
        array, base = known.copy(), self._base
        assert base is not None
        for slot, delta in self._pending.items():
            if delta and slot < nodes.capacity:
                before = int(base[slot]) if slot < base.size else 0
                array = view.follow(nodes, array, slot, before, delta)
        return array


class Memo:
    """Results that rest on one version; they go when it goes, or when there are too many."""

    __slots__ = ("_held", "_results", "_sizes", "_use")

    def __init__(self, use: LastUse) -> None:
        self._use = use
        self._results: dict[Hashable, object] = {}
        self._sizes: dict[Hashable, int] | None = None
        self._held = 0

    def get(self, key: Hashable) -> object:
        """What was kept; None when nothing was."""
        return self._results.get(key)

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
            self._results = {}
            self._held = size
        self._results[key] = result
        self._use.grew()


def _held(views: _Views) -> int:
    """Bytes, about, of views and what they are of."""
    return sum([view.nbytes + array.nbytes for view, array in views.copy().items()])


def _bytes_of(result: object) -> int:
    """Bytes, about, of what is a tuple or a list, and of those in it."""
    if not isinstance(result, (tuple, list)):
        return 0
    return 80 + 8 * len(result) + sum(map(_bytes_of, result))


class LastUse:
    """When a group was last asked for; shared by all its versions and written without a lock.

    Attributes:
        tick: the sequence of the snapshot that was asked.
        measured: whether the group holds no more than when its size was last looked at.
    """

    __slots__ = ("_grown", "_key", "measured", "tick")

    def __init__(self, tick: int, key: GroupKey, grown: deque[GroupKey]) -> None:
        """Begin as a group that was not measured.

        Args:
            tick: see above.
            key: of the group.
            grown: takes the key when the group holds more than it did.
        """
        self.tick = tick
        self.measured = False
        self._key = key
        self._grown = grown
        grown.append(key)

    def grew(self) -> None:
        """Have the group measured again."""
        if self.measured:
            self.measured = False
            self._grown.append(self._key)


def _resized(counts: Counts, capacity: int) -> Counts:
    """A writable copy with at least `capacity` slots."""
    copy = np.zeros(max(capacity, counts.size), dtype=np.int32)
    copy[: counts.size] = counts
    return copy
