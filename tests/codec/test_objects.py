"""Volumes, claims and the like: what is stored of them, what decides, what is read back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from topospread.codec.rows import ChangeDecoder
from topospread.codec.stored import object_from_stored, stored
from topospread.index.changes import ObjectChange
from topospread.kube.objects import NodeExpression, NodeRequirements, NodeTerm
from topospread.kube.volumes import (
    ClaimRef,
    ClaimSpec,
    ClusterValue,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeTraits,
)
from topospread_client import manifest_from_object, object_from_manifest

ZONE = "topology.kubernetes.io/zone"
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1", "labels": {ZONE: "a"}, "annotations": {"other": "gone"}},
    "spec": {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "claimRef": {"namespace": "shop", "name": "data", "uid": "u-1", "kind": "gone"},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "gone"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
                ]
            }
        },
    },
    "status": {"phase": "Bound"},
}
CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data",
        "namespace": "shop",
        "uid": "u-1",
        "labels": {"app": "db"},
        "annotations": {"pv.kubernetes.io/bind-completed": "yes", "other": "gone"},
        "ownerReferences": [{"kind": "Pod", "name": "db-0", "uid": "p-1", "controller": True}],
    },
    "spec": {"volumeName": "pv-1", "resources": {"requests": {"storage": "5Gi"}}},
    "status": {"phase": "Bound"},
}
NODE: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {
        "name": "a1",
        "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
    },
    "spec": {
        "drivers": [{"name": "d", "nodeID": "gone", "allocatable": {"count": 3}}, {"name": "e"}]
    },
}


def read(manifest: dict[str, Any]) -> ClusterValue | None:
    """The value that a replica has of it."""
    message = object_from_manifest(manifest)
    assert message is not None
    kept = stored(message)
    change = ChangeDecoder().change(kept.key, kept)
    assert isinstance(change, ObjectChange)
    return change.value


def digest(manifest: dict[str, Any]) -> bytes:
    """What decisions rest on."""
    message = object_from_manifest(manifest)
    assert message is not None
    return stored(message).digest


def test_values_have_what_decides() -> None:
    in_zone = NodeTerm((NodeExpression(ZONE, "In", ("a",)),))
    assert read(VOLUME) == PersistentVolume(
        "pv-1",
        VolumeTraits(
            phase="Bound",
            storage_class="fast",
            capacity=10 << 30,
            access_modes=("ReadWriteOnce",),
            affinity=NodeRequirements(terms=(in_zone,)),
            labels=((ZONE, "a"),),
            driver="ebs.csi.aws.com",
        ),
        "vol-1",
        ClaimRef("shop/data", "u-1"),
    )
    assert read(CLAIM) == PersistentVolumeClaim(
        ClaimRef("shop/data", "u-1"),
        ClaimSpec(phase="Bound", request=5 << 30, bind_completed=True),
        "pv-1",
        controller_uid="p-1",
    )
    assert read(NODE) == CSINode(
        "a1", (("d", 3), ("e", None)), frozenset({"kubernetes.io/aws-ebs"})
    )


@pytest.mark.parametrize("manifest", [VOLUME, CLAIM, NODE], ids=lambda each: each["kind"])
def test_fields_that_decide_nothing_are_not_stored(manifest: dict[str, Any]) -> None:
    message = object_from_manifest(manifest)
    assert message is not None
    shown = manifest_from_object(object_from_stored(stored(message)))
    assert "gone" not in str(shown)
    assert (shown["apiVersion"], shown["kind"]) == (manifest["apiVersion"], manifest["kind"])
    again = object_from_manifest(shown)
    assert again is not None
    assert stored(again) == stored(message)


@pytest.mark.parametrize(
    ("manifest", "path", "value", "decides"),
    [
        (VOLUME, ("metadata", "labels"), {}, True),
        (VOLUME, ("status", "phase"), "Released", True),
        (VOLUME, ("metadata", "creationTimestamp"), "2026-01-01T00:00:00Z", False),
        (VOLUME, ("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z", True),
        (VOLUME, ("metadata", "annotations"), {}, False),
        (CLAIM, ("metadata", "labels"), {}, False),
        (CLAIM, ("metadata", "annotations"), {}, True),
        (CLAIM, ("spec", "volumeName"), "pv-2", True),
        (CLAIM, ("metadata", "uid"), "u-2", True),
        (NODE, ("spec", "drivers"), [], True),
    ],
)
def test_a_change_matters_where_it_decides(
    manifest: dict[str, Any], path: tuple[str, str], value: object, decides: bool
) -> None:
    changed = deepcopy(manifest)
    changed[path[0]][path[1]] = value
    assert (digest(changed) != digest(manifest)) == decides


@pytest.mark.parametrize(
    ("source", "driver", "handle"),
    [
        ({"awsElasticBlockStore": {"volumeID": "v"}}, "kubernetes.io/aws-ebs", "v"),
        ({"azureDisk": {"diskName": "n", "diskURI": "u"}}, "kubernetes.io/azure-disk", "u"),
        ({"gcePersistentDisk": {"pdName": "p"}}, "kubernetes.io/gce-pd", "p"),
        ({"nfs": {"server": "s", "path": "/"}}, "", ""),
    ],
)
def test_in_tree_sources_are_named_by_their_plugin(
    source: dict[str, Any], driver: str, handle: str
) -> None:
    found = read({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": source})
    assert isinstance(found, PersistentVolume)
    assert (found.driver, found.handle, found.in_tree) == (driver, handle, bool(driver))
