"""One immutable state of a cluster: what decisions are computed from.

Besides the nodes and the counts it has reservations, usage (what the pods on each node take of its
resources) and workloads. The next version of each copies what changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.index.groups import DomainCounts, NodesByCount
from topospread.kube.workloads import SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from topospread.index.changes import PodRow, ReservationRow
    from topospread.index.groups import Group, ResultMemo
    from topospread.index.nodes import NodeTable
    from topospread.index.pod_classes import NamespaceClasses
    from topospread.kube.objects import Workload
    from topospread.spread.cells import Cells, Partition
    from topospread.spread.topology import (
        Bools,
        Domains,
        Eligibility,
        GroupKey,
        Ints,
        Membership,
        Traits,
    )


MAX_PENDING: Final = 512
"""Differences a version may carry before the amounts are worked out."""

SPARSE: Final = 8
"""Slots up to which a resource has no array: pods may name resources that no others do."""

PODS: Final = "pods"

_WRAP: Final = 1 << 64


class Usage:
    """One version of all amounts, in the scheduler's units, by resource and slot."""

    __slots__ = ("_base", "_made", "_pending", "_size")

    def __init__(
        self, base: Mapping[str, Ints], pending: Mapping[str, Mapping[int, int]], size: int
    ) -> None:
        self._base = base
        self._pending = pending
        self._size = size
        self._made: dict[str, Ints] = {}

    def taken(self, resource: str, capacity: int) -> Ints:
        """[capacity] the amount of a resource that is taken on each slot."""
        amounts = self._made.get(resource)
        if amounts is None and resource not in self._base and resource not in self._pending:
            # No pod takes any: callers may ask for whatever they like, and it is not kept.
            return np.zeros(capacity, dtype=np.int64)
        if amounts is None or amounts.size < capacity:
            amounts = self._worked_out(resource, capacity)
            amounts.flags.writeable = False
            self._made[resource] = amounts
        return amounts if amounts.size == capacity else amounts[:capacity]

    def on(self, slot: int) -> dict[str, int]:
        """The amounts taken on one slot, by resource; without those of which nothing is."""
        taken = {
            name: int(self.taken(name, slot + 1)[slot]) for name in (*self._base, *self._pending)
        }
        return {name: amount for name, amount in taken.items() if amount}

    def changed(self, differences: Mapping[tuple[str, int], int]) -> Usage:
        """The next version; ``differences`` maps (resource, slot) to an amount."""
        base, pending, size = self._base, self._pending, self._size
        if size > MAX_PENDING:
            pending = {
                name: left
                for name, held in pending.items()
                if (left := {slot: amount for slot, amount in held.items() if amount})
            }
            size = 0
            for name, held in pending.items():
                if len(held) > SPARSE or name in base:
                    self.taken(name, 0)  # works all amounts out, whatever part is asked for
        made = dict(self._made)
        if made:
            # Amounts that were read are built upon.
            base = {name: amounts for name, amounts in {**base, **made}.items() if amounts.any()}
            pending = {name: by_slot for name, by_slot in pending.items() if name not in made}
        changed = dict(pending)
        own: dict[str, dict[int, int]] = {}
        for (resource, slot), amount in differences.items():
            by_slot = own.get(resource)
            if by_slot is None:
                by_slot = own[resource] = dict(changed.get(resource, ()))
            by_slot[slot] = by_slot.get(slot, 0) + amount
        changed |= own
        return Usage(base, changed, size + len(differences))

    def _worked_out(self, resource: str, capacity: int) -> Ints:
        base, pending = self._base.get(resource), self._pending.get(resource, {})
        held = 0 if base is None else base.size
        amounts = np.zeros(max(capacity, held, 1 + max(pending, default=-1)), dtype=np.int64)
        if base is not None:
            amounts[:held] = base
        # Wrapping around is what can be undone, should thousands ask for more than there is of any
        # resource in the world.
        wrapped = amounts.view(np.uint64)
        for slot, amount in pending.items():
            wrapped[slot] = (int(wrapped[slot]) + amount) % _WRAP
        return amounts


