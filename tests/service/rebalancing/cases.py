"""The cases of PlanRebalance as clusters, questions and what must come out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.allocatable import ROOMY

Json = dict[str, Any]

FILE = Path(__file__).parent / "cases.yaml"


@dataclass(frozen=True)
class Case:
    """One cluster and question; `item` is as the file has it."""

    item: Json
    cluster: dict[str, list[Json]]

    def __str__(self) -> str:
        return str(self.item["name"])

    @property
    def objects(self) -> list[Json]:
        return [each for kind in self.cluster.values() for each in kind]

    @property
    def args(self) -> Json | None:
        """Default constraints, where the case has them."""
        defaults = self.item.get("defaults")
        return defaults and {"defaultingType": "List", "defaultConstraints": defaults}


def cases() -> list[Case]:
    """All of them."""
    items = yaml.load(FILE.read_text(), yaml.CSafeLoader)
    return [Case(item, cluster_of(item)) for item in items]


def cluster_of(item: Json) -> dict[str, list[Json]]:
    """Nodes, pods and services."""
    sizes = item.get("sizes", ())
    nodes = item.get("nodes") or {f"n{i}": {"zone": f"z{i}"} for i in range(len(sizes))}
    made = [_node(name, labels, item) for name, labels in nodes.items()]
    pods: list[Json] = [
        {"name": f"p{i}-{j}", "node": f"n{i}"} for i, n in enumerate(sizes) for j in range(n)
    ]
    pods += item.get("pods", ())
    services = []
    if item.get("service"):
        spec = {"selector": {"app": "web"}}
        metadata = {"name": "web", "namespace": "default"}
        services = [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}]
    return {
        "nodes": made,
        "pods": [pod(item, **each) for each in pods],
        "services": services,
        "volumes": [made for each in item.get("volumes", {}).items() for made in _volume(*each)],
    }


def _node(name: str, labels: dict[str, str], item: Json) -> Json:
    spec: Json = {}
    if name in item.get("taints", {}):
        spec["taints"] = [item["taints"][name]]
    if name in item.get("cordoned", ()):
        spec["unschedulable"] = True
    named = {"kubernetes.io/hostname": name, **labels}
    status = {"allocatable": item.get("allocatable", {}).get(name, ROOMY)}
    metadata = {"name": name, "labels": named}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _volume(name: str, zones: list[str] | None) -> list[Json]:
    """A claim and its volume, which nodes of some zones reach; None for a claim without one."""
    claim: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": f"pv-{name}"},
        "status": {"phase": "Bound"},
    }
    if zones is None:
        return [claim]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": zones}]}]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "claimRef": {"name": name, "namespace": "default"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    return [claim, volume]


def pod(
    item: Json,
    name: str,
    node: str,
    *,
    labels: dict[str, str] | None = None,
    terminating: bool = False,
    priority: int | None = None,
    cost: str | None = None,
    free: bool = False,
    claim: str = "",
    gated: bool = False,
) -> Json:
    """A pod of the app web; with `free` it has no constraints."""
    metadata: Json = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"app": "web", **(labels or {})},
    }
    owner = item.get("owner", "ReplicaSet")
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": owner,
                "name": "web",
                "uid": "web",
                "controller": True,
            }
        ]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    spec: Json = {"nodeName": node, "tolerations": item.get("tolerations", [])}
    if not free:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": item.get("maxSkew", 1),
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
                **item.get("constraint", {}),
            }
            for key in item.get("keys", ["zone"])
        ]
    if priority is not None:
        spec["priority"] = priority
    if "only" in item:
        terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": item["only"]}]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    claim = "c" if item.get("claims") else claim
    if claim:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    if item.get("ephemeral"):
        volume = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
        spec["volumes"] = [{"name": "v", "ephemeral": volume}, {"name": "w", "emptyDir": {}}]
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    if "requests" in item:
        spec["containers"] = [{"name": "c", "resources": {"requests": item["requests"]}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running"},
    }
