"""Writes the sample cluster: five zones, 60 nodes, 400 pods, and the workloads that they belong to.

    python -m examples.make_cluster

The seed is fixed, so the files change only when this script does. The story: a shop whose services
spread over zones, a message broker and two databases on nodes with local disks, an agent on every
node, a few nodes with GPUs that a taint keeps free, and one node that is being drained.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

SEED = 5
HERE = Path(__file__).resolve().parent
CREATED = "2026-02-03T08:00:00Z"
REGION = "eu-central"
ZONES = [f"{REGION}-{letter}" for letter in "abcde"]
ZONE_KEY = "topology.kubernetes.io/zone"
HOST_KEY = "kubernetes.io/hostname"
RACK_KEY = "example.com/rack"
GPU_KEY = "example.com/gpu"

# Name, nodes in each zone, CPUs, memory in GiB, taint.
POOLS = [
    ("general", 8, 16, 64, None),
    ("disk", 3, 16, 128, None),
    ("gpu", 1, 32, 256, {"key": GPU_KEY, "value": "present", "effect": "NoSchedule"}),
]

# Namespace, app, tier, kind of owner, pods in each zone, pool, CPU millicores, memory in MiB.
APPS = [
    ("shop", "web", "frontend", "ReplicaSet", (14, 13, 14, 13, 12), "general", 250, 256),
    ("shop", "checkout", "backend", "ReplicaSet", (3, 3, 3, 3, 2), "general", 500, 512),
    ("shop", "catalog", "backend", "ReplicaSet", (9, 9, 8, 9, 9), "general", 250, 512),
    ("shop", "search", "backend", "ReplicaSet", (6, 6, 6, 6, 6), "general", 1000, 2048),
    ("shop", "cart", "backend", "ReplicaSet", (8, 8, 8, 8, 8), "general", 250, 256),
    ("shop", "images", "backend", "ReplicaSet", (5, 7, 6, 5, 7), "general", 500, 1024),
    ("shop", "mailer", "worker", "ReplicaSet", (4, 3, 3, 3, 3), "general", 100, 128),
    ("data", "orders-db", "database", "StatefulSet", (1, 1, 1, 1, 1), "disk", 4000, 32768),
    ("data", "ledger", "database", "StatefulSet", (1, 1, 1, 1, 1), "disk", 4000, 32768),
    ("data", "broker", "queue", "StatefulSet", (2, 2, 2, 2, 1), "disk", 2000, 16384),
    ("data", "etl", "worker", "ReplicaSet", (7, 8, 7, 7, 8), "general", 1000, 2048),
    ("platform", "ingress", "edge", "ReplicaSet", (2, 2, 2, 2, 2), "general", 500, 512),
    ("platform", "metrics", "monitoring", "StatefulSet", (1, 0, 1, 0, 1), "disk", 2000, 16384),
    ("platform", "builds", "worker", "ReplicaSet", (8, 4, 6, 5, 3), "general", 2000, 4096),
    ("ml", "recommender", "backend", "ReplicaSet", (1, 1, 1, 1, 1), "gpu", 8000, 65536),
]
DRAINED = f"general-{ZONES[1]}-03"
WITHOUT_RACK = 4


def main() -> None:
    """Write the three files of the cluster."""
    rng = random.Random(SEED)
    nodes = make_nodes()
    workloads, pods = make_apps(rng, nodes)
    pods += make_agents(nodes)
    write("cluster/nodes.yaml", nodes)
    write("cluster/workloads.yaml", workloads)
    write("cluster/pods.yaml", pods)
    by_zone = Counter(node["metadata"]["labels"][ZONE_KEY] for node in nodes)
    counted = f"{len(nodes)} nodes in {len(by_zone)} zones"
    print(f"{counted}, {len(workloads)} workloads, {len(pods)} pods")


def make_nodes() -> list[dict[str, Any]]:
    """Twelve nodes a zone; the last few general ones are not in a rack yet."""
    nodes = [
        make_node(pool, zone, number, cpus, memory, taint)
        for pool, count, cpus, memory, taint in POOLS
        for zone in ZONES
        for number in range(count)
    ]
    for node in [n for n in nodes if n["metadata"]["labels"]["pool"] == "general"][-WITHOUT_RACK:]:
        del node["metadata"]["labels"][RACK_KEY]
    return nodes


def make_node(
    pool: str, zone: str, number: int, cpus: int, memory: int, taint: dict[str, str] | None
) -> dict[str, Any]:
    """One node."""
    name = f"{pool}-{zone}-{number:02d}"
    labels = {
        HOST_KEY: name,
        ZONE_KEY: zone,
        "topology.kubernetes.io/region": REGION,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"{pool}.{cpus}x{memory}",
        RACK_KEY: f"{zone}-r{number % 3}",
        "pool": pool,
    }
    spec: dict[str, Any] = {"providerID": f"example://{REGION}/{name}"}
    taints = [taint] if taint else []
    if name == DRAINED:
        spec["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if taints:
        spec["taints"] = taints
    resources = {"cpu": str(cpus), "memory": f"{memory}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata(name, None, labels),
        "spec": spec,
        "status": {"capacity": resources, "allocatable": resources},
    }


def make_apps(
    rng: random.Random, nodes: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Workloads and their pods; in its zone, each goes to the node with the fewest of its app."""
    workloads, pods = [], []
    for namespace, app, tier, kind, per_zone, pool, cpu, memory in APPS:
        labels = {"app": app, "tier": tier}
        digest = uuid.uuid5(uuid.NAMESPACE_DNS, f"{namespace}/{app}").hex[:9]
        owner_name = app if kind == "StatefulSet" else f"{app}-{digest}"
        if kind == "ReplicaSet":
            labels["pod-template-hash"] = digest
        owner = make_owner(kind, namespace, owner_name, labels, sum(per_zone))
        workloads += [make_service(namespace, app), owner]
        used: Counter[str] = Counter()
        zones = [zone for zone, count in zip(ZONES, per_zone, strict=True) for _ in range(count)]
        for ordinal, zone in enumerate(zones):
            node = least_used(rng, nodes, zone, pool, used)
            used[node] += 1
            suffix = str(ordinal) if kind == "StatefulSet" else f"{rng.getrandbits(20):05x}"
            name = f"{owner_name}-{suffix}"
            pod = make_pod(namespace, name, labels, owner, node, cpu, memory)
            if pool == "gpu":
                pod["spec"]["tolerations"] = [{"key": GPU_KEY, "operator": "Exists"}]
            pods.append(pod)
    return workloads, pods


