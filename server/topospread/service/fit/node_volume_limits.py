"""NodeVolumeLimits: nodes take so many volumes of a driver, and only of drivers that run there.

A claim that is missing, or another pod's, counts nothing here: VolumeBinding has refused the pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.attached import (
    NOT_INSTALLED,
    CountedVolume,
    volume_of_claim,
    volume_of_disk,
)
from topospread.kube.volumes import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from topospread.service.fit.pod_claims import claims_of, unknown
from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"


def gaps(asked: FitQuestion) -> Iterable[str]:
    """Kinds by which volumes are counted, where the pod has any that count."""
    if not _volumes(asked):
        return ()
    return unknown(
        asked,
        (
            CSINode,
            CSIDriver,
            VolumeAttachment,
            PersistentVolumeClaim,
            PersistentVolume,
            StorageClass,
        ),
    )


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes without a driver that has to be there, and those with too many volumes."""
    volumes = _volumes(asked)
    if not volumes:
        return None
    # A node has the first driver alone.
    found = [
        (f"{driver} CSI driver is not installed on the node", here)
        for driver, here in _missing(asked, volumes)
    ]
    found.append((REASON, _full(asked, volumes)))
    return refusing(*(Rule(NAME, Code.UNSCHEDULABLE, [each]) for each in found))


def _volumes(asked: FitQuestion) -> Mapping[CountedVolume, Bools]:
    """The pod's volumes, and [slots] where each counts."""
    found = [volume_of_disk(each.disk) for each in asked.demand.volumes if each.disk is not None]
    snapshot = asked.snapshot
    claims = [each.claim for each in claims_of(asked) if each.claim is not None]
    found += [volume_of_claim(snapshot.objects, claim) for claim in claims]
    counted: dict[CountedVolume, Bools] = {}
    with_drivers: Bools | None = None
    for volume in found:
        if volume is None:
            continue
        checkpoint()
        where = snapshot.alive
        if volume.plugin:
            if with_drivers is None:
                with_drivers = snapshot.volumes.with_drivers()
            where = with_drivers
        same = volume._replace(plugin="")
        counted[same] = counted[same] | where if same in counted else where
    return counted


def _missing(
    asked: FitQuestion, volumes: Mapping[CountedVolume, Bools]
) -> Iterator[tuple[str, Bools]]:
    """Drivers that have to run on a node for its volumes' pods, and [slots] where they do not."""
    snapshot = asked.snapshot
    if not asked.rules.gates.volume_limit_scaling or snapshot.objects.unknown(CSINode.__name__):
        return
    by_driver: dict[str, Bools] = {}
    for volume, where in volumes.items():
        checkpoint()
        known = by_driver.get(volume.driver)
        by_driver[volume.driver] = where if known is None else known | where
    for name, where in sorted(by_driver.items()):
        driver = snapshot.objects.csi_driver(name)
        checkpoint()
        if driver is not None and driver.prevents_scheduling_if_missing:
            limits = snapshot.volumes.limits(name)
            yield name, where & (limits == NOT_INSTALLED)


def _full(asked: FitQuestion, volumes: Mapping[CountedVolume, Bools]) -> Bools:
    """[slots] nodes that take fewer volumes of a driver than they would have with the pod."""
    snapshot, table = asked.snapshot, asked.snapshot.volumes
    full = np.zeros_like(snapshot.alive)
    by_driver: dict[str, dict[CountedVolume, Bools]] = {}
    for volume, where in volumes.items():
        by_driver.setdefault(volume.driver, {})[volume] = where
    for driver, wanted in by_driver.items():
        limits = table.limits(driver)
        taken = table.taken(driver)
        new = np.zeros_like(taken)
        for where in wanted.values():
            checkpoint()
            new += where
        over = (limits != NOT_INSTALLED) & (new > 0) & (taken + new > limits)
        # Of a volume that a pod there has, there is no other; nodes that have room are not asked.
        for slot in np.flatnonzero(over & ~full).tolist():
            there = table.of_pods_on(slot)
            left = 0
            for volume, where in wanted.items():
                checkpoint()
                left += bool(where[slot]) and volume not in there
            full[slot] = left > 0 and taken[slot] + left > limits[slot]
    return full
