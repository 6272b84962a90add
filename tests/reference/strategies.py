"""Random clusters, incoming pods, args, gates and what-ifs for property tests.

All values come from small alphabets (alphabets.py), so that keys, labels, domains and names collide
often, and each alphabet holds the values that an implementation is likely to get wrong. Objects are
Kubernetes JSON as `kubectl get -o json` prints it. histories.py lets a cluster change.

Making a strategy costs more than drawing from it, so that each is made once.
"""

from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.allocatable import ROOMY
from tests.conformance.cases import Decision, Json
from tests.reference import alphabets
from tests.reference.alphabets import HOSTNAME, KINDS, NODE_NAMES, POD_NAMES, ZONE


def maybe(members: dict[str, SearchStrategy[Any]], **always: SearchStrategy[Any]) -> Any:
    """Objects with the `always` members and any of the others."""
    return st.fixed_dictionaries(dict(always), optional=members)


def any_of(*values: Any) -> SearchStrategy[Any]:
    """One of the values; repeat a value to make it likelier."""
    return st.sampled_from(values)


def kind_of(*strategies: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """What one of the strategies draws; repeat one to make it likelier."""
    return st.sampled_from(strategies).flatmap(lambda strategy: strategy)


def lists_of(strategy: SearchStrategy[Any], *sizes: int) -> SearchStrategy[Any]:
    """Lists of one of the sizes; st.lists by itself likes short ones."""
    return any_of(*sizes).flatmap(lambda n: st.lists(strategy, min_size=n, max_size=n))


@cache
def once_in(times: int) -> SearchStrategy[Any]:
    """True in about one of so many cases, never in the simplest."""
    return any_of(*[False] * (times - 1), True)


@cache
def pod_labels() -> SearchStrategy[dict[str, str]]:
    """Labels of pods; most have the common app."""
    return any_of(*alphabets.POD_LABELS).map(dict)


@cache
def taint_lists() -> SearchStrategy[list[Json]]:
    """No taint, or up to two."""
    return lists_of(any_of(*alphabets.TAINTS), 0, 1, 1, 0, 2)


@cache
def node_labels(name: str) -> SearchStrategy[dict[str, str]]:
    """Labels of a node, with or without each topology label; hostnames may be shared."""
    hostnames = any_of(*[name] * 8, "shared", None)
    return st.tuples(
        any_of(*alphabets.ZONES),
        hostnames,
        any_of(*alphabets.RACKS),
        any_of(*alphabets.NODE_LABELS),
    ).map(
        lambda drawn: (
            {
                key: value
                for key, value in zip((ZONE, HOSTNAME, "rack"), drawn[:3], strict=True)
                if value is not None
            }
            | drawn[3]
        )
    )


@cache
def nodes(name: str) -> SearchStrategy[Json]:
    """A node. spec.unschedulable without its taint means nothing."""
    return st.tuples(node_labels(name), taint_lists(), once_in(8)).map(
        lambda drawn: {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": drawn[0]},
            "spec": {"taints": drawn[1]}
            if drawn[1]
            else {"unschedulable": True}
            if drawn[2]
            else {},
            "status": {"allocatable": ROOMY},
        }
    )


@cache
def pods(name: str, node_names: tuple[str, ...]) -> SearchStrategy[Json]:
    """A pod of the cluster: running, waiting for a node, terminating or finished."""
    return st.tuples(
        any_of(*alphabets.POD_STATES),
        any_of(*alphabets.NAMESPACES),
        pod_labels(),
        any_of(*node_names * 3, alphabets.UNKNOWN_NODE, None),
    ).map(lambda drawn: pod(name, *drawn))


def pod(
    name: str, state: tuple[str, bool], namespace: str, labels: Any, node_name: str | None
) -> Json:
    """A pod of its drawn parts. One without a node is nominated for a node."""
    phase, terminating = state
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    if terminating:
        metadata["deletionTimestamp"] = alphabets.TERMINATING_SINCE
    spec: Json = {"containers": [{"name": "c", "image": "pause"}]}
    status = {"phase": phase}
    if node_name is None:
        status["nominatedNodeName"] = NODE_NAMES[0]
    else:
        spec["nodeName"] = node_name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@cache
def workloads(kind: str, name: str) -> SearchStrategy[Json]:
    """A service or an owner, with a nil, empty, common or malformed selector."""
    version, kind_name = KINDS[kind]
    plain = kind in ("services", "replicationControllers")
    selector = any_of(*alphabets.MATCH_LABELS, None, {}) if plain else selectors()
    return st.tuples(any_of(*alphabets.NAMESPACES), selector).map(
        lambda drawn: {
            "apiVersion": version,
            "kind": kind_name,
            "metadata": {"name": name, "namespace": drawn[0]},
            "spec": {} if drawn[1] is None else {"selector": drawn[1]},
        }
    )


@cache
def selectors() -> SearchStrategy[Json | None]:
    """Label selectors: common ones, nil, empty, with expressions, and some that do not parse."""
    common = any_of(*alphabets.MATCH_LABELS).map(lambda labels: {"matchLabels": labels})
    expressed = maybe(
        {"matchLabels": any_of(*alphabets.MATCH_LABELS, None)},
        matchExpressions=lists_of(any_of(*alphabets.MATCH_EXPRESSIONS), 1, 2),
    )
    malformed = any_of(*alphabets.MALFORMED_SELECTORS)
    return kind_of(*[common] * 15, *[expressed] * 5, st.none(), st.just({}), malformed)


@cache
def constraints() -> SearchStrategy[Json]:
    """Constraints of a pod; hard and soft ones, few with an unknown action."""
    return maybe(
        {
            "minDomains": any_of(3, 4, 9, 9, 2, 1, None),
            "matchLabelKeys": lists_of(
                any_of(*alphabets.POD_LABEL_KEYS, "pod-template-hash", "missing"), 1, 2, 0
            ),
            "nodeAffinityPolicy": any_of("Honor", "Ignore", "Ignore", None),
        },
        maxSkew=any_of(1, 1, 1, 1, 2, 2, 3, 5),
        topologyKey=any_of(*alphabets.TOPOLOGY_KEYS),
        whenUnsatisfiable=any_of(*["DoNotSchedule"] * 8, *["ScheduleAnyway"] * 6, "Sometimes"),
        labelSelector=selectors(),
        nodeTaintsPolicy=any_of(None, "Honor", "Honor", "Honor", "Ignore"),
    )


@cache
def node_selector_terms() -> SearchStrategy[list[Json]]:
    """Node affinity terms, of which some are empty or do not parse."""
    expression = maybe(
        {"values": any_of(*alphabets.NODE_VALUES)},
        key=any_of(ZONE, "rack", "disk", "num", "num"),
        operator=any_of(*alphabets.NODE_OPERATORS),
    )
    name = maybe(
        {"values": any_of(["n0"], ["n1"], ["n2"], [], ["n0", "n1"], [""])},
        key=any_of("metadata.name", "metadata.name", "metadata.namespace"),
        operator=any_of("In", "In", "NotIn", "NotIn", "Exists"),
    )
    odd = maybe(
        {
            "matchExpressions": lists_of(expression, 1, 2, 0),
            "matchFields": name.map(lambda drawn: [drawn]),
        }
    )
    term = kind_of(any_of(*alphabets.USUAL_TERMS), any_of(*alphabets.USUAL_TERMS), odd)
    return lists_of(term, 1, 1, 2, 0)


@cache
def tolerations() -> SearchStrategy[Json]:
    """Tolerations with each operator, none and an unknown one; keys and effects may be absent."""
    odd = maybe(
        {
            "key": any_of("ded", "num"),
            "operator": any_of("Equal", "Exists", "Gt", "Lt", "", "Near"),
            "value": any_of("x", "7", "8", "007", "+8", "-3", "99999999999999999999"),
            "effect": any_of("NoSchedule", "NoExecute", "PreferNoSchedule", ""),
            "tolerationSeconds": any_of(0, 60),
        }
    )
    return kind_of(*[any_of(*alphabets.USUAL_TOLERATIONS)] * 2, odd)


@cache
def owner_references() -> SearchStrategy[Json]:
    """Owner references, most of them controllers of a kind that is looked at."""
    return st.tuples(
        any_of(*alphabets.OWNERS),
        any_of(*alphabets.WORKLOAD_NAMES),
        any_of(True, True, False, None),
    ).map(
        lambda drawn: (
            {
                "apiVersion": drawn[0][0],
                "kind": drawn[0][1],
                "name": drawn[1],
                "uid": f"uid-of-{drawn[1]}",
            }
            | ({} if drawn[2] is None else {"controller": drawn[2]})
        )
    )


@cache
def incoming_pods() -> SearchStrategy[Json]:
    """An incoming pod: 0 to 4 constraints, affinity, tolerations, an owner."""
    required = kind_of(
        any_of(None, {}),
        *[maybe({}, nodeSelectorTerms=node_selector_terms())] * 4,
    )
    affinity = required.map(
        lambda drawn: {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": drawn}}
    )
    nothing = st.just(None)
    spec = st.fixed_dictionaries(
        {
            "containers": st.just([{"name": "c", "image": "pause"}]),
            "topologySpreadConstraints": lists_of(constraints(), 1, 1, 2, 2, 2, 3, 4, 0, 0, 0),
            "nodeSelector": kind_of(nothing, nothing, any_of(*alphabets.NODE_SELECTORS)),
            "affinity": kind_of(nothing, nothing, affinity),
            "tolerations": kind_of(nothing, *[lists_of(tolerations(), 1, 1, 2, 0)] * 2),
        }
    )
    metadata = st.fixed_dictionaries(
        {
            "name": st.just("incoming"),
            "namespace": any_of(*alphabets.NAMESPACES),
            "labels": pod_labels(),
            "ownerReferences": kind_of(nothing, lists_of(owner_references(), 1, 1, 2, 0)),
            "deletionTimestamp": any_of(None, None, None, None, alphabets.TERMINATING_SINCE),
            "uid": any_of("uid-of-incoming", None),
        }
    )
    return st.tuples(metadata, spec).map(
        lambda drawn: {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": present(drawn[0]),
            "spec": present(drawn[1]),
            "status": {"phase": "Pending"},
        }
    )


def present(members: Json) -> Json:
    """The members that are not None."""
    return {key: value for key, value in members.items() if value is not None}


@cache
def plugin_args() -> SearchStrategy[Json]:
    """PodTopologySpreadArgs: System, lists, and a few that the plugin refuses."""
    default = maybe(
        {"minDomains": any_of(1, 3), "matchLabelKeys": any_of(["pod-template-hash"])},
        maxSkew=any_of(1, 2, 3),
        topologyKey=any_of(ZONE, HOSTNAME, "rack"),
        whenUnsatisfiable=any_of("DoNotSchedule", "ScheduleAnyway"),
    )
    listed = st.lists(
        default, max_size=3, unique_by=lambda c: (c["topologyKey"], c["whenUnsatisfiable"])
    ).map(lambda given: {"defaultingType": "List", "defaultConstraints": given})
    refused = any_of(
        {"defaultingType": "Auto"},
        {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0, "topologyKey": ZONE}]},
        {
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
            ]
        },
    )
    system = any_of({}, {"defaultingType": "System"}, {"defaultConstraints": []})
    return kind_of(*[system] * 8, *[listed] * 10, refused)


