"""Volumes that are there already, for claims that wait for a pod: FindMatchingVolume.

Source: k8s.io/component-helpers storage/volume, and ``findMatchingVolumes`` of the scheduler's
volume binder.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.service.fit.volume_places import AlikeNodes, VolumePlace, any_reaches, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.nodes import NodeTable
    from topospread.index.snapshot import Snapshot
    from topospread.kube.volumes import PersistentVolume, PersistentVolumeClaim
    from topospread.spread.topology import Bools

FILESYSTEM: Final = "Filesystem"

FEW: Final = 16
"""Traits of volumes of which a claim remembers whether they suit it: many volumes share them."""


def unmatched(
    snapshot: Snapshot, claims: Sequence[PersistentVolumeClaim], nodes: Bools
) -> Iterator[Bools]:
    """Where claims find no volume, if the pod comes there.

    Args:
        snapshot: the state.
        claims: of one pod, smallest first: those that come first choose first.
        nodes: [slots] that are looked at.

    Returns:
        For each claim, [slots] nodes among these where it finds none.
    """
    known: dict[str, _CandidateVolumes] = {}
    candidates = [_candidates(snapshot, claim, known) for claim in claims]
    if sum(each.any for each in candidates) <= 1:
        return (nodes & ~each.reached(snapshot) for each in candidates)
    return _one_each(snapshot, candidates, nodes)


# ------------------------------ the volumes that claims may have


class _CandidateVolumes:
    """Volumes that claims may have, those that are chosen first first.

    Attributes:
        of_class: what they were chosen from; None for a volume that is kept for a claim.
        ordered: the volumes.
        by_place: where they are, as positions among these.
    """

    def __init__(
        self,
        volumes: Iterable[PersistentVolume],
        of_class: Mapping[str, PersistentVolume] | None = None,
    ) -> None:
        self.of_class = of_class
        # Smaller volumes are taken first.
        self.ordered = sorted(volumes, key=lambda each: (each.capacity, each.name))
        self.by_place: dict[VolumePlace, list[int]] = {}
        known: dict[int, list[int]] = {}
        for position, volume in enumerate(self.ordered):
            # Equal affinities are mostly one object, whose hash need not be worked out each time.
            affinity = volume.traits.affinity
            here = known.get(id(affinity))
            if here is None:
                checkpoint()
                here = known[id(affinity)] = self.by_place.setdefault(place_of(affinity), [])
            here.append(position)

    @property
    def nbytes(self) -> int:
        """Bytes, about, without the volumes."""
        return 1000 + 100 * len(self.ordered) + 400 * len(self.by_place)


class _Candidates:
    """The volumes that suit a claim; like claims share them while their class has the same ones.

    Args:
        volumes: to choose from.
        claim: that wants one; None where the volume is kept for it.
    """

    __slots__ = ("_claim", "_known", "_modes", "_reached", "_selector", "any", "first", "volumes")

    def __init__(
        self, volumes: _CandidateVolumes, claim: PersistentVolumeClaim | None = None
    ) -> None:
        self.volumes = volumes
        self._claim = claim
        self._known: dict[int, bool] = {}
        self._reached: tuple[NodeTable, Bools] | None = None
        self.first = 0
        if claim is not None:
            self._modes = frozenset(claim.access_modes)
            self._selector = None if claim.selector is None else compile_selector(claim.selector)
            size = claim.request
            self.first = bisect_left(volumes.ordered, size, key=lambda each: each.capacity)
        self.any = self.next(range(len(volumes.ordered)), self.first) is not None

    @property
    def nbytes(self) -> int:
        """Bytes, about, without the volumes and what is reached."""
        return 3000 + (0 if self._claim is None or not self._selector else self._selector.nbytes)

    def suits(self, volume: PersistentVolume) -> bool:
        """Whether the claim may have a volume."""
        if self._claim is None:
            return True
        traits = volume.traits
        suits = self._known.get(id(traits))
        if suits is None:
            suits = (
                _suits(self._claim, volume)
                and self._modes.issubset(traits.access_modes)
                and (self._selector is None or self._selector.matches(dict(traits.labels)))
            )
            if len(self._known) < FEW:
                self._known[id(traits)] = suits
        return suits

    def next(self, positions: Sequence[int], start: int = 0) -> int | None:
        """Where the first position of a volume that suits is, from `start` on; None without any."""
        for at in range(start, len(positions)):
            checkpoint()
            if self.suits(self.volumes.ordered[positions[at]]):
                return at
        return None

    def reached(self, snapshot: Snapshot) -> Bools:
        """[slots] nodes that reach a volume that suits; worked out once for a node table."""
        known = self._reached
        if known is None or known[0] is not snapshot.nodes:
            by_place = self.volumes.by_place.items() if self.any else ()
            places = [
                place
                for place, positions in by_place
                if self.next(positions, bisect_left(positions, self.first)) is not None
            ]
            known = self._reached = (snapshot.nodes, any_reaches(snapshot, places))
        return known[1]


def _candidates(
    snapshot: Snapshot, claim: PersistentVolumeClaim, known: dict[str, _CandidateVolumes]
) -> _Candidates:
    """Volumes that a claim may have; a volume that is kept for it is the only one.

    Each node that does not reach it has none, whatever else is there.
    """
    checkpoint()
    named = claim.storage_class or ""
    for volume in snapshot.objects.volume_for_claim(claim.namespace, claim.name):
        checkpoint()
        if (
            volume.claim is not None
            and volume.claim.uid in ("", claim.uid)
            and volume.storage_class == named
            and _suits(claim, volume)
        ):
            # A pod may name the claim twice.
            key = f"{volume.name}/"
            return _Candidates(known.setdefault(key, _CandidateVolumes([volume])))
    return _available(snapshot, claim, known)


def _available(
    snapshot: Snapshot, claim: PersistentVolumeClaim, known: dict[str, _CandidateVolumes]
) -> _Candidates:
    """Of the class; the same ones for like claims while its volumes are the same."""
    named, kept = claim.storage_class or "", snapshot.objects.matching
    of_class = snapshot.objects.volumes_of_class(named)
    if not of_class:
        return _Candidates(known.setdefault("/", _CandidateVolumes(())))
    key = (
        named,
        claim.request,
        frozenset(claim.access_modes),
        claim.volume_mode or FILESYSTEM,
        claim.attributes_class or "",
        claim.selector,
    )
    found = kept.get(key)
    # All claims of one question take from the same volumes, lest two take one.
    if (
        isinstance(found, _Candidates)
        and found.volumes.of_class is of_class
        and known.setdefault(named, found.volumes) is found.volumes
    ):
        return found
    volumes = known.get(named)
    if volumes is None:
        last = kept.get(named)
        same = isinstance(last, _CandidateVolumes) and last.of_class is of_class
        volumes = last if isinstance(last, _CandidateVolumes) and same else _free(of_class)
        known[named] = volumes
        kept.put(named, volumes, 0, ((volumes, volumes.nbytes),))
    try:
        found = _Candidates(volumes, claim)
    except SelectorError:
        return _Candidates(known.setdefault("/", _CandidateVolumes(())))
    size = found.nbytes + snapshot.nodes.capacity
    kept.put(key, found, size, ((volumes, volumes.nbytes),))
    return found


def _free(of_class: Mapping[str, PersistentVolume]) -> _CandidateVolumes:
    return _CandidateVolumes([each for each in of_class.values() if each.claim is None], of_class)


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """What also a volume that is kept for the claim has to have."""
    return (
        volume.capacity >= claim.request
        and (volume.volume_mode or FILESYSTEM) == (claim.volume_mode or FILESYSTEM)
        and (volume.attributes_class or "") == (claim.attributes_class or "")
        and not volume.terminating
    )


# ------------------------------ one for each


def _one_each(
    snapshot: Snapshot, candidates: Sequence[_Candidates], nodes: Bools
) -> Iterator[Bools]:
    """Each claim takes a volume of its own; nodes that reach the same volumes are alike."""
    every = {id(each.volumes): each.volumes for each in candidates}
    places = dict.fromkeys(place for each in every.values() for place in each.by_place)
    numbers = {place: number for number, place in enumerate(places)}
    by_number = {
        key: {numbers[place]: positions for place, positions in volumes.by_place.items()}
        for key, volumes in every.items()
    }
    slots = np.flatnonzero(nodes)
    alike = AlikeNodes(snapshot, list(places), slots)
    # A byte for each claim and each group.
    missed = [bytearray(len(alike.first)) for _ in candidates]
    for group in range(len(alike.first)):
        here = list(alike.places(group))
        left = {
            key: sorted(chain.from_iterable(found.get(number, ()) for number in here))
            for key, found in by_number.items()
        }
        for position, each in enumerate(candidates):
            checkpoint()
            if not _takes_one(each, left[id(each.volumes)]):
                missed[position][group] = True
    for row in missed:
        without = np.zeros_like(nodes)
        without[slots] = np.frombuffer(row, np.bool_)[alike.ids]
        yield without


def _takes_one(claim: _Candidates, left: list[int]) -> bool:
    """Whether a claim finds a volume among those that are left, which it takes."""
    at = claim.next(left, bisect_left(left, claim.first)) if claim.any and left else None
    if at is None:
        return False
    del left[at]
    return True
