"""Random histories: a cluster, and the changes that happen to it one after the other.

A change carries a whole object, as a watch event does, so that it can be given to an index or a
store as it is; `changed` applies it to a cluster of plain lists.
"""

import copy
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.conformance.cases import Json
from tests.reference.alphabets import (
    KINDS,
    NODE_NAMES,
    POD_NAMES,
    TERMINATING_SINCE,
    UNKNOWN_NODE,
    WORKLOAD_NAMES,
)
from tests.reference.strategies import (
    any_of,
    clusters,
    node_labels,
    nodes,
    once_in,
    pod_labels,
    pods,
    taint_lists,
    workloads,
)


@dataclass(frozen=True)
class Change:
    """One object's new state, or its end.

    Attributes:
        what: the change in words, for reports: "node relabelled", "pod moves" and so on.
        kind: the cluster's list that the object is in.
        object: the whole object as it is now, or as it was last.
        gone: whether it is deleted.
    """

    what: str
    kind: str
    object: Json
    gone: bool = False


@dataclass(frozen=True)
class History:
    """A cluster, and what happens to it."""

    start: Json
    changes: list[Change]


@st.composite
def histories(draw: DrawFn, max_changes: int = 12) -> History:
    """A cluster with a sequence of changes, each made to the state that the ones before left."""
    start = draw(clusters())
    cluster, changes = start, []
    for _ in range(draw(st.integers(1, max_changes))):
        change = draw(any_change(cluster))
        cluster = changed(cluster, change)
        changes.append(change)
    return History(start, changes)


@st.composite
def any_change(draw: DrawFn, cluster: Json) -> Change:
    """A change that makes sense in this cluster."""
    kinds = ["nodes", "nodes", "pods", "pods", "pods", *KINDS]
    kind = draw(st.sampled_from(kinds))
    if kind == "nodes":
        return draw(node_changes(cluster))
    if kind == "pods":
        return draw(pod_changes(cluster))
    return draw(workload_changes(cluster, kind))


@st.composite
def node_changes(draw: DrawFn, cluster: Json) -> Change:
    """A node appears, vanishes, or gets other labels or taints."""
    if not cluster["nodes"] or draw(once_in(3)):
        return Change("node appears", "nodes", draw(nodes(draw(any_of(*NODE_NAMES, UNKNOWN_NODE)))))
    node = copy.deepcopy(draw(st.sampled_from(cluster["nodes"])))
    match draw(any_of("vanishes", "relabelled", "relabelled", "tainted")):
        case "vanishes":
            return Change("node vanishes", "nodes", node, gone=True)
        case "relabelled":
            node["metadata"]["labels"] = draw(node_labels(node["metadata"]["name"]))
            return Change("node relabelled", "nodes", node)
    node["spec"]["taints"] = draw(taint_lists())
    return Change("node tainted", "nodes", node)


@st.composite
def pod_changes(draw: DrawFn, cluster: Json) -> Change:
    """A pod starts, moves, terminates, finishes, is relabelled or deleted."""
    node_names = tuple(node["metadata"]["name"] for node in cluster["nodes"])
    if not cluster["pods"] or draw(once_in(3)):
        return Change("pod starts", "pods", draw(pods(draw(any_of(*POD_NAMES)), node_names)))
    pod = copy.deepcopy(draw(st.sampled_from(cluster["pods"])))
    match draw(any_of("moves", "terminates", "finishes", "relabelled", "deleted")):
        case "moves":
            # To another node, to one that is not there (yet), or from none to one.
            pod["spec"]["nodeName"] = draw(any_of(*node_names, *NODE_NAMES[:3], UNKNOWN_NODE))
            return Change("pod moves", "pods", pod)
        case "terminates":
            pod["metadata"]["deletionTimestamp"] = TERMINATING_SINCE
            return Change("pod terminates", "pods", pod)
        case "finishes":
            pod["status"]["phase"] = draw(any_of("Succeeded", "Failed"))
            return Change("pod finishes", "pods", pod)
        case "relabelled":
            pod["metadata"]["labels"] = draw(pod_labels())
            return Change("pod relabelled", "pods", pod)
    return Change("pod deleted", "pods", pod, gone=True)


@st.composite
def workload_changes(draw: DrawFn, cluster: Json, kind: str) -> Change:
    """A service or an owner appears, gets another selector, or is deleted."""
    if cluster[kind] and draw(once_in(3)):
        gone = copy.deepcopy(draw(st.sampled_from(cluster[kind])))
        return Change("workload deleted", kind, gone, gone=True)
    workload = draw(workloads(kind, draw(any_of(*WORKLOAD_NAMES))))
    return Change("workload changes", kind, workload)


def changed(cluster: Json, change: Change) -> Json:
    """The cluster after the change; the given one stays as it was."""
    rest = [obj for obj in cluster[change.kind] if identity(obj) != identity(change.object)]
    return cluster | {change.kind: rest if change.gone else [*rest, change.object]}


def identity(obj: Json) -> tuple[str, str]:
    """What an object of a kind is known by: its namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
