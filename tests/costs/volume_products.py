"""Lists of volumes, claims and devices that meet; see :mod:`tests.costs.products`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.costs.products import FEWER, HOSTNAME, Product, cluster_object, explain, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.costs.products import Json

STORAGE, RESOURCE = "storage.k8s.io/v1", "resource.k8s.io/v1"
DRIVER: Final = "csi.example.com"


def storage_class(provisioner: str, **rest: Any) -> Json:
    mode = "WaitForFirstConsumer"
    return cluster_object(
        "StorageClass", "sc", STORAGE, provisioner=provisioner, volumeBindingMode=mode, **rest
    )


def claim(number: int, volume: str = "", **spec: Any) -> Json:
    """A claim of a size of its own, waiting or with a volume."""
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if volume else {}
    wanted = {
        "storageClassName": "sc",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(1000 + number)}},
        **({"volumeName": volume} if volume else {}),
        **spec,
    }
    return cluster_object(
        "PersistentVolumeClaim",
        f"c{number}",
        metadata={"namespace": "default", **bound},
        spec=wanted,
        status={"phase": "Bound" if volume else "Pending"},
    )


def claims(size: int) -> Sequence[Json]:
    return [claim(i) for i in range(size)]


def volume(number: int, conditions: Sequence[Json], **spec: Any) -> Json:
    """A volume, larger than any claim, on the nodes that one of the conditions selects."""
    terms = [{"matchExpressions": [each]} for each in conditions]
    there = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}
    wanted = {
        "storageClassName": "sc",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": str(10_000 + number)},
        "csi": {"driver": DRIVER, "volumeHandle": f"h{number}"},
        **there,
        **spec,
    }
    phase = "Bound" if "claimRef" in spec else "Available"
    return cluster_object("PersistentVolume", f"pv{number}", spec=wanted, status={"phase": phase})


def condition(operator: str, *values: str) -> Json:
    return {"key": HOSTNAME, "operator": operator, "values": list(values)}


def claiming(size: int) -> Json:
    """A pod with so many claims."""
    named = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(size)
    ]
    return pod("asked", volumes=named)


STATIC: Final = storage_class("kubernetes.io/no-provisioner")
PROVIDED: Final = storage_class(DRIVER)


def local_volumes(size: int) -> Sequence[Json]:
    return [volume(i, [condition("In", f"node-{i % 4}")]) for i in range(size)]


def shared_volumes(size: int) -> Sequence[Json]:
    return [volume(i, [condition("NotIn", f"node-{i}")]) for i in range(size)]


def capacities(size: int) -> Sequence[Json]:
    """Room for volumes, reported for each node."""
    driver = cluster_object("CSIDriver", DRIVER, STORAGE, spec={"storageCapacity": True})
    there = [
        cluster_object(
            "CSIStorageCapacity",
            f"k{i}",
            STORAGE,
            metadata={"namespace": "d"},
            storageClassName="sc",
            capacity="1Ti",
            nodeTopology={"matchExpressions": [condition("In", f"node-{i % 4}", f"other-{i}")]},
        )
        for i in range(size)
    ]
    return [driver, *there]


def bound(size: int) -> Sequence[Json]:
    """Claims with volumes."""
    made = []
    for i in range(size):
        ref = {"name": f"c{i}", "namespace": "default"}
        made += [claim(i, f"pv{i}"), volume(i, [condition("In", "node-1")], claimRef=ref)]
    return made


def reached(size: int) -> Sequence[Json]:
    """A claim whose volume is where one of many conditions says."""
    conditions = [condition("In", "node-1", f"n{i}") for i in range(size)]
    ref = {"name": "c0", "namespace": "default"}
    return [claim(0, "pv0"), volume(0, conditions, claimRef=ref)]


def of_one_claim(size: int) -> Sequence[Json]:
    """Volumes that all name one claim."""
    ref = {"name": "c0", "namespace": "default"}
    return [claim(0), *(volume(i, [], claimRef=ref) for i in range(size))]


def drivers(size: int) -> Sequence[Json]:
    """A node with many drivers, each with a limit, and a class for each."""
    names = [f"d{i}.example.com" for i in range(size)]
    limits = [{"name": n, "nodeID": "n", "allocatable": {"count": 1}} for n in names]
    classes = [
        cluster_object("StorageClass", f"sc{i}", STORAGE, provisioner=name,
                       volumeBindingMode="WaitForFirstConsumer")
        for i, name in enumerate(names)
    ]  # fmt: skip
    node = cluster_object("CSINode", "node-1", STORAGE, spec={"drivers": limits})
    return [node, *classes, *(claim(i, storageClassName=f"sc{i}") for i in range(size))]


def attached(size: int) -> Sequence[Json]:
    """A node that is full of volumes that a pod has there, of a driver with a limit."""
    limits = [{"name": DRIVER, "nodeID": "n", "allocatable": {"count": 1}}]
    node = cluster_object("CSINode", "node-1", STORAGE, spec={"drivers": limits})
    there = {**claiming(size), "metadata": {**claiming(size)["metadata"], "name": "there"}}
    there["spec"] = {**there["spec"], "nodeName": "node-1"}
    return [node, *bound(size), there]


def topologies(size: int) -> Sequence[Json]:
    """A class whose volumes can be made in many places."""
    terms = [
        {"matchLabelExpressions": [{"key": HOSTNAME, "values": [f"node-{i % 4}", f"n{i}"]}]}
        for i in range(size)
    ]
    return [storage_class(DRIVER, allowedTopologies=terms)]


# ------------------------------ devices


def device_class(selectors: int = 1) -> Json:
    same = [{"cel": {"expression": 'device.driver == "gpu"'}}] * selectors
    return cluster_object("DeviceClass", "gpu", RESOURCE, spec={"selectors": same})


EXACT: Final = {"allocationMode": "ExactCount"}


def device_claim(number: int, requests: int = 1, device: str = "") -> Json:
    asked = [
        {"name": f"r{i}", "exactly": {"deviceClassName": "gpu", "count": 1, **EXACT}}
        for i in range(requests)
    ]  # fmt: skip
    results = [{"request": "r0", "driver": "gpu", "pool": "p", "device": device}]
    status = {"status": {"allocation": {"devices": {"results": results}}}} if device else {}
    return cluster_object(
        "ResourceClaim", f"d{number}", RESOURCE,
        metadata={"namespace": "default"}, spec={"devices": {"requests": asked}}, **status,
    )  # fmt: skip


def slices(size: int, devices: int = 4) -> Sequence[Json]:
    """A pool of many slices that all nodes reach."""
    return [
        cluster_object(
            "ResourceSlice",
            f"s{i}",
            RESOURCE,
            spec={
                "driver": "gpu",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": size},
                "allNodes": True,
                "devices": [{"name": f"d{i}-{k}"} for k in range(devices)],
            },
        )
        for i in range(size)
    ]


def using(size: int) -> Json:
    """A pod with so many claims to devices."""
    named = [{"name": f"d{i}", "resourceClaimName": f"d{i}"} for i in range(size)]
    return pod("asked", resourceClaims=named)


BOTH_WAYS: Final = (
    "FindMatchingVolume looks at each volume for each claim on each node; here for those nodes "
    "together that reach the same volumes, each of which one claim takes"
)

SLICES_ON_NODES: Final = Product(
    ("ResourceSliceSpec.devices",),
    explain(lambda _: using(1)),
    lambda _: [device_class(), device_claim(0)],
    slices,
    nodes=lambda size: 10 * size,
)
"""Which are counted together up to a bound."""

OF_VOLUMES: Final = {
    "claims × local volumes": Product(
        ("PodSpec.volumes", "PersistentVolumeSpec.capacity", "VolumeResourceRequirements.requests"),
        explain(claiming),
        lambda n: [STATIC, *claims(n)],
        local_volumes,
        walked=BOTH_WAYS,
        sizes=FEWER,
    ),
    "claims × volumes that nodes share": Product(
        ("PodSpec.volumes", "PersistentVolumeSpec.access_modes"),
        explain(claiming),
        lambda n: [STATIC, *claims(n)],
        shared_volumes,
        walked=BOTH_WAYS,
        sizes=FEWER,
    ),
    "claims × capacities": Product(
        ("PodSpec.volumes",), explain(claiming), lambda n: [PROVIDED, *claims(n)], capacities
    ),
    "claims × topologies of a class": Product(
        (
            "StorageClass.allowed_topologies",
            "TopologySelectorTerm.match_label_expressions",
            "TopologySelectorLabelRequirement.values",
        ),
        explain(claiming),
        lambda n: [volume(-1, [], storageClassName="other"), *claims(n)],
        topologies,
    ),
    "claims × their volumes": Product(("PodSpec.volumes",), explain(claiming), come=bound),
    "conditions of a volume × nodes": Product(
        ("NodeSelector.node_selector_terms",),
        explain(lambda _: claiming(1)),
        come=reached,
        nodes=lambda n: n,
    ),
    "volumes × volumes of a claim": Product(
        ("PodSpec.volumes",), explain(lambda _: claiming(1)), lambda _: [STATIC], of_one_claim
    ),
    "claims × drivers of a node": Product(
        ("CSINodeSpec.drivers", "PodSpec.volumes"), explain(claiming), come=drivers
    ),
    "claims × volumes on a node": Product(("PodSpec.volumes",), explain(claiming), come=attached),
    "slices × slices": Product(
        ("ResourceSliceSpec.devices",),
        explain(lambda _: using(1)),
        lambda _: [device_class(), device_claim(0)],
        slices,
    ),
    "slices × allocated devices": Product(
        ("ResourceSliceSpec.devices", "DeviceAllocationResult.results"),
        explain(lambda _: using(1)),
        lambda n: [device_class(), device_claim(0), *slices(n)],
        lambda n: [device_claim(i + 1, device=f"d{i}-0") for i in range(n)],
    ),
    "claims to devices × slices": Product(
        ("PodSpec.resource_claims", "ResourceSliceSpec.devices"),
        explain(using),
        lambda n: [device_class(), *slices(n)],
        lambda n: [device_claim(i) for i in range(n)],
    ),
    "requests of a claim × slices": Product(
        ("DeviceClaim.requests", "ResourceSliceSpec.devices"),
        explain(lambda _: using(1)),
        lambda n: [device_class(), *slices(n)],
        lambda n: [device_claim(0, n)],
    ),
    "requests of a claim × selectors of a class": Product(
        ("DeviceClaim.requests", "DeviceClassSpec.selectors"),
        explain(lambda _: using(1)),
        lambda n: [device_claim(0, n)],
        lambda n: [device_class(n), *slices(2)],
    ),
}