def least_used(
    rng: random.Random, nodes: list[dict[str, Any]], zone: str, pool: str, used: Counter[str]
) -> str:
    """A node of the zone and pool with the fewest pods of this app."""
    names = [
        node["metadata"]["name"]
        for node in nodes
        if node["metadata"]["labels"][ZONE_KEY] == zone
        and node["metadata"]["labels"]["pool"] == pool
        and not node["spec"].get("unschedulable")
    ]
    fewest = min(used[name] for name in names)
    return rng.choice([name for name in names if used[name] == fewest])


def make_service(namespace: str, app: str) -> dict[str, Any]:
    """A service that selects the app's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(app, namespace, {"app": app}),
        "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }


def make_owner(
    kind: str, namespace: str, name: str, labels: dict[str, str], replicas: int
) -> dict[str, Any]:
    """The replica set or stateful set that controls the app's pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata(name, namespace, labels),
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}},
    }


def make_pod(
    namespace: str,
    name: str,
    labels: dict[str, str],
    owner: dict[str, Any],
    node: str,
    cpu: int,
    memory: int,
) -> dict[str, Any]:
    """One running pod."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata(name, namespace, labels), "ownerReferences": [reference]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }


def make_agents(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log agent that runs on every node, tainted or not."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata("log-agent", "platform", {}),
    }
    labels = {"app": "log-agent", "tier": "agent"}
    pods = []
    for node in nodes:
        name = node["metadata"]["name"]
        pod = make_pod("platform", f"log-agent-{name}", labels, owner, name, 100, 128)
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
        pods.append(pod)
    return pods


def metadata(name: str, namespace: str | None, labels: dict[str, str]) -> dict[str, Any]:
    """An object's metadata; the uid follows from the name."""
    place = {"namespace": namespace} if namespace else {}
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}/{sorted(labels.items())}"))
    return {"name": name, **place, "uid": uid, "creationTimestamp": CREATED, "labels": dict(labels)}


def write(path: str, objects: list[dict[str, Any]]) -> None:
    """Write objects as YAML documents below this folder."""
    header = "# Written by examples/make_cluster.py: change that and run it again.\n"
    text = yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, width=100)
    (HERE / path).write_text(header + text, encoding="utf-8")


class PlainDumper(yaml.SafeDumper):
    """Writes equal values out instead of referring to them, as people do."""

    def ignore_aliases(self, data: object) -> bool:
        """Never use an alias."""
        return True


if __name__ == "__main__":
    main()
