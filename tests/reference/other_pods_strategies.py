"""Random clusters with pods that keep one another away, and pods that come to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.reference.other_pods import FEATURE

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from tests.reference.objects import Json

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NODES = ["n0", "n1", "n2", "n3"]
NAMESPACES = ["default", "data", "shop"]
SELECTORS: list[Any] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {},
    None,
]


def once_in(draw: DrawFn, times: int) -> bool:
    """True in one of so many cases."""
    return bool(draw(st.integers(1, times)) == times)


def any_of(draw: DrawFn, *values: Any) -> Any:
    """One of the values."""
    return draw(st.sampled_from(values))


@st.composite
def neighbours(draw: DrawFn, *, spreads: bool = False) -> tuple[Json, Json]:
    """A cluster, and a pod that is not in it.

    Args:
        draw: for hypothesis.
        spreads: it has constraints, and most others wait for nominated nodes.
    """
    nodes = [node(draw, name) for name in NODES[: draw(st.integers(1, 4))]]
    pods = [pod(draw, f"other-{i}") for i in range(draw(st.integers(0, 7)))]
    for each in pods:
        place(draw, each, waiting=2 if spreads else 3)
    asked = pod(draw, "p", terms=not spreads)
    if once_in(draw, 8):
        asked["spec"]["nodeName"] = any_of(draw, *NODES)
    if spreads or once_in(draw, 3):
        asked["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.integers(1, 2)),
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": any_of(draw, "web", "db")}},
            }
            for key in any_of(draw, (HOSTNAME,), (ZONE,), (ZONE, HOSTNAME))
        ]
    return {"nodes": nodes, "pods": pods, "namespaces": [*map(namespace, NAMESPACES)]}, asked


def node(draw: DrawFn, name: str) -> Json:
    """A node, mostly with a name and a zone among its labels."""
    labels = {} if once_in(draw, 8) else {HOSTNAME: name}
    if not once_in(draw, 5):
        labels[ZONE] = any_of(draw, "a", "b")
    status: Json = {"allocatable": {"pods": "110", "cpu": any_of(draw, "2", "4")}}
    if once_in(draw, 2):
        status["declaredFeatures"] = ["Another", FEATURE]
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def namespace(name: str) -> Json:
    """A namespace; two have a team."""
    labels = {"kubernetes.io/metadata.name": name}
    if name != "shop":
        labels["team"] = "x"
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod(draw: DrawFn, name: str, *, terms: bool = True) -> Json:
    """A pod with anything that others of it notice."""
    cpu = any_of(draw, "0", "1", "2") if terms else "0"
    container: Json = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    if once_in(draw, 3):
        container["ports"] = [port(draw)]
    if once_in(draw, 6):
        rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
        container |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    spec: Json = {"containers": [container], "affinity": {}}
    if once_in(draw, 6):
        init: Json = {"name": "i", "ports": [port(draw)]}
        if once_in(draw, 2):
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    if once_in(draw, 8):
        spec["hostNetwork"] = True
    for kind, times in (("podAffinity", 4), ("podAntiAffinity", 2)):
        if terms and once_in(draw, times):
            required = [term(draw) for _ in range(draw(st.integers(1, 2)))]
            spec["affinity"][kind] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    spec["priority"] = any_of(draw, 0, 0, 5, -5)
    labels = {"app": any_of(draw, "web", "web", "db")}
    if once_in(draw, 3):
        labels["tier"] = "t"
    where = any_of(draw, "default", "default", "data", "shop")
    metadata = {"name": name, "namespace": where, "uid": f"uid-{name}", "labels": labels}
    status = {"phase": "Pending"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def place(draw: DrawFn, placed: Json, waiting: int) -> None:
    """Bind a pod, or, once in so many times, have it wait, perhaps for a nominated node."""
    if once_in(draw, waiting):
        if not once_in(draw, 4):
            placed["status"]["nominatedNodeName"] = any_of(draw, *NODES)
        return
    placed["spec"]["nodeName"] = any_of(draw, *NODES)
    placed["status"]["phase"] = any_of(draw, *["Running"] * 6, "Succeeded", "Failed")
    if once_in(draw, 6):
        placed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def port(draw: DrawFn) -> Json:
    """A port of few, of the host or not."""
    made: Json = {"containerPort": any_of(draw, 80, 8080)}
    if not once_in(draw, 3):
        made["hostPort"] = any_of(draw, 80, 8080)
    if once_in(draw, 3):
        made["hostIP"] = any_of(draw, "10.0.0.1", "0.0.0.0", "::", "")
    if once_in(draw, 4):
        made["protocol"] = "UDP"
    return made


def term(draw: DrawFn) -> Json:
    """A required term."""
    made: Json = {"topologyKey": any_of(draw, HOSTNAME, ZONE, ZONE, "rack")}
    selector = any_of(draw, *SELECTORS)
    if selector is not None:
        made["labelSelector"] = selector
    if once_in(draw, 4):
        made["namespaces"] = any_of(draw, ["data"], ["default", "shop"], ["gone"])
    if once_in(draw, 4):
        made["namespaceSelector"] = any_of(draw, {}, {"matchLabels": {"team": "x"}})
    return made
