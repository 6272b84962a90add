"""What ExplainPod suggests lets the pod in: the reference model is asked of the state after it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice

from hypothesis import given

from tests.conformance.cases import Decision, Json
from tests.properties.expected import answer_to
from tests.properties.questions import odd_cases
from tests.properties.test_explanations import case_of
from tests.reference.alphabets import HOSTNAME
from tests.reference.constraints import Gates, parse
from tests.reference.objects import labels_of, namespace_of
from tests.reference.snapshot import Snapshot
from tests.reference.strategies import cases, kind_of
from topospread.service.explaining.suggestions import suggestions
from topospread_proto.v1.explanation_pb2 import SuggestedChange

WAYS = 500
"""Ways to follow a suggestion that are tried; those that it means come first."""

FIELDS = {
    "set_max_skew": ("max_skew", "maxSkew"),
    "set_min_domains": ("min_domains", "minDomains"),
    "set_node_taints_policy": ("node_taints_policy", "nodeTaintsPolicy"),
    "set_node_affinity_policy": ("node_affinity_policy", "nodeAffinityPolicy"),
    "set_when_unsatisfiable": ("when_unsatisfiable", "whenUnsatisfiable"),
}
"""Members of a constraint that a suggestion gives another value."""


@given(decision=kind_of(cases(), cases(), odd_cases()))
def test_suggested_change_lets_the_pod_in(decision: Decision) -> None:
    decision = replace(decision, ops=[], filter_nodes=None)
    if "newError" in answer_to(decision):
        return
    case = case_of(decision)
    if case.constraints.defaulted:
        return  # the profile's constraints are not the pod's to change
    for suggestion in suggestions(case):
        followed = islice(ways(decision, suggestion.changes), WAYS)
        assert any(fitting(each) == suggestion.fitting_node_count for each in followed), suggestion


def fitting(decision: Decision) -> int:
    """Nodes that the model lets the pod on."""
    answer = answer_to(decision)
    verdicts = answer.get("filter")
    if verdicts is None:
        return len(decision.cluster["nodes"])
    return sum(verdict["code"] == "Success" for verdict in verdicts.values())


def ways(decision: Decision, changes: Sequence[SuggestedChange]) -> Iterator[Decision]:
    """All ways to make the changes."""
    if not changes:
        yield decision
        return
    for changed in made(decision, changes[0]):
        yield from ways(changed, changes[1:])


def made(decision: Decision, change: SuggestedChange) -> Iterator[Decision]:
    """All ways to make one change."""
    kind = change.WhichOneof("change")
    if kind in FIELDS:
        field, member = FIELDS[kind]
        pod = deepcopy(decision.pod)
        constraint = pod["spec"]["topologySpreadConstraints"][change.constraint_index]
        constraint[member] = getattr(getattr(change, kind), field)
        yield replace(decision, pod=pod)
    elif kind == "remove_pods":
        for gone in removals(counted(decision, change), change.remove_pods.pod_count):
            left = [pod for pod in decision.cluster["pods"] if pod not in gone]
            yield replace(decision, cluster=decision.cluster | {"pods": left})
    elif kind == "add_domains":
        for like in decision.cluster["nodes"]:
            new = [
                with_labels(like, f"fresh-{n}", change)
                for n in range(change.add_domains.domain_count)
            ]
            nodes = [*decision.cluster["nodes"], *new]
            yield replace(decision, cluster=decision.cluster | {"nodes": nodes})
    else:
        assert kind == "label_nodes"
        nodes = decision.cluster["nodes"]
        for at, node in enumerate(nodes):
            if change.topology_key not in labels_of(node):
                other = deepcopy(node)
                other["metadata"].setdefault("labels", {})[change.topology_key] = (
                    change.label_nodes.domain
                )
                changed = [*nodes[:at], other, *nodes[at + 1 :]]
                yield replace(decision, cluster=decision.cluster | {"nodes": changed})


def counted(decision: Decision, change: SuggestedChange) -> list[list[Json]]:
    """The pods that a constraint counts in a domain, by node and labels; the most alike first."""
    written = decision.pod["spec"]["topologySpreadConstraints"][change.constraint_index]
    namespace = namespace_of(decision.pod)
    selector = parse(written, decision.pod, Gates.parse(decision.gates)).selector
    alike: defaultdict[tuple[str, ...], list[Json]] = defaultdict(list)
    for pod in decision.cluster["pods"]:
        alone = Snapshot(decision.cluster | {"pods": [pod]})
        for name, node in alone.nodes.items():
            in_domain = labels_of(node).get(change.topology_key) == change.remove_pods.domain
            if in_domain and alone.count(name, selector, namespace):
                alike[name, *map(str, sorted(labels_of(pod).items()))].append(pod)
    return sorted(alike.values(), key=len, reverse=True)


def removals(alike: list[list[Json]], number: int) -> Iterator[list[Json]]:
    """All ways to remove so many pods; which of those that are alike makes no difference."""
    if not alike:
        if not number:
            yield []
        return
    for here in range(min(number, len(alike[0])), -1, -1):
        for others in removals(alike[1:], number - here):
            yield [*alike[0][:here], *others]


def with_labels(like: Json, name: str, change: SuggestedChange) -> Json:
    """A node like another, in a domain of its own."""
    node = deepcopy(like)
    node["metadata"]["name"] = name
    node["metadata"].setdefault("labels", {}).update({HOSTNAME: name, change.topology_key: name})
    return node
