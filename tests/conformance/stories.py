"""The proposals' stories: compact data files turned into Kubernetes objects.

stories/README.md describes the notation. A member that is not described there is an error, so that
a slip of the pen cannot make an expectation vanish.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.cases import Decision, Json

FOLDER = Path(__file__).parent / "stories"

ZONE = "topology.kubernetes.io/zone"
NODE = "kubernetes.io/hostname"
KEYS = {"zone": ZONE, "node": NODE}

WORKLOADS = {
    "services": ("v1", "Service"),
    "replicationControllers": ("v1", "ReplicationController"),
    "replicaSets": ("apps/v1", "ReplicaSet"),
    "statefulSets": ("apps/v1", "StatefulSet"),
}
STORY_MEMBERS = {
    *("name", "source", "levels", "cluster", "group", "infeasible", "because", "pod"),
    *("args", "gates", "expect", "steps", *WORKLOADS),
}
POD_MEMBERS = {"constraints", "labels", "affinity", "owner"}
EXPECT_MEMBERS = {
    *("fits", "verdicts", "prefers", "preFilter", "preScore", "message", "derived", "newError")
}
VERBS = {"create", "join", "delete", "gates"}
STEP_MEMBERS = {"step", *VERBS, "placed", "waiting", "spread"}
REFUSERS = ("taints", "affinity", "resources")


@dataclass(frozen=True)
class Story:
    """One story as Kubernetes objects, with what it expects.

    Attributes:
        cluster: nodes, pods and workloads.
        pod: the incoming pod.
        infeasible: names of nodes that other plugins refuse to the pod.
        levels: label keys of the outer and the inner domains.
        group: labels of the running pods.
        expect: the expectations of a story without steps, by their names in the notation.
        steps: what happens, each with its expectations.
    """

    name: str
    source: str
    cluster: Json
    pod: Json
    args: Json
    gates: dict[str, bool]
    infeasible: frozenset[str]
    levels: tuple[str, str]
    group: dict[str, str]
    expect: Json = field(default_factory=dict)
    steps: list[Json] = field(default_factory=list)

    def decision(self, candidates: list[str] | None = None) -> Decision:
        """The question that the story asks.

        Args:
            candidates: the nodes to score; absent, those that pass Filter.
        """
        return Decision(
            name=self.name,
            cluster=self.cluster,
            pod=self.pod,
            args=self.args,
            gates=self.gates,
            filter_nodes=candidates,
        )

    def written_out(self) -> "Story":
        """The same story for a pod that has the expected derived constraints as its own."""
        pod = copy.deepcopy(self.pod)
        pod["spec"]["topologySpreadConstraints"] = [
            constraint(given, self.group) for given in self.expect["derived"]
        ]
        return replace(self, pod=pod, args={"defaultingType": "List"})


def stories() -> Iterator[Story]:
    """All stories of all files."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            yield parse_story(document, path.stem)


def parse_story(document: Json, proposal: str) -> Story:
    """A story of a data file.

    Raises:
        ValueError: a member that the notation does not have.
    """
    known(document, STORY_MEMBERS, document["name"])
    known(document["pod"], POD_MEMBERS, document["name"])
    known(document.get("expect", {}), EXPECT_MEMBERS, document["name"])
    for step in document.get("steps", []):
        known(step, STEP_MEMBERS, document["name"])
    if ("expect" in document) == ("steps" in document):
        raise ValueError(f"{document['name']}: a story has either expect or steps")
    levels = document.get("levels", [ZONE, NODE])
    group = document.get("group", {"foo": "bar"})
    nodes, pods = parts(document["cluster"], levels, group)
    infeasible = {
        node["metadata"]["name"] for node in within(nodes, document.get("infeasible", []), levels)
    }
    because = document.get("because", "taints")
    if because not in REFUSERS:
        raise ValueError(f"{document['name']}: because is one of {REFUSERS}, not {because!r}")
    if because == "taints":
        for node in nodes:
            if node["metadata"]["name"] in infeasible:
                node["spec"]["taints"] = [{"key": "infeasible", "effect": "NoSchedule"}]
    return Story(
        name=f"{proposal}: {document['name']}",
        source=document["source"],
        cluster={"nodes": nodes, "pods": pods} | {k: workloads(document, k) for k in WORKLOADS},
        pod=incoming(document["pod"], group),
        args=document.get("args", {}),
        gates=document.get("gates", {}),
        infeasible=frozenset(infeasible),
        levels=(levels[0], levels[1]),
        group=group,
        expect=document.get("expect", {}),
        steps=document.get("steps", []),
    )


