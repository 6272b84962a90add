"""One immutable state of a cluster: what decisions are computed from.

Besides the nodes and the counts it has reservations, usage (what the pods on each node take of its
resources), workloads and the other objects (volumes, namespaces). The next version of each copies
what changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.attached import AttachedVolumes
from topospread.index.groups import DomainCounts, NodesByCount
from topospread.index.holdings import NO_HOLDINGS
from topospread.index.objects import NO_OBJECTS, Objects
from topospread.index.parted_map import PartedMap
from topospread.kube.affinity import compile_requirements
from topospread.kube.workloads import JOB, SERVICE
from topospread.spread.settings import NEWEST
from topospread.spread.topology import Eligibility

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from topospread.index.attached import VolumeTable
    from topospread.index.changes import PodRow, ReservationRow
    from topospread.index.groups import Group, ResultMemo
    from topospread.index.holdings import Holdings
    from topospread.index.nodes import NodeTable
    from topospread.index.pod_classes import NamespaceClasses
    from topospread.kube.demands import Holds, Requests
    from topospread.kube.objects import NodeRequirements, Workload
    from topospread.kube.versions import KubernetesVersion
    from topospread.kube.workloads import KnownControllers
    from topospread.spread.cells import Cells, Partition
    from topospread.spread.topology import (
        Bools,
        Domains,
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

Counted = str | int
"""A resource; or a priority, of which each pod of it takes one."""

_WRAP: Final = 1 << 64


class Usage:
    """One version of all amounts, in the scheduler's units, by resource and slot."""

    __slots__ = ("_base", "_made", "_pending", "_size")

    def __init__(
        self, base: Mapping[Counted, Ints], pending: Mapping[Counted, Mapping[int, int]], size: int
    ) -> None:
        self._base = base
        self._pending = pending
        self._size = size
        self._made: dict[Counted, Ints] = {}

    def taken(self, resource: Counted, capacity: int) -> Ints:
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

    def on(self, slot: int) -> dict[Counted, int]:
        """The amounts taken on one slot; without those of which nothing is.

        By resource, with PODS, and by priority.
        """
        taken = {
            name: int(self.taken(name, slot + 1)[slot]) for name in (*self._base, *self._pending)
        }
        return {name: amount for name, amount in taken.items() if amount}

    def lower_priority(self, priority: int, capacity: int) -> Ints:
        """[capacity] pods of a lower priority than this."""
        named = {*self._base, *self._pending, *self._made}
        others = [each for each in named if isinstance(each, int)]
        # All that are of no other are of priority 0.
        found = self.taken(PODS, capacity).copy() if priority > 0 else np.zeros(capacity, np.int64)
        for other in others:
            if priority > 0 and other >= priority:
                found -= self.taken(other, capacity)
            elif priority <= 0 and other < priority:
                found += self.taken(other, capacity)
        return found

    def changed(self, differences: Mapping[tuple[Counted, int], int]) -> Usage:
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
        own: dict[Counted, dict[int, int]] = {}
        for (resource, slot), amount in differences.items():
            by_slot = own.get(resource)
            if by_slot is None:
                by_slot = own[resource] = dict(changed.get(resource, ()))
            by_slot[slot] = by_slot.get(slot, 0) + amount
        changed |= own
        return Usage(base, changed, size + len(differences))

    def _worked_out(self, resource: Counted, capacity: int) -> Ints:
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


def taken_by(requests: Requests, holds: Holds | None) -> Iterable[tuple[Counted, int]]:
    """All that a pod takes of its slot, as a usage counts it: itself, too, and its priority."""
    if holds is None or not holds.priority:
        return (PODS, 1), *requests
    return (PODS, 1), (holds.priority, 1), *requests


