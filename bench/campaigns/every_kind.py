"""Objects of every kind that is synced, at a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.campaigns.kube_scheduler import node, pod
from topospread.kubernetes.objects import RESOURCES
from topospread.store.model import CLUSTER_SCOPED, Kind

if TYPE_CHECKING:
    from bench.campaigns.kube_scheduler import Cluster
    from topospread.kubernetes.objects import Resource

NODE: Final = "base-0"
"""The node that the others name."""

_DRIVER: Final = "driver.example.com"


def _workload(name: str, *, expressions: bool = True, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {**pod(name, app=name), "metadata": {"labels": labels}}
    selector = {"matchLabels": labels} if expressions else labels
    return {"spec": {"replicas": 0, "selector": selector, "template": template, **spec}}


def _job(name: str) -> dict[str, Any]:
    made = pod(name, restartPolicy="Never", terminationGracePeriodSeconds=30)
    return {"spec": {"suspend": True, "template": {"spec": made["spec"]}}}


def _volume() -> dict[str, Any]:
    disk = {"driver": _DRIVER, "volumeHandle": "h"}
    return {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": disk}


def manifest(resource: Resource, name: str) -> dict[str, Any]:
    """An object of a kind that a real API server takes."""
    makers: dict[Kind, dict[str, Any]] = {
        Kind.NODE: node(name, "a"),
        Kind.POD: pod(name, NODE),
        Kind.SERVICE: {"spec": {"clusterIP": "None", "selector": {"app": name}}},
        Kind.REPLICATION_CONTROLLER: _workload(name, expressions=False),
        Kind.REPLICA_SET: _workload(name),
        Kind.STATEFUL_SET: _workload(name, serviceName=name),
        Kind.JOB: _job(name),
        Kind.PERSISTENT_VOLUME: {"spec": _volume()},
        Kind.PERSISTENT_VOLUME_CLAIM: {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        },
        Kind.STORAGE_CLASS: {"provisioner": _DRIVER},
        Kind.CSI_NODE: {"spec": {"drivers": []}},
        Kind.CSI_DRIVER: {"spec": {}},
        Kind.CSI_STORAGE_CAPACITY: {"storageClassName": "fast", "capacity": "5Gi"},
        Kind.VOLUME_ATTACHMENT: {
            "spec": {
                "attacher": _DRIVER,
                "nodeName": NODE,
                "source": {"persistentVolumeName": name},
            }
        },
        Kind.RESOURCE_CLAIM: {
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
        },
        Kind.DEVICE_CLASS: {"spec": {}},
        Kind.RESOURCE_SLICE: {
            "spec": {
                "driver": _DRIVER,
                "nodeName": NODE,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            }
        },
    }
    made = makers.get(resource.kind, {})
    return {**made, "metadata": {**made.get("metadata", {}), "name": name}}


def collection(resource: Resource) -> str:
    """Where objects of a kind are made: in the namespace `default`."""
    if resource.kind in CLUSTER_SCOPED:
        return resource.path
    front, _, plural = resource.path.rpartition("/")
    return f"{front}/namespaces/default/{plural}"


def create(cluster: Cluster, name: str) -> None:
    """An object of each kind."""
    for resource in RESOURCES:
        cluster.call("POST", collection(resource), manifest(resource, name))


def delete(cluster: Cluster, name: str) -> None:
    """The object of each kind, but the namespace: no controller is there to empty it."""
    for resource in RESOURCES:
        if resource.kind is Kind.NAMESPACE:
            continue
        path = f"{collection(resource)}/{name}"
        if resource.kind in (Kind.PERSISTENT_VOLUME, Kind.PERSISTENT_VOLUME_CLAIM):
            # Nor one that lets go of them.
            cluster.patch(path, {"metadata": {"finalizers": None}})
        cluster.call("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
