"""The builder: folds changes into the next snapshot.

One thread folds; decision threads only read snapshots. The one exception is a selector that is
asked for the first time: its caller counts it here under the lock that folding holds, and gets the
snapshot that has it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.cache import GROUP_BYTES, Budget
from topospread.index.attached import AttachedVolumes
from topospread.index.changes import (
    IndexChange,
    KindChange,
    NodeChange,
    ObjectChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    UnreadableChange,
    VersionChange,
)
from topospread.index.groups import Group, GroupUsage
from topospread.index.holdings import NO_HOLDINGS
from topospread.index.nodes import NodeTable
from topospread.index.objects import NO_OBJECTS
from topospread.index.pod_classes import LabelSets, PodClasses
from topospread.index.pods import NodeSlots, Place, PodTable, SortedSlots
from topospread.index.snapshot import (
    NO_RESERVATIONS,
    NO_USAGE,
    NO_WORKLOADS,
    NamespaceWorkloads,
    Snapshot,
    taken_by,
)
from topospread.kube.workloads import CONTROLLED, JOB
from topospread.spread.settings import NEWEST, known_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from topospread.index.changes import WorkloadChange
    from topospread.index.holdings import Held
    from topospread.index.objects import ObjectPlace
    from topospread.index.pod_classes import NamespaceClasses
    from topospread.index.pods import PodMembers
    from topospread.index.postings import LabelSet
    from topospread.index.snapshot import Counted
    from topospread.kube.demands import Holds, Requests
    from topospread.kube.objects import Node, Workload
    from topospread.kube.versions import KubernetesVersion
    from topospread.kube.volumes import ClusterValue
    from topospread.kube.workloads import KnownControllers
    from topospread.spread.topology import GroupKey

CHANGES_PER_YIELD: Final = 50
"""Changes between two calls of `yield_control`: a Python loop that keeps the interpreter makes
every array operation of the decision threads wait for its switch interval."""

FEW_GROUPS: Final = 32
"""Groups up to which each looks through all pods: to sort these costs as much as some dozens."""

FEW_LABEL_SETS: Final = 64
"""Label sets of a group whose pods are gathered one set after the other."""

LARGE_GROUP_PART: Final = 16
"""A group that takes more than this part of the bytes is large."""


class Builder:
    """Keeps one cluster's counts in step with its changes.

    Attributes:
        snapshot: the newest published state; swapped whole, read without a lock.
    """

    def __init__(
        self,
        *,
        max_groups: int = 4096,
        budget: Budget | None = None,
        yield_control: Callable[[], None] = lambda: None,
        version: KubernetesVersion = NEWEST,
    ) -> None:
        self._lock = threading.Lock()
        self._max_groups = max_groups
        self._budget = budget or Budget(GROUP_BYTES)
        self._yield_control = yield_control
        self._pods = PodTable()
        self._labels = LabelSets()
        self._classes = PodClasses()
        self._slots = NodeSlots()
        self._groups: dict[GroupKey, Group] = {}
        self._grown: deque[GroupKey] = deque()
        self._sizes: dict[GroupKey, int] = {}
        self._large: dict[GroupKey, int] = {}
        self._measured = 0
        self._shrank = False
        self._workloads: dict[str, NamespaceWorkloads] = {}
        self._controllers: dict[str, KnownControllers] = {}
        self._jobs = 0
        self._reservations = NO_RESERVATIONS
        self._usage = NO_USAGE
        self._objects = NO_OBJECTS
        self._holdings = NO_HOLDINGS
        self._nominated: Mapping[str, PodRow] = {}
        self._unreadable: tuple[tuple[str, str, str], ...] = ()
        self._pod_classes: Mapping[str, NamespaceClasses] = {}
        self._origin = object()
        self._version_unless_reported = version
        self._reported_version: KubernetesVersion | None = None
        self._attached = AttachedVolumes()
        empty = NodeTable(0, ())
        self.snapshot = Snapshot(0, empty, {}, {}, 0, origin=self._origin, version=version)
        self._budget.add(self)

    @property
    def size(self) -> int:
        """Bytes of the groups as far as they were measured, with what label sets have of them."""
        return self._measured + self._labels.size

    # ------------------------------ folding

    def fold(self, changes: Iterable[IndexChange]) -> Snapshot:
        """Apply changes in order and publish the state after the last one."""
        with self._lock:
            batch = _Batch()
            for position, change in enumerate(changes):
                if position % CHANGES_PER_YIELD == CHANGES_PER_YIELD - 1:
                    self._yield_control()
                if isinstance(change, PodChange):
                    key = f"{change.namespace}/{change.name}"
                    self._fold_row(key, change.namespace, change.row, batch)
                elif isinstance(change, ReservationChange):
                    self._fold_reservation(change, batch)
                elif isinstance(change, NodeChange):
                    self._fold_node(change, batch)
                elif isinstance(change, VersionChange):
                    self._reported_version = change.version
                elif isinstance(change, ObjectChange):
                    batch.objects[change.kind, change.namespace, change.name] = change.value
                elif isinstance(change, KindChange):
                    batch.unknown[change.kind] = change.unknown
                elif isinstance(change, UnreadableChange):
                    batch.unreadable[change.key] = change.unreadable
                else:
                    self._fold_workload(change, batch)
            if batch.controllers:
                self._change_controllers(batch)
            if batch.workloads:
                self._change_workloads(batch)
            return self._publish(batch)

    def _fold_reservation(self, change: ReservationChange, batch: _Batch) -> None:
        held = f"{change.namespace}/{change.name}"
        row = change.row
        batch.reservations[held] = row
        counted = None
        if row is not None:
            counted = PodRow(
                row.labels, row.node_name, counted=True, requests=row.requests, holds=row.holds
            )
        # A key that no pod has: it counts beside its pod, whatever becomes of that.
        self._fold_row(f"{held}/", change.namespace, counted, batch)

    def _fold_row(self, key: str, namespace: str, row: PodRow | None, batch: _Batch) -> None:
        before = self._pods.place(key)
        after = None
        nominated = None if row is None else row.nominated
        if nominated is not None or key in self._nominated or key in batch.nominated:
            batch.nominated[key] = nominated
        if row is None:
            self._pods.remove(key)
        else:
            after = self._place(namespace, row)
            self._pods.put(key, after)
        if before == after:
            return
        # The new place first, so that what both use is not freed in between.
        if after is not None:
            if after.slot >= 0:
                self._slots.acquire(after.slot)
            self._add_delta(after, 1, batch)
        if before is not None:
            self._add_delta(before, -1, batch)
            if before.slot >= 0:
                self._slots.release(before.slot)

    def _add_delta(self, place: Place, delta: int, batch: _Batch) -> None:
        if place.requests is not None:
            batch.use(place.slot, place.requests, place.holds, delta)
        if place.label_set >= 0:
            batch.add((place.label_set, place.slot), delta)
            labels = self._labels.by_number(place.label_set)
            labels.pods += delta
            if not labels.pods:
                batch.abandoned.add(labels)
        if place.pod_class >= 0:
            batch.count(place.pod_class, delta, pending=place.label_set < 0)

    def _place(self, namespace: str, row: PodRow) -> Place | None:
        number = -1
        if row.template is not None:
            number = self._classes.intern(namespace, row.template, row.labels).number
        if not row.counted and row.requests is None:
            return None if number < 0 else Place(-1, -1, None, number)
        labels = self._labels.intern(namespace, row.labels, terminating=not row.counted)
        slot = self._slots.of(row.node_name)
        return Place(slot, labels.number, row.requests, number, row.holds)

    def _fold_node(self, change: NodeChange, batch: _Batch) -> None:
        slot = self._slots.of(change.name)
        known = batch.nodes.get(slot, self._node_at(slot))
        if known is None and change.node is not None:
            self._slots.acquire(slot)
        elif known is not None and change.node is None:
            self._slots.release(slot)
        if known != change.node:
            batch.nodes[slot] = change.node
        self._slots.reclaim(slot)

    def _node_at(self, slot: int) -> Node | None:
        nodes = self.snapshot.nodes
        return nodes.node(slot) if slot < nodes.capacity else None

    def _fold_workload(self, change: WorkloadChange, batch: _Batch) -> None:
        place, workload = (change.kind, change.name), change.workload
        if change.kind in CONTROLLED:
            batch.controllers.setdefault(change.namespace, {})[place] = workload
        if change.kind != JOB:
            # What pods are spread by does not change with jobs, which come and go.
            batch.workloads.setdefault(change.namespace, {})[place] = workload

    def _change_controllers(self, batch: _Batch) -> None:
        self._controllers = dict(self._controllers)
        for name, rows in batch.controllers.items():
            known = self._controllers.get(name, {})
            gone = [place for place, workload in rows.items() if not workload and place in known]
            new = {
                place: workload.controller
                for place, workload in rows.items()
                if workload and (place not in known or known[place] != workload.controller)
            }
            if not (gone or new):
                continue
            changed = {**known, **new}
            added = [place for place in new if place not in known]
            self._jobs += sum(kind == JOB for kind, _ in added)
            self._jobs -= sum(kind == JOB for kind, _ in gone)
            for place in gone:
                del changed[place]
            self._controllers[name] = changed
            if not changed:
                del self._controllers[name]

    def _change_workloads(self, batch: _Batch) -> None:
        """Make each namespace anew once, whose workloads are many."""
        self._workloads = dict(self._workloads)
        for name, rows in batch.workloads.items():
            changed = self._workloads.get(name, NO_WORKLOADS).changed(rows)
            if changed.objects:
                self._workloads[name] = changed
            else:
                self._workloads.pop(name, None)

    def _publish(self, batch: _Batch) -> Snapshot:
        by_group: dict[GroupKey, dict[int, int]] = {}
        for (number, slot), delta in batch.deltas.items():
            if delta:
                for group in self._labels.by_number(number).groups:
                    differences = by_group.setdefault(group, {})
                    differences[slot] = differences.get(slot, 0) + delta
        if by_group:
            self._groups = dict(self._groups)
            for group, differences in by_group.items():
                self._groups[group] = self._groups[group].changed(differences)
        for labels in batch.abandoned:
            if not labels.pods:
                self._labels.release(labels)
        if batch.reservations:
            self._reservations = self._reservations.changed(batch.reservations)
        if batch.classes:
            self._pod_classes = self._classes.changed(self._pod_classes, batch.classes)
        if batch.used:
            self._usage = self._usage.changed(batch.used)
        if batch.objects or batch.unknown:
            self._objects = self._objects.changed(batch.objects, batch.unknown)
        if batch.held:
            self._holdings = self._holdings.changed(batch.held)
        if batch.nominated:
            rows = {**self._nominated, **batch.nominated}
            self._nominated = {pod: row for pod, row in rows.items() if row is not None}
        if batch.unreadable:
            now = {key for key, unreadable in batch.unreadable.items() if unreadable}
            before = set(self._unreadable).difference(batch.unreadable)
            self._unreadable = tuple(sorted(before | now))
        nodes = self.snapshot.nodes
        if batch.nodes:
            nodes = nodes.changed(batch.nodes, self._slots.capacity)
            self.snapshot.nodes.forget()
            for kept in self._groups.values():
                kept.drop_aggregates()
            self._shrank = True
        return self._swap(nodes)

    def is_counted(self, namespace: str, name: str) -> bool:
        """Whether a pod is bound and counts, as of the last fold or the one under way."""
        place = self._pods.place(f"{namespace}/{name}")
        if place is None or place.label_set < 0:
            return False
        return not self._labels.by_number(place.label_set).terminating

    def members(self) -> PodMembers:
        """The pods of the newest snapshot by class."""
        with self._lock:
            return self._pods.members(self._classes.numbered, self._slots.names)

    # ------------------------------ groups

    def ensure_counted(self, groups: Iterable[GroupKey]) -> Snapshot:
        """Count groups that are not kept yet; returns a snapshot with them, perhaps a newer one.

        At most `max_groups` are kept, and no more than the budget has room for: those asked for
        least recently go, but never one of this call, so that a caller that asks for more than that
        gets its snapshot, too.
        """
        with self._lock:
            asked = frozenset(groups)
            missing = self.snapshot.missing(asked)
            surplus = len(self._groups) + len(missing) - self._max_groups
            if surplus > 0:
                # First, so that there are no more than that at any time.
                self._evict(asked, surplus)
            self._evict_bytes(asked)
            kept = dict(self._groups)
            by_label_set = self._pods.sorted() if len(missing) > FEW_GROUPS else None
            for group in missing:
                kept[group] = self._count(group, by_label_set)
            self._groups = kept
            return self._swap(self.snapshot.nodes)

    def _count(self, group: GroupKey, by_label_set: SortedSlots | None) -> Group:
        label_sets = [labels.number for labels in self._labels.watch(group)]
        capacity = self._slots.capacity
        if by_label_set is not None and len(label_sets) <= FEW_LABEL_SETS:
            counts = by_label_set.count(label_sets, capacity)
        else:
            marks = np.zeros(len(self._labels) + 1, dtype=np.bool_)
            marks[label_sets] = True
            counts = self._pods.count(marks, capacity)
        return Group(group, counts, GroupUsage(self.snapshot.sequence + 1, group, self._grown))

    def _evict(self, asked: frozenset[GroupKey], surplus: int) -> None:
        others = (group for key, group in self._groups.items() if key not in asked)
        oldest_first = sorted(others, key=lambda group: group.use.last_used)
        # A tenth at once, so that a stream of new selectors does not sort at every one.
        surplus += self._max_groups // 10
        gone = {group.key for group in oldest_first[:surplus]}
        self._budget.evicted += len(gone)
        self._forget(gone)

    def _evict_bytes(self, asked: frozenset[GroupKey]) -> None:
        while self._grown:
            self._measure(self._grown.popleft())
        if self.size > self._budget.most and self._shrank:
            self._shrank = False
            for key in self._groups:
                self._measure(key)
        # Large ones have a quarter for themselves, as in other caches.
        left = sum(self._large.values()) - self._budget.most // 4
        if left > 0:
            for key in sorted(
                self._large.keys() - asked, key=lambda k: self._groups[k].use.last_used
            ):
                left -= self._large[key]
                self._budget.evicted += 1
                self._forget({key})
                if left <= 0:
                    break
        if self.size <= self._budget.most:
            return
        # A tenth at once here, too.
        surplus = self.size - self._budget.most * 9 // 10
        others = [group for key, group in self._groups.items() if key not in asked]
        gone: set[GroupKey] = set()
        for group in sorted(others, key=lambda group: group.use.last_used):
            if surplus <= 0:
                break
            gone.add(group.key)
            surplus -= self._sizes.get(group.key, 0) + self._labels.held_by(group.key)
        self._budget.evicted += len(gone)
        self._forget(gone)

    def _measure(self, key: GroupKey) -> None:
        group = self._groups.get(key)
        if group is not None:
            group.use.measured = True  # first, so that what comes meanwhile is looked at again
            size = group.size
            self._measured += size - self._sizes.get(key, 0)
            self._sizes[key] = size
            size += self._labels.held_by(key)
            if size > self._budget.most // LARGE_GROUP_PART:
                self._large[key] = size

    def drop_idle(self, before: int) -> Snapshot:
        """Drop the groups that were last asked for before a snapshot with this sequence.

        The next call that asks for one has it counted anew. A snapshot is published in any case, so
        that uses from now on can be distinguished from those so far.
        """
        with self._lock:
            self._forget({key for key, kept in self._groups.items() if kept.use.last_used < before})
            self._evict_bytes(frozenset())
            return self._swap(self.snapshot.nodes)

    def _forget(self, gone: AbstractSet[GroupKey]) -> None:
        for key in gone:
            self._labels.unwatch(key)
            self._measured -= self._sizes.pop(key, 0)
            self._large.pop(key, None)
        if gone:
            kept = self._groups.items()
            self._groups = {key: group for key, group in kept if key not in gone}

    def _swap(self, nodes: NodeTable) -> Snapshot:
        reported = self._reported_version
        self.snapshot = Snapshot(
            self.snapshot.sequence + 1,
            nodes,
            self._groups,
            self._workloads,
            len(self._pods) - len(self._reservations),
            self._reservations,
            self._usage,
            self._slots.capacity,
            self._labels.live,
            self._pod_classes,
            self._origin,
            holdings=self._holdings,
            nominated=self._nominated,
            objects=self._objects,
            attached=self._attached,
            version=self._version_unless_reported if reported is None else known_version(reported),
            reported_version=reported,
            controllers=self._controllers,
            jobs=self._jobs,
            unreadable=self._unreadable,
        )
        return self.snapshot


class _Batch:
    __slots__ = (
        "abandoned",
        "classes",
        "controllers",
        "deltas",
        "held",
        "nodes",
        "nominated",
        "objects",
        "reservations",
        "unknown",
        "unreadable",
        "used",
        "workloads",
    )

    def __init__(self) -> None:
        self.deltas: dict[tuple[int, int], int] = {}
        self.nodes: dict[int, Node | None] = {}
        self.reservations: dict[str, ReservationRow | None] = {}
        self.used: dict[tuple[Counted, int], int] = {}
        self.held: list[Held] = []
        self.nominated: dict[str, PodRow | None] = {}
        self.abandoned: set[LabelSet] = set()
        self.classes: dict[int, list[int]] = {}
        self.workloads: dict[str, dict[tuple[str, str], Workload | None]] = {}
        self.controllers: dict[str, dict[tuple[str, str], Workload | None]] = {}
        self.objects: dict[ObjectPlace, ClusterValue | None] = {}
        self.unknown: dict[str, str] = {}
        self.unreadable: dict[tuple[str, str, str], bool] = {}

    def add(self, counts_for: tuple[int, int], delta: int) -> None:
        self.deltas[counts_for] = self.deltas.get(counts_for, 0) + delta

    def count(self, pod_class: int, delta: int, *, pending: bool) -> None:
        counts = self.classes.get(pod_class)
        if counts is None:
            counts = self.classes[pod_class] = [0, 0]
        counts[pending] += delta

    def use(self, slot: int, requests: Requests, holds: Holds | None, delta: int) -> None:
        for resource, amount in taken_by(requests, holds):
            here = (resource, slot)
            self.used[here] = self.used.get(here, 0) + delta * amount
        if holds is not None:
            self.held.append((slot, holds, delta))
