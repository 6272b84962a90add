"""VolumeZone: the zone and region labels of the pod's volumes, where nodes have any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.objects import ZONE_LABEL
from topospread.kube.volume_migration import BETA_REGION, BETA_ZONE, REGION, ZONE_SEPARATOR
from topospread.kube.volumes import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, StorageClass
from topospread.service.fit.pod_claims import claims_of
from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.volumes import PersistentVolumeClaim
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "VolumeZone"
REASON: Final = "node(s) had no available volume zone"

KEYS: Final = {
    BETA_ZONE: ZONE_LABEL,
    BETA_REGION: REGION,
    ZONE_LABEL: ZONE_LABEL,
    REGION: REGION,
}
"""Labels of volumes, and the label of a node that does where it lacks the same."""


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Refuse the pod where a volume is missing, or will be bound without regard to the pod."""
    for each in claims_of(asked):
        if each.ephemeral:
            continue
        reason = each.missing if each.claim is None else _unknown_volume(asked, each.claim)
        if reason:
            return PreFiltered(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,)))
    return None


def _unknown_volume(asked: FitQuestion, claim: PersistentVolumeClaim) -> str:
    """Why it cannot be said where the claim's volume is; empty where it can, or it is not known."""
    objects = asked.snapshot.objects
    if claim.volume_name:
        if objects.volume(claim.volume_name) or objects.unknown(PersistentVolume.__name__):
            return ""
        return f'persistentvolume "{claim.volume_name}" not found'
    if not claim.storage_class:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = objects.storage_class(claim.storage_class)
    if storage_class is None:
        if objects.unknown(StorageClass.__name__):
            return ""
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    if storage_class.binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return ""
    return "PersistentVolume had no name"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes in another zone or region than a volume."""
    wanted = set(_wanted(asked))
    if not wanted:
        return None
    domains = asked.snapshot.domains
    refused = np.zeros_like(asked.snapshot.alive)
    for key, values in sorted(wanted, key=repr):
        checkpoint()
        refused |= ~_has(asked, key, values)
    # A cluster of one zone may have nodes without any of these labels.
    labelled = np.zeros_like(refused)
    for key in KEYS:
        labelled |= domains(key).ids >= 0
    refused &= labelled
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, refused)]))


def _wanted(asked: FitQuestion) -> Iterator[tuple[str, frozenset[str]]]:
    """Label keys, each with the values of which a node needs one."""
    for _, claim, ephemeral in claims_of(asked):
        if claim is None or ephemeral or not claim.volume_name:
            continue
        volume = asked.snapshot.objects.volume(claim.volume_name)
        for key, value in () if volume is None else volume.labels:
            if key in KEYS:
                values = frozenset(part.strip() for part in value.split(ZONE_SEPARATOR))
                # A label with an empty part is none.
                if "" not in values:
                    yield key, values


def _has(asked: FitQuestion, key: str, values: frozenset[str]) -> Bools:
    """[slots] whether the node's label, or the newer one in its stead, has one of the values."""
    domains = asked.snapshot.domains(key)
    found = domains.having(values)
    if KEYS[key] != key:
        newer = asked.snapshot.domains(KEYS[key])
        found = np.where(domains.ids < 0, newer.having(values), found)
    return found
