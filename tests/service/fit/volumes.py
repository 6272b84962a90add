"""A small cluster with a claim, and what the filters say of a pod there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.core import change_of, pod_of
from topospread.codec.demands import DemandReader
from topospread.index.builder import Builder
from topospread.index.changes import KindChange
from topospread.kube.affinity import compile_requirements
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.spread.settings import Rules
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.reference.objects import Json
    from topospread.service.fit.profile import Suited

KINDS = (
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
)
DRIVER = "ebs.csi.aws.com"

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"pods": "10"}},
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "wait"},
    "provisioner": DRIVER,
    "volumeBindingMode": "WaitForFirstConsumer",
}
STATIC = CLASS | {"provisioner": "kubernetes.io/no-provisioner"}
CAPACITY_OF_DRIVER = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": DRIVER},
    "spec": {"storageCapacity": True},
}


def claim(*, volume: str = "", bound: bool = False, mode: str = "ReadWriteOnce") -> Json:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default", "annotations": annotations},
        "spec": {
            "storageClassName": "wait",
            "volumeName": volume,
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def pod(*volumes: Json, name: str = "p", node: str = "", nominated: str = "") -> Json:
    spec: Json = {"containers": [{"name": "c", "image": "i"}], "volumes": list(volumes)}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
        "status": {"nominatedNodeName": nominated},
    }


CLAIMED = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
EPHEMERAL = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def judged(
    manifest: Json,
    *objects: Json,
    unknown: Mapping[str, str] | None = None,
    rules: Rules = Rules(),  # noqa: B008 - it is frozen
    uid: str = "",
) -> Suited:
    builder = Builder()
    reasons = dict.fromkeys(KINDS, "") | dict(unknown or {})
    builder.fold([change_of(each) for each in (NODE, *objects)])
    builder.fold([KindChange(kind, why) for kind, why in reasons.items()])
    asked = pod_of(manifest)
    demand, _ = DemandReader().of(pod_from_manifest(manifest).SerializeToString())
    name = manifest["metadata"]["name"]
    requirements = compile_requirements(asked.requirements)
    question = FitQuestion(builder.snapshot, asked, requirements, demand, rules, name, uid)
    return suited(question, Fit.ALL)


def fits(found: Suited) -> bool:
    return found.refusal is None and bool(found.nodes[0])


def gaps(found: Suited) -> list[str]:
    """What is not looked at of the cluster's volumes."""
    return [each for each in found.gaps if each.startswith("volumes (")]
