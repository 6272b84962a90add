"""The claims of a pod, as the volume filters look at them; what they cannot look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.kube.demands import PodVolume, claim_name
from topospread.kube.volumes import (
    BOUND,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.service.fit.question import FitQuestion

CLAIMS_OF_NO_POD: Final = "volumes (claims that are made with the pod)"


class PodClaim(NamedTuple):
    """A claim that a pod names, or that is made for it.

    Attributes:
        claim: None where there is none of that name.
        ephemeral: it is made for the pod, and has to be its own.
    """

    name: str
    claim: PersistentVolumeClaim | None
    ephemeral: bool

    @property
    def missing(self) -> str:
        """How the API says that there is none."""
        return f'persistentvolumeclaim "{self.name}" not found'


def claims_of(asked: FitQuestion) -> Sequence[PodClaim]:
    """The claims of the pod's volumes, in their order.

    Without those that are still to be made with the pod, and without those that may be there
    although they are not known.
    """
    objects, namespace = asked.snapshot.objects, asked.pod.namespace
    found = []
    for volume in asked.demand.volumes:
        name = claim_name(volume, asked.name)
        if not name or _is_to_be_made(asked, volume):
            continue
        claim = objects.claim(namespace, name)
        if claim is not None or not objects.unknown(PersistentVolumeClaim.__name__):
            found.append(PodClaim(name, claim, volume.ephemeral))
    return found


def _is_to_be_made(asked: FitQuestion, volume: PodVolume) -> bool:
    """Whether a claim is made with the pod: an ephemeral one's when the pod has been stored."""
    if volume.ephemeral:
        return not asked.uid
    name = claim_name(volume, asked.name)
    return volume.from_template and not (
        name and asked.snapshot.objects.claim(asked.pod.namespace, name)
    )


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim has a volume, and the controller said so.

    Upstream looks for the annotation alone. What people write by hand, which has no uid, often has
    no more than the phase, which the controller writes after it.
    """
    said = claim.bind_completed or (claim.phase == BOUND and not claim.uid)
    return said and bool(claim.volume_name)


def class_of(asked: FitQuestion, claim: PersistentVolumeClaim) -> StorageClass | None:
    """The class of a claim; None where it has none, or there is no such class."""
    if not claim.storage_class:
        return None
    return asked.snapshot.objects.storage_class(claim.storage_class)


def waits_for_pod(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Whether a claim that is not bound gets its volume once its pod has a node."""
    if storage_class is None or claim.volume_name:
        return False
    return storage_class.binding_mode == WAIT_FOR_FIRST_CONSUMER


def gaps(asked: FitQuestion) -> Iterator[str]:
    """What the volume filters have to know of this pod's claims and do not."""
    volumes = asked.demand.volumes
    if any(_is_to_be_made(asked, each) for each in volumes):
        yield CLAIMS_OF_NO_POD
    if any(each.disk is None for each in volumes):
        yield from unknown(asked, _needed(asked))


def unknown(asked: FitQuestion, kinds: Iterable[type]) -> Iterator[str]:
    """A text for each reason why kinds are not known."""
    reasons = (asked.snapshot.objects.unknown(kind.__name__) for kind in kinds)
    yield from dict.fromkeys(f"volumes ({reason})" for reason in reasons if reason)


def provisioned_for(asked: FitQuestion) -> Iterator[str]:
    """The drivers that are to make volumes for the pod's claims."""
    for _, claim, _ in claims_of(asked):
        if claim is None or is_bound(claim):
            continue
        storage_class = class_of(asked, claim)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            continue
        if waits_for_pod(claim, storage_class):
            yield storage_class.provisioner


def _needed(asked: FitQuestion) -> Iterator[type]:
    """The kinds that decide about the pod's claims."""
    yield PersistentVolumeClaim
    claims = [claim for _, claim, _ in claims_of(asked) if claim is not None]
    if any(map(is_bound, claims)):
        yield PersistentVolume
    waiting = [claim for claim in claims if not is_bound(claim)]
    if any(claim.storage_class for claim in waiting):
        yield StorageClass
    if any(waits_for_pod(claim, class_of(asked, claim)) for claim in waiting):
        yield PersistentVolume
        drivers = list(provisioned_for(asked))
        if drivers:
            yield CSIDriver
        found = [asked.snapshot.objects.csi_driver(name) for name in drivers]
        if any(driver is not None and driver.storage_capacity for driver in found):
            yield CSIStorageCapacity
