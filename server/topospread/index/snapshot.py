"""One immutable state of a cluster: what decisions are computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.index.groups import DomainCounts, NodesByCount
from topospread.index.reservations import NO_RESERVATIONS, Reservations
from topospread.index.usage import NO_USAGE, PODS, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
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


SERVICE: Final = "Service"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Nodes, counts and workloads at one revision; a spread.topology.Topology.

    Attributes:
        sequence: grows with every publication by one builder; for caches.
        nodes: the node table.
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
        """[slots] matching pods on each slot.

        Raises:
            KeyError: the group is not kept; see :meth:`missing`.
        """
        return self.groups[group].counts(self.nodes.capacity)

    def domain_counts(self, group: GroupKey, eligibility: Eligibility, key: str) -> Ints:
        """[domains] matching pods on eligible nodes of each domain.

        Raises:
            KeyError: the group is not kept; see :meth:`missing`.
        """
        return self.groups[group].aggregate(self.nodes, DomainCounts(eligibility, key))

    def partition(self, traits: Traits) -> Partition:
        """The nodes by class."""
        return self.nodes.partition(traits)

    def cells(self, group: GroupKey, partition: Partition) -> Cells:
        """The nodes by class and by how many matching pods they hold.

        Raises:
            KeyError: the group is not kept; see :meth:`missing`.
        """
        return self.groups[group].aggregate(self.nodes, NodesByCount(partition))

    def memo(self, group: GroupKey) -> ResultMemo:
        """The results kept with the group's counts.

        Raises:
            KeyError: the group is not kept; see :meth:`missing`.
        """
        return self.groups[group].memo

    def namespace(self, name: str) -> NamespaceWorkloads:
        """The workloads of a namespace."""
        return self.workloads.get(name, NO_WORKLOADS)

    def without(self, namespace: str, row: ReservationRow, groups: Iterable[GroupKey]) -> Snapshot:
        """The snapshot without a reservation, as the pod sees it that the reservation is for.

        Args:
            namespace: of the reservation.
            row: the reservation, as this snapshot has it.
            groups: the groups that will be looked at, all of them kept.
        """
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
