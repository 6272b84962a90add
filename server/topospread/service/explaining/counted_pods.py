"""Whose pods a constraint counts: those of its owner, and those of others that its selector takes.

The classes of a namespace are indexed by label once, and the pods of a group are looked up once for
all constraints that count it; both only where a constraint may count more than its owner's.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.codec.pods import split_template
from topospread.errors import CorruptValue
from topospread.kube.workloads import controllers_of, workload_of
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.pod_classes import PodClass
    from topospread.index.pods import PodMembers
    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import OwnerReference
    from topospread.kube.workloads import KnownControllers
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Eligibility, GroupKey

LISTED: Final = 10
"""Other owners that are named of each constraint, and domains of its own pods."""


class Owner(NamedTuple):
    """The controller of pods; both empty for pods without one."""

    kind: str
    name: str


NO_OWNER: Final = Owner("", "")


class Sharing(NamedTuple):
    """Pods on nodes that count, by whose they are; of a constraint that counts others' pods.

    Attributes:
        own: pods of the constraint's owner.
        own_domains: (value, pods) of the domains with the most of them, by value.
        others: (owner, pods), those with the most first.
        unlisted: other owners that are left out, and `unlisted_pods` theirs.
    """

    own: int
    own_domains: Sequence[tuple[str, int]]
    others: Sequence[tuple[Owner, int]]
    unlisted: int
    unlisted_pods: int

    @property
    def message(self) -> common_pb2.CountedPods:
        """As answers have it."""
        return common_pb2.CountedPods(
            own_pod_count=self.own,
            own_domains=[
                common_pb2.DomainCount(value=value, pod_count=pods)
                for value, pods in self.own_domains
            ],
            others=[_workload_pods(owner, pods) for owner, pods in self.others],
            unlisted_other_count=self.unlisted,
            unlisted_pod_count=self.unlisted_pods,
        )


class _SelectedPods(NamedTuple):
    """The pods of a group on nodes, by owner.

    Attributes:
        owners: each with its number.
        starts: [owners + 1] where the pods of each begin in `slots`.
        slots: [pods] of the node.
        ranked: by eligibility, (owner, pods) of all that have pods there, the most first, and the
            pods of all.
    """

    owners: Mapping[Owner, int]
    starts: NDArray[np.int64]
    slots: NDArray[np.int64]
    ranked: dict[Eligibility, tuple[Sequence[tuple[Owner, int]], int]]


class Sharings:
    """Finds whose pods are counted at one snapshot.

    Args:
        snapshot: counts the groups that are asked about.
        members: its pods by class, or newer ones; called once at most.
        owner_of: the owner of the pods of a class.
        turn: called for each piece of the work; may raise.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        members: Callable[[], PodMembers],
        owner_of: Callable[[PodClass], Owner],
        turn: Callable[[], None],
    ) -> None:
        self._snapshot = snapshot
        self._members = members
        self._owner_of = owner_of
        self._turn = turn
        self._sorted: _SortedMembers | None = None
        self._postings: dict[str, Mapping[tuple[str, str], Sequence[PodClass]]] = {}
        self._owners: dict[PodClass, Owner] = {}
        self._classes: dict[GroupKey, Mapping[Owner, Sequence[PodClass]]] = {}
        self._selected: dict[GroupKey, _SelectedPods] = {}

    def of(
        self, constraint: Constraint, owner: Owner, own: Iterable[PodClass] = ()
    ) -> Sharing | None:
        """Whose pods a constraint counts; None where it counts its owner's alone.

        Args:
            constraint: of the owner.
            owner: whose pods are its own.
            own: classes of pods that are known to be the owner's.
        """
        if constraint.counts_nothing:
            return None
        group, snapshot = constraint.group, self._snapshot
        classes = snapshot.pod_classes.get(group.namespace)
        if classes is None:
            return None
        own_alone = sum(
            classes.count(each).bound for each in own if group.selector.matches(dict(each.labels))
        )
        if int(snapshot.node_counts(group).sum()) <= own_alone:
            return None
        if group not in self._classes:
            self._classes[group] = self._by_owner(group)
        if self._classes[group].keys() <= {owner}:
            return None
        if group not in self._selected:
            self._selected[group] = self._find(self._classes[group])
        selected = self._selected[group]
        if constraint.eligibility not in selected.ranked:
            found = self._rank(selected, constraint.eligibility)
            selected.ranked[constraint.eligibility] = found, sum(pods for _, pods in found)
        ranked, total = selected.ranked[constraint.eligibility]
        first = [each for each in islice(ranked, LISTED + 1) if each[0] != owner][:LISTED]
        if not first:
            return None
        slots = self._own_slots(selected, owner, constraint.eligibility)
        others = len(ranked) - bool(slots.size)
        domains = snapshot.domains(constraint.topology_key)
        ids, pods = np.unique(domains.ids[slots], return_counts=True)
        most = np.argsort(-pods, kind="stable")[:LISTED]
        own_domains = sorted(
            (domains.values[each], number)
            for each, number in zip(ids[most].tolist(), pods[most].tolist(), strict=True)
        )
        unlisted = total - slots.size - sum(pods for _, pods in first)
        return Sharing(int(slots.size), own_domains, first, others - len(first), int(unlisted))

    def _own_slots(
        self, selected: _SelectedPods, owner: Owner, eligibility: Eligibility
    ) -> NDArray[np.int64]:
        number = selected.owners.get(owner)
        if number is None:
            return selected.slots[:0]
        here = selected.slots[selected.starts[number] : selected.starts[number + 1]]
        counted: NDArray[np.int64] = here[self._snapshot.mask(eligibility)[here]]
        return counted

    def _rank(
        self, selected: _SelectedPods, eligibility: Eligibility
    ) -> Sequence[tuple[Owner, int]]:
        counted = self._snapshot.mask(eligibility)[selected.slots]
        before = np.concatenate([[0], np.cumsum(counted)])
        pods = np.diff(before[selected.starts]).tolist()
        found = [each for each in zip(selected.owners, pods, strict=True) if each[1]]
        return sorted(found, key=lambda each: (-each[1], each[0]))

    def _by_owner(self, group: GroupKey) -> Mapping[Owner, Sequence[PodClass]]:
        by_owner: defaultdict[Owner, list[PodClass]] = defaultdict(list)
        for each in self._selected_classes(group):
            owner = self._owners.get(each)
            if owner is None:
                owner = self._owners[each] = self._owner_of(each)
            by_owner[owner].append(each)
        return by_owner

    def _find(self, by_owner: Mapping[Owner, Sequence[PodClass]]) -> _SelectedPods:
        if self._sorted is None:
            self._sorted = _SortedMembers(self._members(), self._snapshot)
        slots: list[NDArray[np.int64]] = []
        for classes in by_owner.values():
            parts = []
            for each in classes:
                self._turn()
                parts.append(self._sorted.slots(each))
            slots.append(np.concatenate(parts))
        numbers = {owner: number for number, owner in enumerate(by_owner)}
        starts = np.cumsum([0, *(each.size for each in slots)])
        return _SelectedPods(numbers, starts, np.concatenate(slots), {})

    def _selected_classes(self, group: GroupKey) -> Iterable[PodClass]:
        pool: Iterable[PodClass] = self._snapshot.pod_classes[group.namespace]
        least = -1
        for requirement in group.selector.requirements:
            if requirement.operator != "In":
                continue
            postings = self._posted(group.namespace)
            found = [postings.get((requirement.key, value), ()) for value in requirement.values]
            size = sum(map(len, found))
            if least < 0 or size < least:
                least, pool = size, [each for some in found for each in some]
        for each in pool:
            self._turn()
            if group.selector.matches(dict(each.labels)):
                yield each

    def _posted(self, namespace: str) -> Mapping[tuple[str, str], Sequence[PodClass]]:
        postings = self._postings.get(namespace)
        if postings is None:
            made: defaultdict[tuple[str, str], list[PodClass]] = defaultdict(list)
            for each in self._snapshot.pod_classes[namespace]:
                self._turn()
                for pair in each.labels:
                    made[pair].append(each)
            postings = self._postings[namespace] = made
        return postings


