"""Random clusters with volumes, and pods that claim them; names are few, so that they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.reference.volumes import BETA_ZONE, DRIVERS_ZONES, REGION, ZONE

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from tests.reference.objects import Json

HOSTNAME = "kubernetes.io/hostname"

NODES = ["n0", "n1", "n2", "n3"]
ZONES = ["a", "b"]
CLAIMS = ["c0", "c1", "c2", "p-s"]
VOLUMES = ["v0", "v1", "v2", "v3"]
CLASSES = ["wait", "local", "now", "intree"]
DRIVERS = ["ebs.csi.aws.com", "other.csi"]
SIZES = ["1Gi", "2Gi", "3Gi", "5Gi"]


def maybe(draw: DrawFn, chance: int = 3) -> bool:
    """True once in so many times."""
    return bool(draw(st.integers(1, chance)) == 1)


def one_of(draw: DrawFn, *values: Any) -> Any:
    """One of some values."""
    return draw(st.sampled_from(values))


@st.composite
def volume_cases(draw: DrawFn) -> tuple[Json, Json]:
    """A cluster, and a pod that is not in it."""
    cluster = {
        "nodes": [node(draw, name) for name in NODES[: draw(st.integers(1, 4))]],
        "persistentVolumes": [volume(draw, i, each) for i, each in enumerate(VOLUMES)],
        "persistentVolumeClaims": [claim(draw, each) for each in CLAIMS if not maybe(draw, 20)],
        "storageClasses": [storage_class(draw, each) for each in CLASSES if not maybe(draw, 20)],
        "csiNodes": [csi_node(draw, each) for each in NODES if not maybe(draw)],
        "csiDrivers": [csi_driver(draw, each) for each in DRIVERS if not maybe(draw)],
        "csiStorageCapacities": [capacity(draw, i) for i in range(draw(st.integers(0, 3)))],
        "volumeAttachments": [attachment(draw, i) for i in range(draw(st.integers(0, 3)))],
        "pods": [pod(draw, f"other-{i}") for i in range(draw(st.integers(0, 4)))],
    }
    cluster["persistentVolumes"] = [each for each in cluster["persistentVolumes"] if each]
    own = pod(draw, "p")
    del own["spec"]["nodeName"]
    return cluster, own


def made(kind: str, version: str, name: str, **parts: Any) -> Json:
    """An object."""
    metadata = {"name": name, "uid": f"uid-{name}", **parts.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def node(draw: DrawFn, name: str) -> Json:
    """A node, mostly with a zone."""
    labels = {HOSTNAME: name}
    if not maybe(draw, 4):
        labels[one_of(draw, ZONE, ZONE, BETA_ZONE)] = one_of(draw, *ZONES)
    if maybe(draw):
        labels[REGION] = "r"
    if maybe(draw, 2):
        labels[one_of(draw, *DRIVERS_ZONES.values())] = one_of(draw, *ZONES)
    allocatable = {"pods": "10", "cpu": "4", "memory": "8Gi"}
    return made(
        "Node", "v1", name, metadata={"labels": labels}, status={"allocatable": allocatable}
    )


def volume(draw: DrawFn, number: int, name: str) -> Json:
    """A volume, perhaps bound or kept for a claim; sizes differ, so that the best is one."""
    if maybe(draw, 6):
        return {}
    spec: Json = {
        "capacity": {"storage": SIZES[number]},
        "accessModes": one_of(draw, ["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"]),
        "storageClassName": one_of(draw, *("wait", "local") * 2, *CLASSES),
    }
    source = one_of(draw, "csi", "csi", "local", "awsElasticBlockStore", "gcePersistentDisk")
    spec[source] = {
        "csi": {"driver": one_of(draw, *DRIVERS), "volumeHandle": one_of(draw, "h0", "h1", "h2")},
        "local": {"path": "/x"},
        "awsElasticBlockStore": {"volumeID": one_of(draw, "h0", "h1")},
        "gcePersistentDisk": {"pdName": one_of(draw, "d0", "d1")},
    }[source]
    if maybe(draw, 2):
        key = one_of(draw, HOSTNAME, ZONE)
        values = draw(st.lists(st.sampled_from(NODES if key == HOSTNAME else ZONES), min_size=1))
        condition = {"key": key, "operator": one_of(draw, "In", "In", "NotIn"), "values": values}
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
        }
    metadata: Json = {}
    if maybe(draw):
        zones = one_of(draw, "a", "b", "a__b", "a__", "c")
        metadata["labels"] = {one_of(draw, ZONE, BETA_ZONE): zones}
    if maybe(draw, 10):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if maybe(draw, 8):
        spec["volumeMode"] = "Block"
    if maybe(draw, 10):
        spec["volumeAttributesClassName"] = "fast"
    phase = one_of(draw, "Available", "Available", "Bound", "Released")
    if maybe(draw, 4):
        # No two are kept for one claim: which of them is looked at is left to Go's order.
        wanted = CLAIMS[number]
        spec["claimRef"] = {"namespace": "default", "name": wanted}
        if maybe(draw, 2):
            spec["claimRef"]["uid"] = one_of(draw, f"uid-{wanted}", "uid-of-another")
    return made(
        "PersistentVolume", "v1", name, metadata=metadata, spec=spec, status={"phase": phase}
    )


def claim(draw: DrawFn, name: str) -> Json:
    """A claim, in one of the states that it may be in."""
    spec: Json = {
        "accessModes": one_of(draw, ["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadOnlyMany"]),
        "resources": {"requests": {"storage": one_of(draw, *SIZES[:3])}},
    }
    metadata: Json = {"namespace": "default", "annotations": {}}
    if not maybe(draw, 12):
        spec["storageClassName"] = one_of(draw, *("wait", "local") * 4, *CLASSES)
    if maybe(draw):
        spec["volumeName"] = one_of(draw, *VOLUMES)
    if "volumeName" in spec and not maybe(draw, 8):
        metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    if maybe(draw, 6):
        metadata["annotations"]["volume.kubernetes.io/selected-node"] = one_of(draw, *NODES)
    if maybe(draw, 20):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if maybe(draw, 8):
        spec["selector"] = {"matchLabels": {ZONE: one_of(draw, *ZONES)}}
    if maybe(draw, 10):
        spec["volumeAttributesClassName"] = "fast"
    if name == "p-s" and not maybe(draw):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    phase = "Lost" if maybe(draw, 20) else "Bound"
    return made(
        "PersistentVolumeClaim", "v1", name, metadata=metadata, spec=spec, status={"phase": phase}
    )


def storage_class(draw: DrawFn, name: str) -> Json:
    """A class; those of one name are always of one mode."""
    provisioners = {"local": "kubernetes.io/no-provisioner", "intree": "kubernetes.io/aws-ebs"}
    mode = "Immediate" if name == "now" else "WaitForFirstConsumer"
    found = made(
        "StorageClass",
        "storage.k8s.io/v1",
        name,
        provisioner=provisioners.get(name) or one_of(draw, *DRIVERS),
        volumeBindingMode=mode,
    )
    if maybe(draw):
        condition = {"key": ZONE, "values": [one_of(draw, *ZONES)]}
        found["allowedTopologies"] = [{"matchLabelExpressions": [condition]}]
    return found


def csi_node(draw: DrawFn, name: str) -> Json:
    """A node's drivers, with limits that are soon reached."""
    drivers: list[Json] = []
    for driver in DRIVERS:
        if not maybe(draw):
            drivers.append({"name": driver, "nodeID": name})
            if not maybe(draw, 4):
                drivers[-1]["allocatable"] = {"count": draw(st.integers(0, 3))}
    metadata: Json = {}
    if maybe(draw, 2):
        plugins = ",".join(DRIVERS_ZONES)
        metadata["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
    return made("CSINode", "storage.k8s.io/v1", name, metadata=metadata, spec={"drivers": drivers})


def csi_driver(draw: DrawFn, name: str) -> Json:
    """A driver that may report capacity, and insist on being there."""
    spec = {
        "storageCapacity": not maybe(draw),
        "preventPodSchedulingIfMissing": maybe(draw, 2),
    }
    return made("CSIDriver", "storage.k8s.io/v1", name, spec=spec)


def capacity(draw: DrawFn, number: int) -> Json:
    """Storage that a class has for the nodes of a zone, or of none or all."""
    found = made(
        "CSIStorageCapacity",
        "storage.k8s.io/v1",
        f"capacity-{number}",
        metadata={"namespace": "default"},
        storageClassName=one_of(draw, "wait", "wait", *CLASSES),
    )
    if not maybe(draw, 4):
        found["nodeTopology"] = one_of(draw, {}, *({"matchLabels": {ZONE: z}} for z in ZONES))
    if not maybe(draw, 4):
        found["capacity"] = one_of(draw, *SIZES)
    if maybe(draw, 4):
        found["maximumVolumeSize"] = one_of(draw, *SIZES)
    return found


def attachment(draw: DrawFn, number: int) -> Json:
    """A volume that a node has, whoever uses it."""
    spec = {
        "attacher": one_of(draw, *DRIVERS),
        "nodeName": one_of(draw, *NODES),
        "source": {"persistentVolumeName": one_of(draw, *VOLUMES)},
    }
    return made("VolumeAttachment", "storage.k8s.io/v1", f"attachment-{number}", spec=spec)


def pod(draw: DrawFn, name: str) -> Json:
    """A pod on a node, with volumes; the one that is called p may have one that is made for it."""
    names = draw(st.lists(st.sampled_from(["c0", "c1", "c2"]), max_size=3, unique=True))
    found: list[Json] = [
        {"name": f"of-{each}", "persistentVolumeClaim": {"claimName": each}} for each in names
    ]
    if name == "p" and maybe(draw, 4):
        found.append({"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    if maybe(draw):
        found.append({"name": "disk", **disk(draw)})
    spec = {
        "nodeName": one_of(draw, *NODES, "gone"),
        "volumes": found,
        "containers": [{"name": "c", "image": "i"}],
    }
    return made("Pod", "v1", name, metadata={"namespace": "default"}, spec=spec)


def disk(draw: DrawFn) -> Json:
    """A disk that a pod names itself."""
    read_only = {"readOnly": True} if maybe(draw, 2) else {}
    return one_of(
        draw,
        {"awsElasticBlockStore": {"volumeID": one_of(draw, "h0", "h1"), **read_only}},
        {"gcePersistentDisk": {"pdName": one_of(draw, "d0", "d1"), **read_only}},
        {"iscsi": {"targetPortal": "t", "lun": 0, "iqn": one_of(draw, "q0", "q1"), **read_only}},
        {"rbd": {"monitors": one_of(draw, ["m"], ["m", "o"], ["o"]), "image": "i", **read_only}},
    )