@cache
def gates() -> SearchStrategy[dict[str, bool]]:
    """Feature gates, mostly as they are by default."""
    changed = maybe(
        {
            "nodeInclusionPolicy": st.booleans(),
            "matchLabelKeys": st.booleans(),
            "taintTolerationComparisonOperators": any_of(True, True, False),
            "minDomains": st.booleans(),
            "defaultPodTopologySpread": any_of(True, True, False),
            "schedulerMerge": st.booleans(),
        }
    )
    return kind_of(st.just({}), st.just({}), changed)


@cache
def clusters() -> SearchStrategy[Json]:
    """A cluster of a few nodes, its pods, and its services and owners."""
    return st.tuples(
        any_of(3, 3, 2, 4, 4, 5, 5, 6, 6, 7, 7, 1, 0),
        any_of(12, 6, 12, 16, 16, 20, 24, 24, 0),
        st.tuples(*[any_of(0, 1, 1, 2)] * len(KINDS)),
    ).flatmap(lambda sizes: clusters_of(*sizes))


@cache
def clusters_of(
    node_count: int, pod_count: int, workload_counts: tuple[int, ...]
) -> SearchStrategy[Json]:
    """A cluster with so many objects."""
    node_names = NODE_NAMES[:node_count]
    kinds = {
        kind: [workloads(kind, name) for name in alphabets.WORKLOAD_NAMES[:count]]
        for kind, count in zip(KINDS, workload_counts, strict=True)
    }
    objects = {
        "nodes": [nodes(name) for name in node_names],
        "pods": [pods(name, node_names) for name in POD_NAMES[:pod_count]],
    } | kinds
    lists: dict[str, SearchStrategy[Any]] = {
        kind: st.tuples(*members).map(list) for kind, members in objects.items()
    }
    return st.fixed_dictionaries(lists | {"kubernetesVersion": any_of("1.38", "1.37", "1.36")})