NO_USAGE: Final = Usage({}, {}, 0)


_PARTS: Final = 256
"""Some ten thousand reservations stand at most; a change then copies a hundred entries."""

_Part = dict[str, "ReservationRow"]
_EMPTY: Final[_Part] = {}


class Reservations:
    """The reservation of each pod; pods are named ``namespace/name``."""

    __slots__ = ("_parts", "size")

    def __init__(self, parts: tuple[_Part, ...] = (_EMPTY,) * _PARTS, size: int = 0) -> None:
        self._parts = parts
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[str, ReservationRow]]:
        """All of them with their pods, in no order."""
        for part in self._parts:
            yield from part.items()

    def get(self, pod: str) -> ReservationRow | None:
        """The reservation for a pod, whatever its uid."""
        return self._parts[hash(pod) % _PARTS].get(pod)

    def of(self, namespace: str, name: str, uid: str) -> ReservationRow | None:
        """The reservation for the pod with this name, if its uid is equal or unknown."""
        row = self.get(f"{namespace}/{name}")
        return row if row is not None and row.is_for(uid) else None

    def changed(self, rows: Mapping[str, ReservationRow | None]) -> Reservations:
        """The next version; None ends a reservation."""
        parts = list(self._parts)
        copied: set[int] = set()
        size = self.size
        for pod, row in rows.items():
            number = hash(pod) % _PARTS
            if number not in copied:
                copied.add(number)
                parts[number] = dict(parts[number])
            part = parts[number]
            size -= pod in part
            if row is None:
                part.pop(pod, None)
            else:
                part[pod] = row
                size += 1
        return Reservations(tuple(parts), size)