class _SortedMembers:
    """The nodes of pods by class, of a snapshot that may be older than they are."""

    def __init__(self, members: PodMembers, snapshot: Snapshot) -> None:
        names = snapshot.nodes.names
        # Slots and numbers are used again: those that another node or class has now are left out.
        same = np.array(
            [each == name for each, name in zip(members.nodes, names, strict=False)],
            dtype=np.bool_,
        )
        there = np.flatnonzero((members.slots >= 0) & (members.slots < same.size))
        there = there[same[members.slots[there]]]
        order = there[np.argsort(members.numbers[there], kind="stable")]
        self._classes = members.classes
        self._numbers = members.numbers[order]
        self._slots = members.slots[order].astype(np.int64)

    def slots(self, pod_class: PodClass) -> NDArray[np.int64]:
        """Nodes of the pods of a class that are on one, once for each pod."""
        number = pod_class.number
        if number >= len(self._classes) or self._classes[number] is not pod_class:
            return self._slots[:0]
        first, last = np.searchsorted(self._numbers, [number, number + 1])
        return self._slots[first:last]


def owner_of_class(pod_class: PodClass, known: KnownControllers) -> Owner:
    """The owner of the pods of a class.

    Args:
        pod_class: a template that cannot be read has none.
        known: controllers of the namespace.
    """
    try:
        controller, _ = split_template(pod_class.template)
    except CorruptValue:
        return NO_OWNER
    return owner_of(controller, dict(pod_class.labels), known)


def owner_of(
    controller: OwnerReference | None, labels: Mapping[str, str], known: KnownControllers
) -> Owner:
    """Kind and name of the controller that people know pods by."""
    if controller is None:
        return NO_OWNER
    found = workload_of(controllers_of(controller, labels, known))
    return Owner(found.kind, found.name)


def _workload_pods(owner: Owner, pods: int) -> common_pb2.WorkloadPodCount:
    if owner == NO_OWNER:
        return common_pb2.WorkloadPodCount(pod_count=pods)
    workload = common_pb2.WorkloadReference(kind=owner.kind, name=owner.name)
    return common_pb2.WorkloadPodCount(workload=workload, pod_count=pods)
