"""What a pod takes once it is placed that a state does not count: volumes and devices to choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.dynamic_resources import unallocated
from topospread.service.fit.pod_claims import claims_of, class_of, is_bound, waits_for_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.fit.question import FitQuestion

TAKEN_BEFORE: Final = "volumes and devices that pods placed before take"


def takes(asked: FitQuestion) -> Iterator[str]:
    """What the pod's claims are to choose from; what two pods share, the first takes part of.

    It is a claim itself that waits for its first pod, the free volumes of a class, the devices.
    """
    objects = asked.snapshot.objects
    for _, claim, _ in claims_of(asked) if asked.demand.volumes else ():
        if claim is None or is_bound(claim) or not waits_for_pod(claim, class_of(asked, claim)):
            continue
        yield f"claim {claim.ref.key}"
        named = claim.storage_class or ""
        if any(volume.claim is None for volume in objects.volumes_of_class(named).values()):
            yield f"class {named}"
    if unallocated(asked):
        yield "devices"