@st.composite
def operations(draw: DrawFn, cluster: Json) -> list[Json]:
    """AddPod and RemovePod what-ifs on the cluster's nodes: of running pods and of new ones."""
    node_names = tuple(node["metadata"]["name"] for node in cluster["nodes"])
    removable = [p for p in cluster["pods"] if p["spec"].get("nodeName") in node_names]
    ops: list[Json] = []
    if not node_names or not draw(once_in(3)):
        return ops
    for number in range(draw(st.integers(1, 3))):
        if removable and draw(once_in(2)):
            gone = draw(st.sampled_from(removable))
            ops.append({"op": "remove", "pod": gone, "node": gone["spec"]["nodeName"]})
        else:
            added = draw(pods(f"added{number}", node_names))
            added["spec"]["nodeName"] = draw(st.sampled_from(node_names))
            ops.append({"op": "add", "pod": added, "node": added["spec"]["nodeName"]})
    return ops


@st.composite
def questions(draw: DrawFn, cluster: Json) -> Decision:
    """A question about the cluster: a pod, args, gates, what-ifs, and the nodes to score."""
    node_names = [node["metadata"]["name"] for node in cluster["nodes"]]
    candidates = None
    if node_names and draw(once_in(3)):
        candidates = draw(st.lists(st.sampled_from(node_names), min_size=1, unique=True))
    return Decision(
        name="random",
        cluster=cluster,
        pod=draw(incoming_pods()),
        args=draw(plugin_args()),
        gates=draw(gates()),
        ops=draw(operations(cluster)),
        filter_nodes=candidates,
    )


@cache
def cases() -> SearchStrategy[Decision]:
    """A random cluster with a question about it."""
    return clusters().flatmap(questions)
