"""Small clusters as manifests."""

from __future__ import annotations

from typing import Any

from tests.allocatable import ROOMY

ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str) -> dict[str, Any]:
    labels = {ZONE: zone, "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": labels}
    status = {"allocatable": ROOMY}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod(name: str, on: str = "", app: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {**({"nodeName": on} if on else {}), **spec},
    }


def spread(key: str = ZONE, action: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def incoming(*constraints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod("incoming", topologySpreadConstraints=list(constraints or [spread()]), **more)


TWO_ZONES = [
    node("a1", "a"),
    node("a2", "a"),
    node("b1", "b"),
    pod("web-0", "a1"),
    pod("web-1", "a2"),
    pod("web-2", "b1"),
]
"""Zone a has two pods on two nodes, zone b one: with maxSkew 1 only b1 passes."""
