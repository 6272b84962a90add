"""Filters that ask which pods are on nodes: ports, inter-pod affinity, room, nominated pods.

Plain loops over the pods of every node, from the facts in docs/upstream-semantics.md and the
recorded answers; `said` is what a plugin says alone, `verdicts` what the profile says of each node.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.reference.objects import Json, labels_of
from tests.reference.selectors import parse_selector

FILTERS = ("NodeName", "NodePorts", "InterPodAffinity", "NodeDeclaredFeatures")

NEVER, NOW = "UnschedulableAndUnresolvable", "Unschedulable"
PORTS = "node(s) didn't have free ports for the requested pod ports"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
FEATURE = "RestartAllContainersOnContainerExits"

Verdict = dict[str, Any] | None
Placed = Sequence[tuple[Json, Json]]
"""Pods with their nodes."""


def said(plugin: str, cluster: Json, pod: Json) -> Json:
    """What a plugin says alone, as recorded answers have it; empty where it refuses nothing."""
    found: Json = {}
    if plugin == "NodeName" and (name := pod["spec"].get("nodeName")):
        found["nodes"] = [name]
    placed = running(cluster)
    refused = {
        node["metadata"]["name"]: verdict
        for node in cluster["nodes"]
        if (verdict := verdict_of(plugin, cluster, pod, node, placed)) is not None
    }
    return found | ({"refused": refused} if refused else {})


def verdicts(cluster: Json, pod: Json, plugins: Sequence[str]) -> dict[str, Json]:
    """The verdict on each node: with its nominated pods, and without (fact 19)."""
    placed = running(cluster)
    answer: dict[str, Json] = {}
    for node in cluster["nodes"]:
        name = node["metadata"]["name"]
        nominated = [(other, node) for other in nominated_on(name, cluster, pod)]
        tries = [[*placed, *nominated], placed] if nominated else [placed]
        answer[name] = {"feasible": True}
        for there in tries:
            refusal = first_refusal(plugins, cluster, pod, node, placed, there)
            if refusal is not None:
                answer[name] = {"feasible": False, **refusal}
                break
    return answer


def first_refusal(
    plugins: Sequence[str], cluster: Json, pod: Json, node: Json, placed: Placed, there: Placed
) -> Verdict:
    """The first plugin's refusal; one that PreFilter skips is not asked with other pods either."""
    for plugin in plugins:
        if plugin == "InterPodAffinity" and not asks_of_pods(cluster, pod, placed):
            continue
        verdict = verdict_of(plugin, cluster, pod, node, there)
        if verdict is not None:
            return {"plugin": plugin, **verdict}
    return None


def running(cluster: Json) -> Placed:
    """The pods on nodes, terminating ones among them; ended ones are nowhere."""
    nodes = {node["metadata"]["name"]: node for node in cluster["nodes"]}
    return [
        (pod, nodes[pod["spec"]["nodeName"]])
        for pod in cluster["pods"]
        if pod["spec"].get("nodeName") in nodes
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
    ]


def nominated_on(node: str, cluster: Json, pod: Json) -> list[Json]:
    """Others of equal or higher priority that wait for the node."""
    return [
        other
        for other in cluster["pods"]
        if not other["spec"].get("nodeName")
        and other["status"].get("nominatedNodeName") == node
        and other["spec"].get("priority", 0) >= pod["spec"].get("priority", 0)
        and other["metadata"]["name"] != pod["metadata"]["name"]
    ]


def verdict_of(plugin: str, cluster: Json, pod: Json, node: Json, placed: Placed) -> Verdict:
    """One plugin's refusal of one node."""
    on_node = [other for other, where in placed if where is node]
    match plugin:
        case "NodeName":
            named = pod["spec"].get("nodeName")
            if named and named != node["metadata"]["name"]:
                return refusal(NEVER, "node(s) didn't match the requested node name")
        case "NodePorts":
            for own in ports(pod):
                if any(conflict(own, other) for each in on_node for other in ports(each)):
                    return refusal(NOW, PORTS)
        case "NodeResourcesFit":
            taken, there = sum(map(cpu, on_node)), int(node["status"]["allocatable"]["cpu"])
            if cpu(pod) and cpu(pod) > there - taken:
                return refusal(NEVER if cpu(pod) > there else NOW, "Insufficient cpu")
        case "PodTopologySpread":
            return spread(cluster, pod, node, placed)
        case "InterPodAffinity":
            return affinity(cluster, pod, node, placed)
        case "NodeDeclaredFeatures":
            rules = [
                rule["action"]
                for container in pod["spec"]["containers"]
                for rule in container.get("restartPolicyRules", ())
            ]
            if "RestartAllContainers" in rules and FEATURE not in node["status"].get(
                "declaredFeatures", ()
            ):
                return refusal(NEVER, "node(s) didn't match Pod's required features")
    return None


def refusal(code: str, reason: str) -> Json:
    """A status."""
    return {"code": code, "reasons": [reason]}