class Reservations(PartedMap[str, "ReservationRow"]):
    """The reservation of each pod; pods are named ``namespace/name``."""

    __slots__ = ()

    def of(self, namespace: str, name: str, uid: str) -> ReservationRow | None:
        """The reservation for the pod with this name, if its uid is equal or unknown."""
        row = self.get(f"{namespace}/{name}")
        return row if row is not None and row.is_for(uid) else None


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
        holdings: what they hold beside amounts.
        nominated: pods that wait, by namespace/name, with the row that each would have on the node
            where preemption makes room for it; they are in no count.
        slots: how many slots nodes and pods may be on; from here on they are free for sure.
        label_sets: how many different sets of labels the counted pods of a namespace have, over all
            namespaces.
        pod_classes: by namespace, those that have pods; without reservations and without what is
            hypothetical.
        origin: the same for all snapshots of one builder.
        attached: what the volumes of nodes are followed with, for all snapshots of one builder.
        objects: volumes, what decides about them, and namespaces.
        version: the Kubernetes version by whose rules pods are judged.
        reported_version: the one that the cluster reports; None where it reports none.
        controllers: by namespace, of what controls pods; see kube.workloads.controllers_of.
        jobs: how many of these are Jobs.
        unreadable: kind, namespace and name of stored objects that cannot be read, in order: they
            are absent.
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
    objects: Objects = NO_OBJECTS
    holdings: Holdings = NO_HOLDINGS
    nominated: Mapping[str, PodRow] = field(default_factory=dict)
    attached: AttachedVolumes = field(default_factory=AttachedVolumes)
    version: KubernetesVersion = NEWEST
    reported_version: KubernetesVersion | None = None
    controllers: Mapping[str, KnownControllers] = field(default_factory=dict)
    jobs: int = 0
    unreadable: tuple[tuple[str, str, str], ...] = ()

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

    @property
    def volumes(self) -> VolumeTable:
        """The volumes of the nodes, by driver."""
        return self.attached.at(self.nodes, self.holdings, self.objects)

    def slot(self, name: str) -> int:
        """The slot of a node; −1 when there is none of that name."""
        return self.nodes.slot(name)

    def domains(self, key: str) -> Domains:
        """The domains of a topology key."""
        return self.nodes.domains(key)

    def mask(self, eligibility: Eligibility) -> Bools:
        """[slots] whether the node is eligible."""
        return self.nodes.mask(eligibility)

    def selected(self, requirements: NodeRequirements | None) -> Bools:
        """[slots] whether node affinity selects the node; any without it."""
        if requirements is None:
            return self.nodes.alive
        return self.mask(Eligibility(requirements=compile_requirements(requirements)))

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

    def unknown(self, kind: str) -> str:
        """Why the objects of a kind that a cluster may do without are not known, or empty."""
        return self.objects.unknown(kind, elsewhere=kind == JOB and self.jobs > 0)

    def controllers_in(self, namespace: str) -> KnownControllers:
        """The controllers of what controls pods in a namespace."""
        return self.controllers.get(namespace, _NO_CONTROLLERS)

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
        labelled = [(*each, dict(each[2].labels)) for each in placed]
        for group in groups:
            checkpoint()
            differences: dict[int, int] = {}
            if not group.covers(namespace):
                continue
            for slot, delta, row, labels in labelled:
                if not (row.counted or (group.terminating and row.terminating)):
                    continue
                if group.selector.matches(labels):
                    differences[slot] = differences.get(slot, 0) + delta
            if differences:
                changed[group] = self.groups[group].changed(differences)
        taken: dict[tuple[Counted, int], int] = {}
        for slot, delta, row in placed:
            if row.requests is None:
                continue
            for resource, amount in taken_by(row.requests, row.holds):
                here = (resource, slot)
                taken[here] = taken.get(here, 0) + delta * amount
        held = [(slot, row.holds, delta) for slot, delta, row in placed if row.holds is not None]
        if not taken and not changed and not held:
            return self
        usage = self.usage.changed(taken)
        holdings = self.holdings.changed(held) if held else self.holdings
        return replace(self, groups={**self.groups, **changed}, usage=usage, holdings=holdings)

    def without_nominated(self, pods: Iterable[str]) -> Snapshot:
        """The snapshot if some pods, namespace/name, did not wait for a nominated node."""
        gone = self.nominated.keys() & set(pods)
        if not gone:
            return self
        left = {pod: row for pod, row in self.nominated.items() if pod not in gone}
        return replace(self, nominated=left)

    def lower_priority(self, priority: int) -> Ints:
        """[slots] pods and reservations of a lower priority than this."""
        return self.usage.lower_priority(priority, self.nodes.capacity)

    def only(self, groups: Iterable[GroupKey]) -> Snapshot:
        """The snapshot with no other groups, so that keeping it keeps no others."""
        return replace(self, groups={group: self.groups[group] for group in groups})

    def missing(self, groups: Iterable[GroupKey]) -> list[GroupKey]:
        """The groups among these that must be counted first."""
        return [g for g in groups if g not in self.groups]


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
_NO_CONTROLLERS: Final[KnownControllers] = {}
