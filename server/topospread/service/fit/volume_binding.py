"""VolumeBinding: nodes that reach the pod's volumes, or where it can get those that it has not.

A claim that waits for its pod takes the smallest free volume of its class that the node reaches,
or else its class's driver makes one, if it can for this node. Where two volumes are as small, which
one is taken is anybody's guess upstream; here it is the first by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.objects import NodeExpression, NodeRequirements, NodeTerm
from topospread.kube.selectors import IN
from topospread.kube.volume_migration import MIGRATIONS, migrated_affinity
from topospread.kube.volumes import (
    LOST,
    NO_PROVISIONER,
    CSIStorageCapacity,
    PersistentVolume,
    StorageClass,
)
from topospread.service.fit.pod_claims import (
    claims_of,
    class_of,
    gaps,
    is_bound,
    waits_for_pod,
)
from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.service.fit.static_volumes import unmatched
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.objects import LabelSelector
    from topospread.kube.volumes import PersistentVolumeClaim
    from topospread.service.fit.pod_claims import PodClaim
    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools, Ints

__all__ = ["NAME", "gaps", "pre_filter", "refusals"]

NAME: Final = "VolumeBinding"
REASON_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_NONE_TO_BIND: Final = "node(s) didn't find available persistent volumes to bind"
REASON_TOO_LITTLE: Final = "node(s) did not have enough free storage"
REASON_NO_VOLUME: Final = (
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

_REASONS: Final = (REASON_AFFINITY, REASON_NONE_TO_BIND, REASON_TOO_LITTLE, REASON_NO_VOLUME)
"""A node may have several."""


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Refuse the pod where it cannot have one of its claims, or has to wait for its volume."""
    claims = claims_of(asked)
    reason = next(filter(None, (_unusable(asked, each) for each in claims)), "")
    if not reason and any(_not_bound_yet(asked, each.claim) for each in claims):
        reason = REASON_UNBOUND
    if not reason:
        return None
    return PreFiltered(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,)))


def _unusable(asked: FitQuestion, each: PodClaim) -> str:
    """Why the pod cannot have a claim; empty if it can."""
    name, claim, ephemeral = each
    if claim is None:
        if not ephemeral:
            return each.missing
        made = "ephemeral volume controller to create the persistentvolumeclaim"
        return f'waiting for {made} "{name}"'
    if claim.phase == LOST:
        lost = f'bound to non-existent persistentvolume "{claim.volume_name}"'
        return f'persistentvolumeclaim "{name}" {lost}'
    if claim.terminating:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if ephemeral and (not claim.controller_uid or claim.controller_uid != asked.uid):
        pod = f"{asked.pod.namespace}/{asked.name}"
        return f"PVC {claim.ref.key} was not created for pod {pod} (pod is not owner)"
    return ""


