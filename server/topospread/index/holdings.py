"""What pods hold of their nodes beside amounts: ports, disks, claims, and whom they keep away.

Each thing has the slots where pods hold it, with how many do; each slot the things that are held
there. What conflicts with a port or a disk is looked up, never compared with all that is held. A
change costs as much as what it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.index.parted_map import PartedMap
from topospread.index.selector_keys import SelectorKey, keys_for, keys_of
from topospread.kube.demands import Disk, HostPort
from topospread.kube.pod_affinity import AffinityTerm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from topospread.kube.demands import Holds, Part


Slots = Mapping[int, int]
"""Pods by slot; none is 0."""

Thing = HostPort | Disk | AffinityTerm | str
"""Something that is held; a claim is its namespace/name."""

Held = tuple[int, "Holds", int]
"""A slot, what a pod holds there, and whether it comes (+1) or goes (−1)."""

_NO_SLOTS: Final[Slots] = {}
_NOTHING: Final[Mapping[Thing, int]] = {}

MANY: Final = 512
"""Slots of a thing of which a change copies a part alone."""

_Where = int | Mapping[int, int] | PartedMap[int, int]
"""The one slot where one pod holds something, as nearly always with a claim; or pods by slot."""


class Holdings:
    """One version of what all pods and reservations hold.

    Slots are as those of counts: pods may hold something on a slot of a node that is not known, and
    that may be beyond the node table.
    """

    __slots__ = ("_on", "_terms", "_where")

    def __init__(self) -> None:
        self._where: PartedMap[Thing | Part, _Where] = PartedMap()
        self._on: PartedMap[int, Mapping[Thing, int]] = PartedMap()
        # What is held, by what a look-up begins with.
        self._terms: PartedMap[SelectorKey, frozenset[AffinityTerm]] = PartedMap()

    # ------------------------------ look-ups

    def slots_of_port(self, port: HostPort) -> Slots:
        """The slots where pods have ports that conflict with this one, with how many ports."""
        return self._slots(port.conflicting)

    def slots_in_conflict(self, things: Iterable[HostPort | Disk]) -> AbstractSet[int]:
        """The slots where pods have a port or a disk that conflicts with one of these."""
        found: set[int] = set()
        for thing in things:
            for each in thing.conflicting:
                checkpoint()
                where = self._where.get(each)
                if where is not None:
                    found.update([slot for slot, _ in _pairs_of(where)])
        return found

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

    def _slots(self, things: Iterable[Thing | Part]) -> Slots:
        found = [where for each in things if (where := self._where.get(each)) is not None]
        if not found:
            return _NO_SLOTS
        if len(found) == 1 and isinstance(found[0], Mapping):
            return found[0]
        total: dict[int, int] = {}
        for where in found:
            for slot, pods in _pairs_of(where):
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
        changes: dict[Thing | Part, dict[int, int]] = {}
        on: dict[int, dict[Thing, int]] = {}
        for thing, by_slot in deltas.items():
            held = self._where.get(thing)
            for slot, delta in by_slot.items():
                if not delta:
                    continue
                here = on.get(slot)
                if here is None:
                    here = on[slot] = dict(self.on(slot))
                before = _pods_at(held, slot)
                # What-ifs may remove a pod that has left meanwhile.
                pods = max(0, before + delta)
                if pods:
                    here[thing] = pods
                else:
                    here.pop(thing, None)
                for each in (thing, *_parts(thing)):
                    at = changes.setdefault(each, {})
                    at[slot] = at.get(slot, 0) + pods - before
        if not on:
            return self
        where = {each: _changed_at(self._where.get(each), at) for each, at in changes.items()}
        made = Holdings()
        made._where = self._where.changed(where)
        made._on = self._on.changed({slot: here or None for slot, here in on.items()})
        come = [each for each in deltas if where.get(each) is not None]
        gone = [each for each in deltas if each in where and where[each] is None]
        made._terms = _with_terms(self._terms, come, gone)
        return made


NO_HOLDINGS: Final = Holdings()


def _parts(thing: Thing) -> Iterable[Part]:
    return thing.parts if isinstance(thing, HostPort | Disk) else ()


def _pairs_of(where: _Where) -> Iterable[tuple[int, int]]:
    """Slots with how many pods hold something there."""
    if isinstance(where, int):
        return ((where, 1),)
    return where.items() if isinstance(where, Mapping) else where


def _pods_at(where: _Where | None, slot: int) -> int:
    if where is None or isinstance(where, int):
        return int(where == slot)
    return where.get(slot) or 0


def _changed_at(where: _Where | None, deltas: Mapping[int, int]) -> _Where | None:
    """Where something is held after a change; None for nowhere."""
    rows = {slot: _pods_at(where, slot) + delta for slot, delta in deltas.items()}
    if isinstance(where, PartedMap):
        parted = where.changed({slot: pods or None for slot, pods in rows.items()})
        return parted if len(parted) > MANY // 2 else dict(parted)
    held = {**dict(_pairs_of(where) if where is not None else ()), **rows}
    held = {slot: pods for slot, pods in held.items() if pods}
    if len(held) == 1:
        ((slot, pods),) = held.items()
        if pods == 1:
            return slot
    if len(held) > MANY:
        return PartedMap[int, int]().changed(held)
    return held or None


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
