"""What ExplainPod suggests lets the pod in: the reference model is asked of the state after it."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice

from hypothesis import given

from tests.conformance.cases import Decision, Json
from tests.new_nodes import labels_of_added
from tests.properties.expected import answer_to
from tests.properties.questions import odd_cases
from tests.properties.test_explanations import case_of
from tests.reference.objects import labels_of
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
    "set_topology_key": ("topology_key", "topologyKey"),
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
    elif kind == "add_nodes":
        labels = dict(change.add_nodes.labels)
        for like in decision.cluster["nodes"]:
            for ready in (True, False):
                one = new_node(decision, like, "fresh", labels, ready=ready)
                more = [*decision.cluster["nodes"], one]
                yield replace(decision, cluster=decision.cluster | {"nodes": more})
    elif kind == "add_domains":
        for like in decision.cluster["nodes"]:
            new = [
                new_node(decision, like, f"fresh-{n}", {change.topology_key: f"fresh-{n}"})
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


def new_node(
    decision: Decision, like: Json, name: str, asked: dict[str, str], *, ready: bool = False
) -> Json:
    """A node like another, with labels as well; a ready one is neither cordoned nor tainted."""
    node = deepcopy(like)
    nodes = [dict(labels_of(each)) for each in decision.cluster["nodes"]]
    own = like["metadata"]["name"]
    labels = labels_of_added(dict(labels_of(like)), own, name, asked, nodes)
    node["metadata"] |= {"name": name, "labels": labels}
    if ready:
        node.pop("spec", None)
    return node
