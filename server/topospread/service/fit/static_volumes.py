"""Volumes that are there already, for claims that wait for a pod: FindMatchingVolume.

Source: k8s.io/component-helpers storage/volume, and ``findMatchingVolumes`` of the scheduler's
volume binder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.selectors import IN, SelectorError, compile_selector
from topospread.kube.volumes import AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.nodes import NodeTable
    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import NodeRequirements
    from topospread.kube.selectors import Selector
    from topospread.kube.volumes import PersistentVolume, PersistentVolumeClaim
    from topospread.spread.topology import Bools

FILESYSTEM: Final = "Filesystem"


def unmatched(
    snapshot: Snapshot, claims: Sequence[PersistentVolumeClaim], nodes: Bools
) -> Sequence[Bools]:
    """Where claims find no volume, if the pod comes there.

    Args:
        snapshot: the state.
        claims: of one pod, smallest first: those that come first choose first.
        nodes: [slots] that are looked at.

    Returns:
        [claims] [slots] nodes among these where the claim finds none.
    """
    candidates = [_candidates(snapshot, claim) for claim in claims]
    if len(claims) == 1 or sum(bool(each.places) for each in candidates) <= 1:
        return [nodes & ~each.reached(snapshot) for each in candidates]
    return _one_each(snapshot, [each.places for each in candidates], nodes)


def _candidates(snapshot: Snapshot, claim: PersistentVolumeClaim) -> _Candidates:
    """Volumes that a claim may have; a volume that is kept for it is the only one.

    Each node that does not reach it has none, whatever else is there.
    """
    named = claim.storage_class or ""
    kept = [
        volume
        for volume in snapshot.objects.volume_for_claim(claim.namespace, claim.name)
        if volume.claim is not None
        and volume.claim.uid in ("", claim.uid)
        and volume.storage_class == named
        and _suits(claim, volume)
    ]
    return _Candidates(kept[:1]) if kept else _available(snapshot, claim)


def _available(snapshot: Snapshot, claim: PersistentVolumeClaim) -> _Candidates:
    """Of the class; the same ones for like claims while its volumes are the same."""
    kept, volumes = snapshot.objects.matching, snapshot.objects.volumes_of_class
    of_class = volumes(claim.storage_class or "")
    if not of_class:
        return _Candidates(())
    key = (
        claim.storage_class or "",
        claim.request,
        frozenset(claim.access_modes),
        claim.volume_mode or FILESYSTEM,
        claim.attributes_class or "",
        claim.selector,
    )
    known = kept.get(key)
    if isinstance(known, _Candidates) and known.of_class is of_class:
        return known
    selector = None
    if claim.selector is not None:
        try:
            selector = compile_selector(claim.selector)
        except SelectorError:
            return _Candidates(())
    free = list(_free(of_class.values(), claim, selector))
    found = _Candidates(sorted(free, key=_rank), of_class)
    size = 1000 + 80 * len(of_class) + 16 * len(free) + 400 * len(found.places)
    size += snapshot.nodes.capacity + (0 if selector is None else selector.nbytes)
    kept.put(key, found, size)
    return found


def _free(
    volumes: Iterable[PersistentVolume], claim: PersistentVolumeClaim, selector: Selector | None
) -> Iterator[PersistentVolume]:
    modes, suiting = set(claim.access_modes), dict[int, bool]()
    for volume in volumes:
        checkpoint()
        if volume.claim is not None:
            continue
        traits = volume.traits
        # Many volumes share them.
        suits = suiting.get(id(traits))
        if suits is None:
            suits = suiting[id(traits)] = (
                traits.phase == AVAILABLE
                and _suits(claim, volume)
                and modes.issubset(traits.access_modes)
                and (selector is None or selector.matches(dict(traits.labels)))
            )
        if suits:
            yield volume


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """What also a volume that is kept for the claim has to have."""
    return (
        volume.capacity >= claim.request
        and (volume.volume_mode or FILESYSTEM) == (claim.volume_mode or FILESYSTEM)
        and (volume.attributes_class or "") == (claim.attributes_class or "")
        and not volume.terminating
    )


class _Place(NamedTuple):
    """Nodes that reach a volume: those with a value of a label, as a local volume's, or others."""

    key: str
    value: str
    affinity: NodeRequirements | None = None


_EVERYWHERE: Final = _Place("", "")
_ByPlace = dict[_Place, list["PersistentVolume"]]