def known(document: Json, members: set[str], where: str) -> None:
    """Refuse members that nobody would read."""
    if unknown := set(document) - members:
        raise ValueError(f"{where}: unknown {sorted(unknown)}; known are {sorted(members)}")


def parts(cluster: Json, levels: list[str], group: dict[str, str]) -> tuple[list[Json], list[Json]]:
    """The nodes and running pods of a cluster in compact notation."""
    nodes, pods = [], []
    for domain, members in cluster.items():
        inner = members if isinstance(members, dict) else {f"{domain}-node": members}
        for name, count in inner.items():
            labels = {NODE: name, levels[0]: domain, levels[1]: name}
            nodes.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": labels},
                    "spec": {},
                }
            )
            pods += [running(f"{name}-{n + 1}", name, group) for n in range(count)]
    return nodes, pods


def running(name: str, node: str, labels: dict[str, str]) -> Json:
    """A running pod."""
    return bare_pod(name, labels) | {
        "spec": {"containers": [{"name": "c", "image": "pause"}], "nodeName": node},
        "status": {"phase": "Running"},
    }


def incoming(document: Json, group: dict[str, str]) -> Json:
    """The incoming pod of a story."""
    pod = bare_pod("incoming", document.get("labels", group))
    if owner := document.get("owner"):
        kind, _, name = owner.partition("/")
        versions = {kind: version for version, kind in WORKLOADS.values()}
        pod["metadata"]["ownerReferences"] = [
            {"apiVersion": versions[kind], "kind": kind, "name": name, "controller": True}
        ]
    if constraints := document.get("constraints"):
        pod["spec"]["topologySpreadConstraints"] = [constraint(c, group) for c in constraints]
    if affinity := document.get("affinity"):
        expressions = [
            {"key": KEYS.get(key, key), "operator": "In", "values": values}
            for key, values in affinity.items()
        ]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    return pod


def bare_pod(name: str, labels: dict[str, str]) -> Json:
    """A pod that nothing constrains and that no node runs."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels)},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
        "status": {"phase": "Pending"},
    }


def constraint(document: Json, group: dict[str, str]) -> Json:
    """A constraint with the notation's defaults filled in."""
    filled: Json = {
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": group},
    } | document
    return filled | {"topologyKey": KEYS.get(filled["topologyKey"], filled["topologyKey"])}


def workloads(document: Json, kind: str) -> list[Json]:
    """The services or owners of a story."""
    version, name = WORKLOADS[kind]
    return [
        {
            "apiVersion": version,
            "kind": name,
            "metadata": {"name": workload, "namespace": "default"},
            "spec": {"selector": selector},
        }
        for workload, selector in document.get(kind, {}).items()
    ]


def within(nodes: Iterable[Json], names: Iterable[str], levels: Iterable[str]) -> list[Json]:
    """The nodes that are named, or that lie in a domain that is named.

    Raises:
        ValueError: a name that is neither a node's nor a domain's.
    """
    found: list[Any] = []
    keys = ("metadata.name", *levels)
    for name in names:
        matching = [node for node in nodes if name in places(node, keys)]
        if not matching:
            raise ValueError(f"no node or domain {name!r}")
        found += matching
    return found


def places(node: Json, keys: Iterable[str]) -> set[str]:
    """The names a story may call a node by: its own and its domains'."""
    labels = node["metadata"]["labels"]
    return {node["metadata"]["name"], *(labels[key] for key in keys if key in labels)}
