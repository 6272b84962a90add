"""In-tree volumes as volumes of the CSI drivers that took their plugins' place.

A node whose CSINode names a plugin as migrated takes its volumes for the driver's. Source:
k8s.io/csi-translation-lib.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.kube.demands import AWS_EBS, AZURE_DISK, CINDER, GCE_PD, PORTWORX
from topospread.kube.objects import ZONE_LABEL, NodeExpression, NodeRequirements, NodeTerm
from topospread.kube.selectors import IN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topospread.kube.volumes import PersistentVolume

REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"

ZONE_SEPARATOR: Final = "__"


class Migration(NamedTuple):
    """The driver that took an in-tree plugin's place.

    Attributes:
        zone: the driver's label of a node's zone; empty for none.
    """

    driver: str
    zone: str = ""


MIGRATIONS: Final[Mapping[str, Migration]] = {
    AWS_EBS: Migration("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    GCE_PD: Migration("pd.csi.storage.gke.io", "topology.gke.io/zone"),
    AZURE_DISK: Migration("disk.csi.azure.com"),
    CINDER: Migration("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    PORTWORX: Migration("pxd.portworx.com"),
}
"""By plugin, those that kube-scheduler translates."""

_AWS_URL: Final = re.compile(r"aws://[^/?#]*(/[^?#]*)")
_AWS_ID: Final = re.compile(r"vol-[^/]*")
_UNSPECIFIED: Final = "UNSPECIFIED"


def migrated_handle(plugin: str, handle: str, labels: Mapping[str, str]) -> str:
    """The driver's name of an in-tree volume; empty where it cannot be told.

    Args:
        plugin: one of MIGRATIONS.
        handle: the plugin's name of it.
        labels: of the PersistentVolume; none for a disk that a pod names itself.
    """
    if plugin == AWS_EBS and handle.startswith("aws://"):
        match = _AWS_URL.match(handle)
        name = match[1].strip("/") if match else ""
        return name if _AWS_ID.fullmatch(name) else ""
    if plugin == GCE_PD:
        return _gce_handle(handle, labels.get(ZONE_LABEL) or labels.get(BETA_ZONE, ""))
    return handle


def _gce_handle(disk: str, zone: str) -> str:
    zones = zone.split(ZONE_SEPARATOR)
    if len(zones) == 1:
        return f"projects/{_UNSPECIFIED}/zones/{zone or _UNSPECIFIED}/disks/{disk}"
    parts = [each.split("-") for each in zones]
    regions = {tuple(each[:2]) for each in parts}
    if len(regions) != 1 or any(len(each) != 3 for each in parts):
        return ""
    return f"projects/{_UNSPECIFIED}/regions/{'-'.join(regions.pop())}/disks/{disk}"


def migrated_affinity(volume: PersistentVolume) -> NodeRequirements | None:
    """The nodes that reach an in-tree volume of MIGRATIONS where its driver serves it.

    Its zone, of its node affinity or else of its labels, stands for the driver's label.
    """
    key, labels = MIGRATIONS[volume.driver].zone, dict(volume.labels)
    if not key:
        return volume.affinity
    terms = () if volume.affinity is None else volume.affinity.terms or ()
    named = {each.key for term in terms for each in term.match_expressions}
    beta = ZONE_LABEL not in named and (
        BETA_ZONE in named or (ZONE_LABEL not in labels and BETA_ZONE in labels)
    )
    zone = BETA_ZONE if beta else ZONE_LABEL
    names = {BETA_REGION: REGION} if beta else {}
    conditions = [each for term in terms for each in term.match_expressions if each.key == zone]
    if any(each.values for each in conditions):
        return NodeRequirements(terms=_renamed(terms, names | {zone: key}))
    terms = _renamed(terms, names)
    zones = {part.strip() for part in labels.get(zone, "").split(ZONE_SEPARATOR)} - {""}
    if not zones:
        return volume.affinity and NodeRequirements(terms=terms)
    condition = NodeExpression(key, IN, tuple(sorted(zones)))
    return NodeRequirements(
        terms=tuple(
            replace(term, match_expressions=(*term.match_expressions, condition))
            for term in terms or (NodeTerm(),)
        )
    )


def _renamed(terms: Iterable[NodeTerm], names: Mapping[str, str]) -> tuple[NodeTerm, ...]:
    """Terms with other label keys."""
    return tuple(
        replace(
            term,
            match_expressions=tuple(
                replace(each, key=names.get(each.key, each.key)) for each in term.match_expressions
            ),
        )
        for term in terms
    )