def _by_place(volumes: Iterable[PersistentVolume]) -> _ByPlace:
    known: dict[int, list[PersistentVolume]] = {}
    found: _ByPlace = {}
    for volume in volumes:
        # Equal affinities are mostly one object, whose hash need not be worked out each time.
        affinity = volume.traits.affinity
        here = known.get(id(affinity))
        if here is None:
            checkpoint()
            here = known[id(affinity)] = found.setdefault(_place(affinity), [])
        here.append(volume)
    return found


def _place(affinity: NodeRequirements | None) -> _Place:
    if affinity is None:
        return _EVERYWHERE
    if not affinity.node_selector and affinity.terms and len(affinity.terms) == 1:
        (term,) = affinity.terms
        if not term.match_fields and len(term.match_expressions) == 1:
            (condition,) = term.match_expressions
            if condition.operator == IN and len(condition.values) == 1:
                return _Place(condition.key, condition.values[0])
    return _Place("", "", affinity)


def _values(places: Iterable[_Place]) -> dict[str, list[str]]:
    """Label values of places by label key; there may be thousands."""
    found: dict[str, list[str]] = {}
    for place in places:
        if place.key:
            found.setdefault(place.key, []).append(place.value)
    return found


def _reaching(snapshot: Snapshot, place: _Place) -> Bools:
    """[slots] the nodes of a place that is no value of a label."""
    return snapshot.selected(place.affinity)


def _any_reaches(snapshot: Snapshot, places: _ByPlace) -> Bools:
    """[slots] nodes of any of the places."""
    found = np.zeros_like(snapshot.alive)
    for key, values in _values(places).items():
        found |= snapshot.domains(key).having(values)
    for place in places:
        if not place.key:
            checkpoint()
            found |= _reaching(snapshot, place)
    return found


class _Candidates:
    """Volumes that a claim may have.

    Attributes:
        of_class: the volumes that they were chosen from; None for a volume that is kept.
        places: where they are, the best of each place first.
    """

    __slots__ = ("_reached", "of_class", "places")

    def __init__(
        self,
        volumes: Iterable[PersistentVolume],
        of_class: Mapping[str, PersistentVolume] | None = None,
    ) -> None:
        """Volumes, the best first."""
        self.of_class = of_class
        self.places = _by_place(volumes)
        self._reached: tuple[NodeTable, Bools] | None = None

    def reached(self, snapshot: Snapshot) -> Bools:
        """[slots] nodes that reach any of them; worked out once for a node table."""
        known = self._reached
        if known is None or known[0] is not snapshot.nodes:
            known = self._reached = (snapshot.nodes, _any_reaches(snapshot, self.places))
        return known[1]


def _one_each(snapshot: Snapshot, by_place: Sequence[_ByPlace], nodes: Bools) -> Sequence[Bools]:
    """Each claim takes a volume of its own; nodes that reach the same volumes are alike."""
    places = dict.fromkeys(place for volumes in by_place for place in volumes)
    slots = np.flatnonzero(nodes)
    reached: dict[int, list[_Place]] = {slot: [] for slot in slots.tolist()}
    for key in _values(places):
        domains = snapshot.domains(key)
        for slot, number in zip(slots.tolist(), domains.ids[slots].tolist(), strict=True):
            place = _Place(key, domains.values[number] if number >= 0 else "")
            if number >= 0 and place in places:
                reached[slot].append(place)
    for place in places:
        if not place.key:
            checkpoint()
            for slot in np.flatnonzero(_reaching(snapshot, place) & nodes).tolist():
                reached[slot].append(place)
    alike: dict[tuple[_Place, ...], list[int]] = {}
    for slot, here in reached.items():
        alike.setdefault(tuple(here), []).append(slot)
    without = [np.zeros_like(nodes) for _ in by_place]
    for shared, same in alike.items():
        checkpoint()
        for position in _left_out(by_place, shared):
            without[position][same] = True
    return without


def _left_out(candidates: Sequence[_ByPlace], places: Sequence[_Place]) -> Iterator[int]:
    """The claims that get no volume on a node of these places."""
    taken: set[str] = set()
    for position, volumes in enumerate(candidates):
        best: PersistentVolume | None = None
        for place in places:
            free = (each for each in volumes.get(place, ()) if each.name not in taken)
            first = next(free, None)
            if first is not None and (best is None or _rank(first) < _rank(best)):
                best = first
        if best is None:
            yield position
        else:
            taken.add(best.name)


def _rank(volume: PersistentVolume) -> tuple[int, str]:
    """Smaller volumes are taken first."""
    return volume.capacity, volume.name
