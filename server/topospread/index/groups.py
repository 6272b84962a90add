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
    from collections.abc import Hashable, Mapping

    from topospread.index.nodes import NodeTable
    from topospread.index.views import View

MAX_PENDING: Final = 512
"""Differences a version may carry before the builder works the counts out."""

MAX_VIEWS: Final = 64
"""Views kept a version: one a (eligibility, key) and one a partition in use."""

MAX_RESULTS: Final = 256
"""Results kept a version: a few a shape, and shapes that count one group differ in little."""

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
        self.memo = Memo()
        self._counts = counts
        self._base = base
        self._pending: Mapping[int, int] = pending or {}
        self._base_views = base_views
        self._views: tuple[NodeTable, _Views] | None = None

    @property
    def size(self) -> int:
        """Bytes, about, of what this version holds by now."""
        size = OVERHEAD + self.memo.size
        size += sum([each.nbytes for each in (self._counts, self._base) if each is not None])
        for views in (self._views, self._base_views):
            if views is not None:
                size += sum([array.nbytes for array in views[1].copy().values()])
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
        if counts.size < capacity:
            counts = _resized(counts, capacity)
            counts.flags.writeable = False
            self._counts = counts
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
            if len(views[1]) >= MAX_VIEWS:
                views[1].clear()
            views[1][view] = array
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
        self.memo = Memo()

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

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: dict[Hashable, object] = {}

    def get(self, key: Hashable) -> object:
        """What was kept; None when nothing was."""
        return self._results.get(key)

    @property
    def size(self) -> int:
        """Bytes, about, of the results."""
        results = self._results.copy().values()
        return sum([getattr(result, "nbytes", OVERHEAD) for result in results])

    def put(self, key: Hashable, result: object) -> None:
        """Keep a result."""
        if len(self._results) >= MAX_RESULTS:
            self._results = {}
        self._results[key] = result


class LastUse:
    """When a group was last asked for; shared by all its versions and written without a lock."""

    __slots__ = ("tick",)

    def __init__(self, tick: int) -> None:
        self.tick = tick


def _resized(counts: Counts, capacity: int) -> Counts:
    """A writable copy with at least `capacity` slots."""
    copy = np.zeros(max(capacity, counts.size), dtype=np.int32)
    copy[: counts.size] = counts
    return copy
