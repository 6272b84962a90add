"""Lists of callers and objects that meet in a computation, each pair at a size.

What meets is named by the repeated fields of the messages. Where kube-scheduler looks at each pair,
so does the product: `walked` has the reason and what bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread_client import pod_from_manifest
from topospread_proto.v1 import (
    common_pb2,
    decision_service_pb2,
    planner_service_pb2,
    scenario_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.message import Message

Json = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
SIZES: Final = (50, 100, 200, 400)
"""Items of each list; each is twice the one before."""

FEWER: Final = (12, 24, 48, 96)
"""The same of what is walked."""


def nothing(size: int) -> Sequence[Json]:
    """No objects."""
    del size
    return ()


@dataclass(frozen=True)
class Product:
    """Two or more lists that meet.

    Attributes:
        fields: the repeated fields, as "Message.field".
        ask: the method, and a request by size.
        there: objects by size that are there before; beside them `nodes`.
        come: objects by size that come, which costs, too.
        walked: why all pairs are looked at, and what bounds them; empty where they are not.
        sizes: of the lists.
        nodes: of the cluster.
    """

    fields: Sequence[str]
    ask: tuple[str, Callable[[int], Message]]
    there: Callable[[int], Sequence[Json]] = nothing
    come: Callable[[int], Sequence[Json]] = nothing
    walked: str = ""
    sizes: Sequence[int] = SIZES
    nodes: Callable[[int], int] = field(default=lambda _: 4)


def node(number: int, taints: Sequence[Json] = (), **labels: str) -> Json:
    """A node with plenty of room."""
    name = f"node-{number}"
    metadata = {"name": name, "labels": {ZONE: f"z{number % 4}", HOSTNAME: name, **labels}}
    allocatable = {"cpu": "1000", "memory": "1Ti", "pods": "10000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable},
    }


SPREAD: Final[Json] = {
    "maxSkew": 5000,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def pod(name: str, on: str = "", labels: Json | None = None, **spec: Any) -> Json:
    """A pod that spreads over zones, on a node or incoming."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1m"}}}
    made: Json = {"containers": [container], "topologySpreadConstraints": [SPREAD], **spec}
    if on:
        made["nodeName"] = on
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web", **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def cluster_object(kind: str, name: str, group: str = "v1", **rest: Any) -> Json:
    """An object of any kind; of a namespace where `rest` has one."""
    metadata = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **rest}


def source(manifest: Json) -> common_pb2.PodSource:
    return common_pb2.PodSource(object=pod_from_manifest(manifest))


def evaluate(make: Callable[[int], Json], **others: Any) -> tuple[str, Callable[[int], Message]]:
    return "EvaluatePod", lambda size: decision_service_pb2.EvaluatePodRequest(
        pod=source(make(size)), **{name: of(size) for name, of in others.items()}
    )


def explain(make: Callable[[int], Json]) -> tuple[str, Callable[[int], Message]]:
    """All filters are asked, and what would help."""
    return "ExplainPod", lambda size: decision_service_pb2.ExplainPodRequest(pod=source(make(size)))


def to_place(manifest: Json) -> scenario_pb2.PodsToPlace:
    return scenario_pb2.PodsToPlace(pod=source(manifest), replicas=1)


def simulate(make: Callable[[int], Iterable[Json]]) -> tuple[str, Callable[[int], Message]]:
    return "Simulate", lambda size: planner_service_pb2.SimulateRequest(
        pods=map(to_place, make(size))
    )


# ------------------------------ ports, disks, tolerations


def addresses(name: str, size: int, on: str = "") -> Json:
    """A pod that has a port at so many addresses."""
    base = sum(map(ord, name)) % 200
    ports = [
        {"containerPort": 80, "hostPort": 80, "hostIP": f"10.{base}.{i // 250}.{i % 250}"}
        for i in range(size)
    ]
    return pod(name, on, containers=[{"name": "c", "ports": ports}])


def numbers(name: str, size: int, on: str = "") -> Json:
    """A pod that has so many ports."""
    ports = [{"containerPort": 80, "hostPort": 1000 + i} for i in range(size)]
    return pod(name, on, containers=[{"name": "c", "ports": ports}])


def images(name: str, size: int, on: str = "", monitors: int = 2) -> Json:
    """A pod that has so many disks of one image, at monitors of its own."""

    def of_disk(number: int) -> list[str]:
        return [f"{name}-{number}-{each}" for each in range(monitors)]

    volumes = [
        {
            "name": f"v{i}",
            "rbd": {
                "image": "i",
                "pool": "p",
                "monitors": [f"{name}-{i}-{k}" for k in range(monitors)],
            },
        }
        for i in range(size)
    ]
    return pod(name, on, volumes=volumes)


def at_monitors(name: str, size: int, on: str = "") -> Json:
    """A pod with one disk at many monitors."""
    return images(name, 1, on, size)


def tolerating(size: int, operator: str = "Equal", key: str = "dedicated") -> Json:
    """A pod that tolerates so many values that no taint has."""
    tolerations = [{"key": key, "operator": operator, "value": str(-i)} for i in range(1, size + 1)]
    return pod("asked", tolerations=tolerations)


def tainted(size: int) -> Sequence[Json]:
    """Nodes with a taint of their own."""
    return [
        node(i + 100, [{"key": "dedicated", "value": f"team-{i}", "effect": "NoSchedule"}])
        for i in range(size)
    ]


def much_tainted(size: int) -> Sequence[Json]:
    """A node with many taints."""
    taints = [{"key": "dedicated", "value": f"t{i}", "effect": "NoSchedule"} for i in range(size)]
    return [node(100, taints)]


OF_NODES: Final = {
    "addresses × addresses": Product(
        ("Container.ports",),
        explain(partial(addresses, "asked")),
        lambda n: [addresses("a", n, "node-0")],
        lambda n: [addresses("b", n, "node-1")],
    ),
    "ports × ports": Product(
        ("Container.ports",),
        explain(partial(numbers, "asked")),
        lambda n: [numbers("a", n, "node-0")],
        lambda n: [numbers("b", n, "node-1")],
    ),
    "ports of simulated pods × ports": Product(
        ("Container.ports", "SimulateRequest.pods"),
        simulate(lambda n: [addresses(f"s{i}", n // 4) for i in range(4)]),
        lambda n: [addresses("a", n, "node-0")],
    ),
    "disks × disks": Product(
        ("PodSpec.volumes", "RBDVolumeSource.monitors"),
        explain(partial(images, "asked")),
        lambda n: [images("a", n, "node-0")],
        lambda n: [images("b", n, "node-1")],
    ),
    "monitors × monitors": Product(
        ("RBDVolumeSource.monitors",),
        explain(partial(at_monitors, "asked")),
        lambda n: [at_monitors("a", n, "node-0")],
        lambda n: [at_monitors("b", n, "node-1")],
    ),
    "tolerations × nodes with taints, decided": Product(
        ("PodSpec.tolerations", "NodeSpec.taints"), evaluate(tolerating), come=tainted
    ),
    "tolerations × nodes with taints": Product(
        ("PodSpec.tolerations", "NodeSpec.taints"), explain(tolerating), come=tainted
    ),
    "tolerations × taints of a node": Product(
        ("PodSpec.tolerations", "NodeSpec.taints"), explain(tolerating), come=much_tainted
    ),
    "tolerations of all keys × nodes with taints": Product(
        ("PodSpec.tolerations", "NodeSpec.taints"),
        explain(lambda n: tolerating(n, key="")),
        come=tainted,
    ),
}