def _not_bound_yet(asked: FitQuestion, claim: PersistentVolumeClaim | None) -> bool:
    """Whether a claim's volume is bound to it without regard to the pod, and that is to come."""
    if claim is None or is_bound(claim):
        return False
    storage_class = class_of(asked, claim)
    if storage_class is None and claim.storage_class and not claim.volume_name:
        return not asked.snapshot.objects.unknown(StorageClass.__name__)
    return not waits_for_pod(claim, storage_class)


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes that do not reach a volume of the pod, or where it cannot get one."""
    claims = [each.claim for each in claims_of(asked) if each.claim is not None]
    if not claims:
        return None
    bound = [claim for claim in claims if is_bound(claim)]
    waiting = [
        (claim, storage_class)
        for claim in claims
        if not is_bound(claim)
        and (storage_class := class_of(asked, claim)) is not None
        and waits_for_pod(claim, storage_class)
    ]
    found = dict([*_of_bound(asked, bound), *_of_waiting(asked, waiting)])
    if not found:
        return None
    reasons = [(each, found[each]) for each in _REASONS if each in found]
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons))


Reasons = list[tuple[str, "Bools"]]
Waiting = tuple["PersistentVolumeClaim", StorageClass]


def _of_bound(asked: FitQuestion, claims: Sequence[PersistentVolumeClaim]) -> Reasons:
    """Each claim is looked at on the nodes that reach those before it."""
    objects = asked.snapshot.objects
    left, away = asked.snapshot.alive, np.zeros_like(asked.snapshot.alive)
    for claim in claims:
        volume = objects.volume(claim.volume_name)
        if volume is not None:
            reached = _reached(asked, volume)
            away, left = away | (left & ~reached), left & reached
        elif not objects.unknown(PersistentVolume.__name__):
            return [(REASON_AFFINITY, away), (REASON_NO_VOLUME, left)]
    return [(REASON_AFFINITY, away)] if claims else []


def _reached(asked: FitQuestion, volume: PersistentVolume) -> Bools:
    """[slots] nodes that reach a volume; of a migrated in-tree plugin as its driver says."""
    reached = asked.snapshot.selected(volume.affinity)
    if not volume.in_tree or volume.driver not in MIGRATIONS:
        return reached
    affinity = migrated_affinity(volume)
    if affinity == volume.affinity:
        return reached
    migrated = asked.snapshot.volumes.migrated(volume.driver)
    return np.where(migrated, asked.snapshot.selected(affinity), reached)


def _of_waiting(asked: FitQuestion, claims: Sequence[Waiting]) -> Reasons:
    """Nodes without a volume to bind, and those without room for one that is to be made."""
    if not claims:
        return []
    left = asked.snapshot.alive
    chosen = [claim.selected_node for claim, _ in claims if claim.selected_node]
    for name in chosen:
        left = left & asked.snapshot.nodes.marks([asked.snapshot.slot(name)])
    nothing = ~left
    short = np.zeros_like(left)
    provided: dict[str, tuple[Bools, Ints | None]] = {}
    for claim, storage_class, wanted in _to_be_made(asked, claims, left):
        checkpoint()
        wanted = wanted & left
        if not wanted.any():
            continue
        name = storage_class.name
        if name not in provided:
            provided[name] = _served(asked, storage_class), _capacity(asked, storage_class)
        served, capacity = provided[name]
        sufficient = asked.snapshot.alive
        if capacity is not None and claim.request:
            sufficient = capacity >= claim.request
        nothing = nothing | (wanted & ~served)
        short = short | (wanted & served & ~sufficient)
        left = left & (~wanted | (served & sufficient))
    return [(REASON_NONE_TO_BIND, nothing), (REASON_TOO_LITTLE, short)]


def _to_be_made(
    asked: FitQuestion, claims: Sequence[Waiting], nodes: Bools
) -> Iterator[tuple[PersistentVolumeClaim, StorageClass, Bools]]:
    """Claims whose volume has to be made, with [slots] where; in the order they are looked at."""
    for claim, storage_class in claims:
        if claim.selected_node:
            yield claim, storage_class, nodes
    if asked.snapshot.objects.unknown(PersistentVolume.__name__):
        return
    free = sorted(
        (each for each in claims if not each[0].selected_node), key=lambda each: each[0].request
    )
    without = unmatched(asked.snapshot, [claim for claim, _ in free], nodes)
    for (claim, storage_class), where in zip(free, without, strict=True):
        yield claim, storage_class, where


def _served(asked: FitQuestion, storage_class: StorageClass) -> Bools:
    """[slots] nodes for which the class's driver makes volumes."""
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.zeros_like(asked.snapshot.alive)
    topologies = storage_class.allowed_topologies
    if not topologies:
        return asked.snapshot.alive
    terms = tuple(
        NodeTerm(tuple(NodeExpression(key, IN, values) for key, values in term))
        for term in topologies
    )
    return asked.snapshot.selected(NodeRequirements(terms=terms))


def _capacity(asked: FitQuestion, storage_class: StorageClass) -> Ints | None:
    """[slots] bytes of the largest volume that the class's driver can make there; None: any."""
    objects = asked.snapshot.objects
    driver = objects.csi_driver(storage_class.provisioner)
    if driver is None or not driver.storage_capacity:
        return None
    if objects.unknown(CSIStorageCapacity.__name__):
        return None
    largest: dict[LabelSelector, int] = {}
    for each in objects.capacities_of_class(storage_class.name):
        checkpoint()
        if (topology := each.node_topology) is not None:
            largest[topology] = max(_largest(each), largest.get(topology, -1))
    capacity = np.full(asked.snapshot.alive.size, -1, np.int64)
    for topology, size in largest.items():
        checkpoint()
        here = asked.snapshot.selected(_requirements(topology))
        np.maximum(capacity, size, out=capacity, where=here)
    return capacity


def _largest(capacity: CSIStorageCapacity) -> int:
    """The largest volume that can be made there, in bytes; −1 where it is not reported."""
    reported = capacity.maximum_volume_size
    if reported is None:
        reported = capacity.capacity
    return -1 if reported is None else reported


def _requirements(selector: LabelSelector) -> NodeRequirements | None:
    """The nodes that a selector of labels selects: all by an empty one."""
    labels = [NodeExpression(key, IN, (value,)) for key, value in selector.match_labels]
    others = [NodeExpression(e.key, e.operator, e.values) for e in selector.match_expressions]
    if not labels and not others:
        return None
    return NodeRequirements(terms=(NodeTerm((*labels, *others)),))
