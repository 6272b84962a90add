"""What pods hold of their nodes beside amounts: ports, disks, claims, and whom they keep away.

Each thing has the slots where pods hold it, with how many do; each slot the things that are held
there. A change costs as much as what it touches; a thing that is held on thousands of slots is
copied when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.checkpoints import checkpoint
from topospread.index.parted_map import PartedMap
from topospread.index.selector_keys import SelectorKey, keys_for, keys_of
from topospread.kube.demands import Disk, HostPort
from topospread.kube.pod_affinity import AffinityTerm

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from topospread.kube.demands import Holds

_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V", bound="Hashable")

Slots = Mapping[int, int]
"""Pods by slot; none is 0."""

Thing = HostPort | Disk | AffinityTerm | str
"""Something that is held; a claim is its namespace/name."""

Held = tuple[int, "Holds", int]
"""A slot, what a pod holds there, and whether it comes (+1) or goes (−1)."""

_NO_SLOTS: Final[Slots] = {}
_NOTHING: Final[Mapping[Thing, int]] = {}

_Where = int | Mapping[int, int]
"""The one slot where one pod holds something, as nearly always with a claim; or pods by slot."""

_Index = Mapping[_K, frozenset[_V]]


class Holdings:
    """One version of what all pods and reservations hold.

    Slots are as those of counts: pods may hold something on a slot of a node that is not known, and
    that may be beyond the node table.
    """

    __slots__ = ("_addresses", "_disks", "_on", "_terms", "_where")

    def __init__(self) -> None:
        self._where: PartedMap[Thing, _Where] = PartedMap()
        self._on: PartedMap[int, Mapping[Thing, int]] = PartedMap()
        # What is held, by what a look-up begins with.
        self._addresses: _Index[tuple[str, int], HostPort] = {}
        self._disks: _Index[tuple[str, str], Disk] = {}
        self._terms: PartedMap[SelectorKey, frozenset[AffinityTerm]] = PartedMap()

    # ------------------------------ look-ups

    def slots_of_port(self, port: HostPort) -> Slots:
        """The slots where pods have a port that conflicts with this one."""
        held = self._addresses.get((port.protocol, port.port), ())
        return self._slots([each for each in held if port.conflicts(each)])

    def slots_of_disk(self, disk: Disk) -> Slots:
        """The slots where pods have a disk that conflicts with this one."""
        held = self._disks.get((disk.plugin, disk.handle), ())
        return self._slots([each for each in held if disk.conflicts(each)])

    def slots_of_claim(self, claim: str) -> Slots:
        """The slots where pods have a claim, given as namespace/name."""
        return self._slots((claim,))

    def terms_about(
        self, namespace: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[AffinityTerm, Slots]]:
        """Anti-affinity terms of pods that match a pod with these labels, each once.

        Those that name its namespace, and those that select namespaces by their labels, which is
        left to the caller.
        """
        terms: set[AffinityTerm] = set()
        for key in keys_for(namespace, labels):
            terms.update(self._terms.get(key) or ())
        for term in terms:
            checkpoint()
            if term.may_cover(namespace) and term.selector.matches(labels):
                yield term, self._slots((term,))

    def is_held(self, thing: Thing) -> bool:
        """Whether a pod anywhere holds exactly this."""
        return self._where.get(thing) is not None

    def on(self, slot: int) -> Mapping[Thing, int]:
        """What pods on a slot hold, with how many of them: the same object until it changes."""
        return self._on.get(slot) or _NOTHING

    def changed_slots(self, before: Holdings) -> Iterator[int]:
        """Slots where something else is held than before."""
        return (slot for slot, _, _ in self._on.differences(before._on))

    def _slots(self, things: Iterable[Thing]) -> Slots:
        found = [where for each in things if (where := self._where.get(each)) is not None]
        if not found:
            return _NO_SLOTS
        if len(found) == 1:
            return {found[0]: 1} if isinstance(found[0], int) else found[0]
        total: dict[int, int] = {}
        for where in found:
            for slot, pods in ({where: 1} if isinstance(where, int) else where).items():
                total[slot] = total.get(slot, 0) + pods
        return total

    # ------------------------------ changes

    def changed(self, differences: Iterable[Held]) -> Holdings:
        """The next version."""
        deltas: dict[Thing, dict[int, int]] = {}
        for slot, holds, delta in differences:
            things: tuple[Thing, ...] = (*holds.ports, *holds.disks, *holds.claims, *holds.terms)
            for thing in things:
                by_slot = deltas.setdefault(thing, {})
                by_slot[slot] = by_slot.get(slot, 0) + delta
        return self._changed(deltas)

    def emptied(self, slots: Iterable[int]) -> Holdings:
        """The version where nothing is held on some slots."""
        deltas: dict[Thing, dict[int, int]] = {}
        for slot in slots:
            for thing, pods in self.on(slot).items():
                deltas.setdefault(thing, {})[slot] = -pods
        return self._changed(deltas)

    def _changed(self, deltas: Mapping[Thing, Mapping[int, int]]) -> Holdings:
        where: dict[Thing, _Where | None] = {}
        on: dict[int, dict[Thing, int]] = {}
        for thing, by_slot in deltas.items():
            held = dict(self._slots((thing,)))
            for slot, delta in by_slot.items():
                if not delta:
                    continue
                here = on.get(slot)
                if here is None:
                    here = on[slot] = dict(self.on(slot))
                pods = held.get(slot, 0) + delta
                # What-ifs may remove a pod that has left meanwhile.
                if pods > 0:
                    held[slot] = here[thing] = pods
                else:
                    held.pop(slot, None)
                    here.pop(thing, None)
            where[thing] = _where(held)
        if not on:
            return self
        made = Holdings()
        made._where = self._where.changed(where)
        made._on = self._on.changed({slot: here or None for slot, here in on.items()})
        come = [each for each, held in where.items() if held is not None]
        gone = [each for each, held in where.items() if held is None]
        made._addresses = _reindexed(self._addresses, _by_port(come), _by_port(gone))
        made._disks = _reindexed(self._disks, _by_handle(come), _by_handle(gone))
        made._terms = _with_terms(self._terms, come, gone)
        return made


NO_HOLDINGS: Final = Holdings()


def _where(held: Mapping[int, int]) -> _Where | None:
    if len(held) == 1:
        ((slot, pods),) = held.items()
        if pods == 1:
            return slot
    return held or None


def _by_port(things: Iterable[Thing]) -> list[tuple[tuple[str, int], HostPort]]:
    return [((each.protocol, each.port), each) for each in things if isinstance(each, HostPort)]


def _by_handle(things: Iterable[Thing]) -> list[tuple[tuple[str, str], Disk]]:
    return [((each.plugin, each.handle), each) for each in things if isinstance(each, Disk)]


def _with_terms(
    index: PartedMap[SelectorKey, frozenset[AffinityTerm]],
    come: Iterable[Thing],
    gone: Iterable[Thing],
) -> PartedMap[SelectorKey, frozenset[AffinityTerm]]:
    """The index with the terms that have come, and without those that have gone."""
    changed: dict[SelectorKey, set[AffinityTerm]] = {}
    for key, term in _by_key(come):
        held = changed.get(key) or index.get(key) or ()
        if term not in held:
            changed.setdefault(key, set(held)).add(term)
    for key, term in _by_key(gone):
        changed.setdefault(key, set(index.get(key) or ())).discard(term)
    return index.changed({key: frozenset(terms) or None for key, terms in changed.items()})


def _by_key(things: Iterable[Thing]) -> Iterator[tuple[SelectorKey, AffinityTerm]]:
    for term in things:
        if isinstance(term, AffinityTerm):
            # The namespaces that a term selects by their labels are not known here.
            named = None if term.namespace_selector is not None else term.namespaces
            for key in keys_of(named, term.selector):
                yield key, term


def _reindexed(
    index: _Index[_K, _V], come: Iterable[tuple[_K, _V]], gone: Iterable[tuple[_K, _V]]
) -> _Index[_K, _V]:
    """The index with what has come, if it is new, and without what has gone."""
    changed: dict[_K, set[_V]] = {}
    for key, value in come:
        if key in changed or value not in index.get(key, ()):
            changed.setdefault(key, set(index.get(key, ()))).add(value)
    for key, value in gone:
        changed.setdefault(key, set(index.get(key, ()))).discard(value)
    if not changed:
        return index
    made = {**index, **{key: frozenset(values) for key, values in changed.items() if values}}
    for key, values in changed.items():
        if not values:
            made.pop(key, None)
    return made
