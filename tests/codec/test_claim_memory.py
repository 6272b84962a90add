"""How much claims and volumes add to a replica: measured at a part of a large cluster."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.codec.rows import ChangeDecoder
from topospread.codec.stored import stored
from topospread.index.builder import Builder
from topospread.store.model import Kind
from topospread_client import object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.store.model import StoredObject

PODS: Final = 6_000
MOST: Final = 160_000_000 * PODS // 150_000
"""Bytes: the part of 160 MB, which 150,000 pods with a claim and a volume each may add."""

_BATCH: Final = 500
_NODES: Final = 500


def cluster(pods: int, *, with_claims: bool) -> Iterator[dict[str, object]]:
    """Pods of StatefulSets as they are in a cloud: dynamically provisioned volumes in three zones.

    In the order in which a replica loads them.
    """
    for number in range(pods):
        app, replica = divmod(number, 10)
        spec: dict[str, object] = {
            "nodeName": f"node-{number % _NODES}",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        }
        if with_claims:
            source = {"claimName": f"data-app-{app}-{replica}"}
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": source}]
        yield {
            "kind": "Pod",
            "metadata": {
                "name": f"app-{app}-{replica}",
                "namespace": f"team-{app % 100}",
                "uid": str(uuid.UUID(int=number)),
                # As a StatefulSet's controller adds it: with claims or without, each is a class.
                "labels": {
                    "app": f"app-{app}",
                    "statefulset.kubernetes.io/pod-name": f"app-{app}-{replica}",
                },
            },
            "spec": spec,
            "status": {"phase": "Running"},
        }
    if not with_claims:
        return
    for number in range(pods):
        yield {"kind": "PersistentVolume", **_volume(number)}
    for number in range(pods):
        yield {"kind": "PersistentVolumeClaim", **_claim(number)}


def _names(number: int) -> tuple[str, str, str, str]:
    app, replica = divmod(number, 10)
    uid = str(uuid.UUID(int=number + 2**100))
    return f"data-app-{app}-{replica}", f"team-{app % 100}", uid, f"pvc-{uid}"


def _volume(number: int) -> dict[str, object]:
    claim, namespace, uid, name = _names(number)
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"z{number % 3}"]}
    return {
        "metadata": {"name": name, "uid": str(uuid.UUID(int=number + 2**101))},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "claimRef": {"namespace": namespace, "name": claim, "uid": uid},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{number:017x}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            "storageClassName": "gp3",
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound"},
    }


def _claim(number: int) -> dict[str, object]:
    claim, namespace, uid, name = _names(number)
    annotations = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.kubernetes.io/selected-node": f"node-{number % _NODES}",
    }
    return {
        "metadata": {
            "name": claim,
            "namespace": namespace,
            "uid": uid,
            "annotations": annotations,
            "labels": {"app": f"app-{number // 10}"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": "gp3",
            "volumeMode": "Filesystem",
            "volumeName": name,
        },
        "status": {"phase": "Bound"},
    }


def _stored(manifest: dict[str, object]) -> StoredObject:
    message = object_from_manifest(manifest)
    assert message is not None
    return stored(message)


def added(pods: int, *, with_claims: bool) -> int:
    """Bytes that a replica's index of the cluster takes."""
    decoder, builder = ChangeDecoder(), Builder()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        stream = map(_stored, cluster(pods, with_claims=with_claims))
        while batch := list(islice(stream, _BATCH)):
            builder.fold([decoder.change(each.key, each) for each in batch])
        del batch, stream
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    objects = builder.snapshot.objects
    assert sum(1 for _ in objects.values("PersistentVolumeClaim")) == pods * with_claims
    return after - before


def test_claims_and_volumes_of_all_pods_take_little() -> None:
    assert Kind.PERSISTENT_VOLUME < Kind.PERSISTENT_VOLUME_CLAIM, "the order in which kinds load"
    assert added(PODS, with_claims=True) - added(PODS, with_claims=False) <= MOST
