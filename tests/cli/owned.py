"""Workloads and their pods as dumps have them, in few words."""

from __future__ import annotations

from typing import Any

import yaml

Json = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
HASH = "pod-template-hash"
INDEX = "batch.kubernetes.io/job-completion-index"
GROUPS = {
    "Elastic": "example.com/v1",
    "DeploymentConfig": "apps.openshift.io/v1",
    "Job": "batch/v1",
    "Rollout": "argoproj.io/v1alpha1",
    "CloneSet": "apps.kruise.io/v1",
}


def nodes(*names: str) -> list[Json]:
    """Nodes, each in the zone that begins its name."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: name[0]}},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        }
        for name in names
    ]


def spread(**more: Any) -> Json:
    """A hard constraint of the app web over nodes."""
    return {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def pod_of(
    owner: str,
    name: str,
    node: str = "",
    *,
    api: str = "",
    labels: Json | None = None,
    constraints: list[Json] | None = None,
    phase: str = "",
    created: int = 1,
    namespace: str = "shop",
    spec: Json | None = None,
    **status: Any,
) -> Json:
    """A pod of a controller, `Kind/name`; of none where that is empty. `spec`: more of its own."""
    kind, _, controller = owner.partition("/")
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": {"app": "web", **(labels or {})},
        "creationTimestamp": f"2026-01-01T00:{created:02}:00Z",
    }
    if owner:
        version = api or GROUPS.get(kind, "apps/v1")
        reference = {"apiVersion": version, "kind": kind, "name": controller, "uid": controller}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    made: Json = {
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}],
        "topologySpreadConstraints": [spread()] if constraints is None else constraints,
        # Admission adds these to each pod.
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        **(spec or {}),
    }
    if node:
        made["nodeName"] = node
    phase = phase or ("Running" if node else "Pending")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": made,
        "status": {"phase": phase, **status},
    }


def workload(
    kind: str,
    name: str,
    *,
    namespace: str = "shop",
    constraints: list[Json] | None = None,
    pod: Json | None = None,
    **spec: Any,
) -> Json:
    """A workload of the app web; `pod` is more of its pods' spec."""
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    made: Json = {
        "containers": [{"name": "c", "image": "y", "resources": {"requests": {"cpu": "0.1"}}}],
        "topologySpreadConstraints": [spread()] if constraints is None else constraints,
        **(pod or {}),
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": made}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "web"}}}
    return {
        "apiVersion": GROUPS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": metadata,
        "spec": {**selector, "template": template, **spec},
    }


def tasks(name: str, *replicas: int) -> Json:
    """A Job of Volcano, whose tasks have a pod template each."""
    template = workload("Deployment", name)["spec"]["template"]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"tasks": [{"replicas": each, "template": template} for each in replicas]},
    }


def documents(*objects: Json) -> str:
    """A file of objects."""
    return yaml.safe_dump_all(objects)
