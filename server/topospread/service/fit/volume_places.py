"""Where volumes are, and which nodes reach the same of these places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.selectors import IN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import NodeRequirements
    from topospread.spread.topology import Bools, Ints, Slots

BITS: Final = 62
"""Of a number, each for a place that a node reaches or not."""


class VolumePlace(NamedTuple):
    """Nodes that reach a volume: those with a value of a label, as a local volume's, or others."""

    key: str
    value: str
    affinity: NodeRequirements | None = None


EVERYWHERE: Final = VolumePlace("", "")


def place_of(affinity: NodeRequirements | None) -> VolumePlace:
    """The nodes that an affinity selects; all without one."""
    if affinity is None:
        return EVERYWHERE
    if not affinity.node_selector and affinity.terms and len(affinity.terms) == 1:
        (term,) = affinity.terms
        if not term.match_fields and len(term.match_expressions) == 1:
            (condition,) = term.match_expressions
            if condition.operator == IN and len(condition.values) == 1:
                return VolumePlace(condition.key, condition.values[0])
    return VolumePlace("", "", affinity)


def _values(places: Iterable[VolumePlace]) -> dict[str, list[str]]:
    """Label values of places by label key; there may be thousands."""
    found: dict[str, list[str]] = {}
    for place in places:
        if place.key:
            found.setdefault(place.key, []).append(place.value)
    return found


def any_reaches(snapshot: Snapshot, places: Sequence[VolumePlace]) -> Bools:
    """[slots] nodes of any of the places."""
    found = np.zeros_like(snapshot.alive)
    for key, values in _values(places).items():
        checkpoint()
        found |= snapshot.domains(key).having(values)
    for place in places:
        if not place.key:
            checkpoint()
            found |= snapshot.selected(place.affinity)
    return found


class AlikeNodes:
    """Nodes that reach the same places, together.

    Args:
        snapshot: the state.
        places: the places.
        slots: of the nodes.

    Attributes:
        ids: [nodes] the group of each.
        first: [groups] the position of a node of each.
    """

    def __init__(self, snapshot: Snapshot, places: Sequence[VolumePlace], slots: Ints) -> None:
        self._slots = slots
        self._columns: list[tuple[Slots, dict[int, int]]] = []
        # A bit for each place that is no value of a label, and each node.
        self._bits: list[Ints] = []
        self._others = [number for number, place in enumerate(places) if not place.key]
        ids = np.zeros(slots.size, np.int64)
        by_key: dict[str, dict[str, int]] = {}
        for number, place in enumerate(places):
            if place.key:
                by_key.setdefault(place.key, {})[place.value] = number
        for key, numbers in by_key.items():
            checkpoint()
            domains = snapshot.domains(key)
            known = {domains.number[v]: n for v, n in numbers.items() if v in domains.number}
            table = np.full(len(domains.values) + 1, -1, np.int64)
            table[list(known)] = list(known.values())
            self._columns.append((domains.ids, known))
            ids = _finer(ids, table[domains.ids[slots]])
        for start in range(0, len(self._others), BITS):
            bits = np.zeros(slots.size, np.int64)
            for bit, number in enumerate(self._others[start : start + BITS]):
                checkpoint()
                reached = snapshot.selected(places[number].affinity)[slots]
                bits |= reached.astype(np.int64) << bit
            self._bits.append(bits)
            ids = _finer(ids, bits)
        _, self.first, self.ids = np.unique(ids, return_index=True, return_inverse=True)

    def places(self, group: int) -> Iterator[int]:
        """The numbers of the places that a group reaches."""
        node = int(self.first[group])
        slot = int(self._slots[node])
        for ids, known in self._columns:
            checkpoint()
            if (number := known.get(int(ids[slot]))) is not None:
                yield number
        for at, bits in enumerate(self._bits):
            left = int(bits[node])
            while left:
                checkpoint()
                lowest = left & -left
                yield self._others[at * BITS + lowest.bit_length() - 1]
                left -= lowest


def _finer(ids: Ints, values: Ints) -> Ints:
    """Groups whose nodes also have one value."""
    _, numbers = np.unique(values, return_inverse=True)
    _, found = np.unique(ids * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)
    made: Ints = found.astype(np.int64)
    return made
