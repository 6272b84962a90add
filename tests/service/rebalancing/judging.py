"""What the reference model says of states: do constraints hold, and the fewest moves to there."""

from __future__ import annotations

import copy
from itertools import combinations, product
from typing import Any

from tests.reference import taints
from tests.reference.affinity import accepts
from tests.reference.constraints import Gates, Question
from tests.reference.filtering import filter_node, pre_filter
from tests.reference.snapshot import Snapshot

Json = dict[str, Any]
Cluster = dict[str, list[Json]]


def above(cluster: Cluster, args: Json | None = None) -> list[tuple[str, str]]:
    """(pod, topology key) of every hard constraint of a counted pod that is above its maxSkew."""
    snapshot = Snapshot(cluster)
    found = []
    for pod in cluster["pods"]:
        if "deletionTimestamp" in pod["metadata"]:
            continue
        _, spread = pre_filter(Question(pod, args or {}, Gates.parse(None), cluster), snapshot)
        if spread is None:
            continue
        for constraint, counts, minimum in zip(
            spread.constraints, spread.counts, spread.minima(), strict=True
        ):
            if max(counts.values(), default=0) - minimum > constraint.max_skew:
                found.append((pod["metadata"]["name"], constraint.topology_key))
    return found


def moved(cluster: Cluster, name: str, node: str | None) -> Cluster:
    """The cluster with a pod on another node, or without it."""
    pods = []
    for pod in cluster["pods"]:
        if pod["metadata"]["name"] == name:
            if node is None:
                continue
            pod = copy.deepcopy(pod)
            pod["spec"]["nodeName"] = node
        pods.append(pod)
    return {**cluster, "pods": pods}


def may_go(cluster: Cluster, pod: Json, target: str, args: Json | None = None) -> bool:
    """Whether spreading, affinity, taints and cordons let a new pod go to a node."""
    snapshot = Snapshot(cluster)
    node = snapshot.nodes[target]
    question = Question(pod, args or {}, Gates.parse(None), cluster)
    _, spread = pre_filter(question, snapshot)
    if spread is not None:
        status = filter_node(question, spread, spread.minima(), node)
        if status["code"] != "Success":
            return False
    return suits(pod, node)


def suits(pod: Json, node: Json) -> bool:
    """Whether affinity, taints and cordons let a pod go to a node."""
    spec = node.get("spec") or {}
    return not spec.get("unschedulable") and accepts(pod, node) and _tolerated(pod, node)


def fewest_moves(cluster: Cluster, most: int) -> int | None:
    """The fewest pods whose moving makes all constraints hold, by trying all; None: no such.

    Args:
        cluster: every pod of which has a controller.
        most: moves to try at most.
    """
    nodes = {node["metadata"]["name"]: node for node in cluster["nodes"]}
    pods = {pod["metadata"]["name"]: pod for pod in cluster["pods"]}
    movable = [
        name
        for name, pod in pods.items()
        if pod["metadata"].get("ownerReferences") and pod["spec"].get("topologySpreadConstraints")
    ]
    for count in range(most + 1):
        for names in combinations(movable, count):
            targets = [
                [node for node in nodes if node != pods[name]["spec"]["nodeName"]] for name in names
            ]
            for chosen in product(*targets):
                if not all(
                    _lands(pods[name], nodes[node])
                    for name, node in zip(names, chosen, strict=True)
                ):
                    continue
                after = cluster
                for name, node in zip(names, chosen, strict=True):
                    after = moved(after, name, node)
                if not above(after):
                    return count
    return None


def _lands(pod: Json, node: Json) -> bool:
    keys = {c["topologyKey"] for c in pod["spec"]["topologySpreadConstraints"]}
    return keys <= set(node["metadata"]["labels"]) and suits(pod, node)


def _tolerated(pod: Json, node: Json) -> bool:
    return taints.accepts(pod, node, comparison_operators=False)