def ports(pod: Json) -> Iterable[tuple[str, str, int]]:
    """Protocol, address and number of each host port (fact 14)."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports", ()):
            number = port.get("hostPort", 0)
            if not number and spec.get("hostNetwork"):
                number = port["containerPort"]
            if number:
                yield port.get("protocol", "TCP"), port.get("hostIP", "") or "0.0.0.0", number


def conflict(left: tuple[str, str, int], right: tuple[str, str, int]) -> bool:
    """Whether two ports are one; 0.0.0.0 stands for all addresses."""
    anywhere = "0.0.0.0" in (left[1], right[1])
    return left[0] == right[0] and left[2] == right[2] and (anywhere or left[1] == right[1])


def cpu(pod: Json) -> int:
    """Whole CPUs that the containers ask for."""
    return sum(int(c["resources"]["requests"]["cpu"]) for c in pod["spec"]["containers"])


def terms(pod: Json, kind: str) -> list[Json]:
    """The required terms of podAffinity or podAntiAffinity."""
    given: Json = pod["spec"].get("affinity", {}).get(kind, {})
    found: list[Json] = given.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return found


def matches(term: Json, of: Json, other: Json, cluster: Json) -> bool:
    """Whether a term of one pod is about another (fact 18)."""
    namespace = other["metadata"]["namespace"]
    named = term.get("namespaces", [])
    chosen = term.get("namespaceSelector")
    if not named and chosen is None:
        named = [of["metadata"]["namespace"]]
    covered = namespace in named
    for each in cluster["namespaces"]:
        if each["metadata"]["name"] == namespace and chosen is not None:
            covered = covered or parse_selector(chosen).matches(labels_of(each))
    if chosen == {}:
        covered = True
    return covered and parse_selector(term.get("labelSelector")).matches(labels_of(other))


def shares(term: Json, one: Json, other: Json) -> bool:
    """Whether two nodes are in one domain of a term's key."""
    key = term["topologyKey"]
    return key in labels_of(one) and labels_of(one).get(key) == labels_of(other).get(key)


def asks_of_pods(cluster: Json, pod: Json, placed: Placed) -> bool:
    """Whether InterPodAffinity has anything to look at."""
    own = terms(pod, "podAffinity") or terms(pod, "podAntiAffinity")
    return bool(own) or any(
        matches(term, other, pod, cluster) and term["topologyKey"] in labels_of(where)
        for other, where in placed
        for term in terms(other, "podAntiAffinity")
    )


def affinity(cluster: Json, pod: Json, node: Json, placed: Placed) -> Verdict:
    """Own affinity, own anti-affinity, that of others."""
    wanted = terms(pod, "podAffinity")
    if wanted and any(term["topologyKey"] not in labels_of(node) for term in wanted):
        return refusal(NEVER, AFFINITY)
    liked = [
        where for other, where in placed if all(matches(t, pod, other, cluster) for t in wanted)
    ]
    if not all(any(shares(term, node, where) for where in liked) for term in wanted):
        keys = [term["topologyKey"] for term in wanted]
        anywhere = any(key in labels_of(where) for where in liked for key in keys)
        if anywhere or not all(matches(term, pod, pod, cluster) for term in wanted):
            return refusal(NEVER, AFFINITY)
    for term in terms(pod, "podAntiAffinity"):
        for other, where in placed:
            if matches(term, pod, other, cluster) and shares(term, node, where):
                return refusal(NOW, ANTI_AFFINITY)
    for other, where in placed:
        for term in terms(other, "podAntiAffinity"):
            if matches(term, other, pod, cluster) and shares(term, node, where):
                return refusal(NOW, OTHERS)
    return None


def spread(cluster: Json, pod: Json, node: Json, placed: Placed) -> Verdict:
    """Hard constraints with a selector; pods that run count unless they terminate.

    A nominated pod counts as it would be there, whatever else it is.
    """
    constraints = pod["spec"].get("topologySpreadConstraints", ())
    keys = [each["topologyKey"] for each in constraints]
    counted = [each for each in cluster["nodes"] if set(keys) <= set(labels_of(each))]
    for each in constraints:
        key, selector = each["topologyKey"], parse_selector(each["labelSelector"])
        if key not in labels_of(node):
            return refusal(NEVER, f"{SKEWED} (missing required label)")
        counts = {labels_of(where)[key]: 0 for where in counted}
        for other, where in placed:
            if other["metadata"]["namespace"] != pod["metadata"]["namespace"]:
                continue
            if "deletionTimestamp" in other["metadata"] or where not in counted:
                continue
            counts[labels_of(where)[key]] += selector.matches(labels_of(other))
        own = counts.get(labels_of(node)[key], 0) + selector.matches(labels_of(pod))
        if own - min(counts.values(), default=0) > each["maxSkew"]:
            return refusal(NOW, SKEWED)
    return None