NO_RESERVATIONS: Final = Reservations()


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Nodes, counts and workloads at one revision; a spread.topology.Topology.

    Counts of a group that is not kept are a KeyError; see :meth:`missing`.

    Attributes:
        sequence: grows with every publication by one builder; for caches.
        groups: the groups that are kept; ask the builder to
            :meth:`~topospread.index.builder.Builder.ensure_counted` others.
        workloads: by namespace.
        pods: how many pods are known, counted or not.
        reservations: places reserved for pods; they are in the counts.
        usage: what pods and reservations take of their nodes' resources.
        slots: how many slots nodes and pods may be on; from here on they are free for sure.
        label_sets: how many different sets of labels the counted pods of a namespace have, over all
            namespaces.
        pod_classes: by namespace, those that have pods; without reservations and without what is
            hypothetical.
        origin: the same for all snapshots of one builder.
    """

    sequence: int
    nodes: NodeTable
    groups: Mapping[GroupKey, Group]
    workloads: Mapping[str, NamespaceWorkloads]
    pods: int
    reservations: Reservations = NO_RESERVATIONS
    usage: Usage = NO_USAGE
    slots: int = 0
    label_sets: int = 0
    pod_classes: Mapping[str, NamespaceClasses] = field(default_factory=dict)
    origin: object = None

    @property
    def alive(self) -> Bools:
        """[slots] whether the slot holds a node."""
        return self.nodes.alive

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return self.nodes.count

    @property
    def workload_count(self) -> int:
        """The number of workloads."""
        return sum(len(namespace.objects) for namespace in self.workloads.values())

    def slot(self, name: str) -> int:
        """The slot of a node; −1 when there is none of that name."""
        return self.nodes.slot(name)

    def domains(self, key: str) -> Domains:
        """The domains of a topology key."""
        return self.nodes.domains(key)

    def mask(self, eligibility: Eligibility) -> Bools:
        """[slots] whether the node is eligible."""
        return self.nodes.mask(eligibility)

    def membership(self, eligibility: Eligibility, key: str) -> Membership:
        """The eligible nodes by domain."""
        return self.nodes.membership(eligibility, key)

    def node_counts(self, group: GroupKey) -> NDArray[np.int32]:
        """[slots] matching pods on each slot."""
        return self.groups[group].counts(self.nodes.capacity)

    def domain_counts(self, group: GroupKey, eligibility: Eligibility, key: str) -> Ints:
        """[domains] matching pods on eligible nodes of each domain."""
        return self.groups[group].aggregate(self.nodes, DomainCounts(eligibility, key))

    def partition(self, traits: Traits) -> Partition:
        """The nodes by class."""
        return self.nodes.partition(traits)

    def cells(self, group: GroupKey, partition: Partition) -> Cells:
        """The nodes by class and by how many matching pods they hold."""
        return self.groups[group].aggregate(self.nodes, NodesByCount(partition))

    def memo(self, group: GroupKey) -> ResultMemo:
        """The results kept with the group's counts."""
        return self.groups[group].memo

    def namespace(self, name: str) -> NamespaceWorkloads:
        """The workloads of a namespace."""
        return self.workloads.get(name, NO_WORKLOADS)

    def without(self, namespace: str, row: ReservationRow, groups: Iterable[GroupKey]) -> Snapshot:
        """The snapshot without a reservation, as the pod sees it that it is for; see adjusted()."""
        return self.adjusted(namespace, [(row, -1)], groups)

    def adjusted(
        self,
        namespace: str,
        rows: Iterable[tuple[ReservationRow | PodRow, int]],
        groups: Iterable[GroupKey],
    ) -> Snapshot:
        """The snapshot if places were (+1) or were not (−1) reserved or taken; lists of them stay.

        Args:
            namespace: of the reservations or pods.
            rows: which, and in which direction.
            groups: the groups that will be looked at, all of them kept.
        """
        placed = [
            (slot, delta, row)
            for row, delta in rows
            # On a node that is not there, it is in no count that is looked at.
            if (slot := self.nodes.slot(row.node_name)) >= 0
        ]
        changed: dict[GroupKey, Group] = {}
        for group in groups:
            differences: dict[int, int] = {}
            for slot, delta, row in placed:
                if not row.counted or group.namespace != namespace:
                    continue
                if group.selector.matches(dict(row.labels)):
                    differences[slot] = differences.get(slot, 0) + delta
            if differences:
                changed[group] = self.groups[group].changed(differences)
        taken: dict[tuple[str, int], int] = {}
        for slot, delta, row in placed:
            if row.requests is None:
                continue
            for resource, amount in ((PODS, 1), *row.requests):
                here = (resource, slot)
                taken[here] = taken.get(here, 0) + delta * amount
        if not taken and not changed:
            return self
        usage = self.usage.changed(taken)
        return replace(self, groups={**self.groups, **changed}, usage=usage)

    def only(self, groups: Iterable[GroupKey]) -> Snapshot:
        """The snapshot with no other groups, so that keeping it keeps no others."""
        return replace(self, groups={group: self.groups[group] for group in groups})

    def missing(self, groups: Iterable[GroupKey]) -> list[GroupKey]:
        """The groups among these that must be counted first."""
        return [g for g in groups if g not in self.groups and not g.counts_nothing]


@dataclass(frozen=True, slots=True, eq=False)
class NamespaceWorkloads:
    """The workloads of one namespace; immutable, so its identity tells whether anything changed."""

    objects: Mapping[tuple[str, str], Workload] = field(default_factory=dict)
    services: tuple[Workload, ...] = ()

    def lookup(self, kind: str, name: str) -> Workload | None:
        """One workload by kind and name."""
        return self.objects.get((kind, name))

    def changed(self, rows: Mapping[tuple[str, str], Workload | None]) -> NamespaceWorkloads:
        """The namespace after workloads changed or, with None, went; by kind and name."""
        objects = dict(self.objects)
        for key, workload in rows.items():
            if workload is None:
                objects.pop(key, None)
            else:
                objects[key] = workload
        services = self.services
        if any(kind == SERVICE for kind, _ in rows):
            names = sorted(key for key in objects if key[0] == SERVICE)
            services = tuple(objects[key] for key in names)
        return NamespaceWorkloads(objects, services)


NO_WORKLOADS: Final = NamespaceWorkloads()
