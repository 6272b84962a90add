"""VolumeRestrictions: disks that no two pods share, and claims that one pod has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.demands import AWS_EBS, GCE_PD, ISCSI, RBD
from topospread.kube.volumes import claim_key
from topospread.service.fit.pod_claims import claims_of
from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.index.snapshot import Snapshot
    from topospread.service.fit.nominated import Nominated
    from topospread.service.fit.pod_claims import PodClaim
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "VolumeRestrictions"
REASON_DISK: Final = "node(s) had no available disk"
REASON_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod"
)
EXCLUSIVE: Final = (AWS_EBS, GCE_PD, ISCSI, RBD)
"""Plugins whose disks pods may not share on a node, but for reading perhaps."""

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Refuse the pod where a claim that it names is missing."""
    for each in claims_of(asked):
        if each.claim is None and not each.ephemeral:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return PreFiltered(Status(code, (each.missing,)))
    return None


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes with a disk of the pod; all of them where a claim of its own has another pod."""
    return _refusals(_disks_taken(asked, asked.snapshot), _in_use(asked))


def refusals_beside(asked: FitQuestion, nominated: Nominated) -> Refusals | None:
    """The nodes with nominated pods that are refused if these run there.

    Where the plugin has nothing to look at without them, it is skipped with them, too. Of their
    claims the names alone are compared.
    """
    in_use = _in_use(asked)
    disks = [each.disk for each in asked.demand.volumes if each.disk is not None]
    if in_use is None and not any(disk.plugin in EXCLUSIVE for disk in disks):
        return None
    if in_use is None:
        names = {each.name for each in _exclusive(asked)}
        slots = [
            slot
            for slot, _, row in nominated.pods
            for claim in (() if row.holds is None else row.holds.claims)
            if claim.partition("/")[2] in names
        ]
        in_use = _on(asked, slots) if slots else None
    return nominated.only_theirs(_refusals(_disks_taken(asked, nominated.snapshot), in_use))


def _refusals(disks: Bools | None, in_use: Bools | None) -> Refusals | None:
    return refusing(
        *(
            Rule(NAME, Code.UNSCHEDULABLE, [(reason, refused)])
            for reason, refused in ((REASON_DISK, disks), (REASON_IN_USE, in_use))
            if refused is not None
        )
    )


def _disks_taken(asked: FitQuestion, snapshot: Snapshot) -> Bools | None:
    """[slots] nodes where pods have a disk of the pod; None for none."""
    disks = [each.disk for each in asked.demand.volumes if each.disk is not None]
    slots = snapshot.holdings.slots_in_conflict(disks)
    return _on(asked, slots) if slots else None


def _in_use(asked: FitQuestion) -> Bools | None:
    """[slots] all nodes, if a pod on any has a claim that one pod may have; None if none has."""
    holdings, namespace = asked.snapshot.holdings, asked.pod.namespace
    for each in _exclusive(asked):
        slots = holdings.slots_of_claim(claim_key(namespace, each.name))
        if slots and _on(asked, slots).any():
            return asked.snapshot.alive
    return None


def _exclusive(asked: FitQuestion) -> list[PodClaim]:
    """The claims that the pod names, and that one pod may have."""
    return [
        each
        for each in claims_of(asked)
        if not each.ephemeral
        and each.claim is not None
        and READ_WRITE_ONCE_POD in each.claim.access_modes
    ]


def _on(asked: FitQuestion, slots: Iterable[int]) -> Bools:
    """[slots] the nodes among these."""
    return asked.snapshot.nodes.marks(slots) & asked.snapshot.alive
