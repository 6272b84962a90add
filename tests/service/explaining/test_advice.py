"""Suggestions in their order, and each of them carried out on the cluster."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.new_nodes import labels_of_added
from tests.service.explaining.cases import CORDON, stories
from tests.service.explaining.test_cases import by_use_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.service.explaining.cases import Json, Story
    from topospread_proto.v1.explanation_pb2 import SuggestedChange, Suggestion

ADVICE = list(stories("advice.yaml"))
ALL = [*ADVICE, *stories()]

FIELDS = {
    "set_max_skew": ("max_skew", "maxSkew"),
    "set_min_domains": ("min_domains", "minDomains"),
    "set_node_taints_policy": ("node_taints_policy", "nodeTaintsPolicy"),
    "set_node_affinity_policy": ("node_affinity_policy", "nodeAffinityPolicy"),
    "set_when_unsatisfiable": ("when_unsatisfiable", "whenUnsatisfiable"),
    "set_topology_key": ("topology_key", "topologyKey"),
}
"""Members of a constraint that a suggestion gives another value."""


@pytest.mark.parametrize("story", ADVICE, ids=lambda story: story.name)
def test_suggestions_mend_the_cause_first(story: Story) -> None:
    found = by_use_case(story)
    texts = [f"{each.text}: {each.fitting_node_count}" for each in found.suggestions]
    assert texts == story.expected["advice"]
    assert found.cause == story.expected["cause"]
    gaps = [each for each in found.not_modelled if not each.startswith("preemption")]
    assert all(list(each.not_modelled) == gaps for each in found.suggestions)


@pytest.mark.parametrize("story", ALL, ids=lambda story: story.name)
def test_a_suggestion_that_is_carried_out_lets_the_pod_in(story: Story) -> None:
    for suggestion in by_use_case(story).suggestions:
        fits = [by_use_case(each).fitting_node_count for each in carried_out(story, suggestion)]
        assert suggestion.fitting_node_count in fits, suggestion.text


def carried_out(story: Story, suggestion: Suggestion) -> Iterator[Story]:
    """The case with all changes made, one for each node that new ones may be like."""
    larger: Json = {}
    if "than any node" in suggestion.text:
        larger = story.pod["spec"]["containers"][0]["resources"]["requests"]
    for like in nodes_of(story):
        changed = replace(story, cluster=deepcopy(story.cluster), pod=deepcopy(story.pod))
        for change in suggestion.changes:
            make(changed, change, like, larger)
        yield changed


def nodes_of(story: Story) -> Sequence[Json]:
    return [each for each in story.cluster if each["kind"] == "Node"]


def make(story: Story, change: SuggestedChange, like: Json, larger: Json) -> None:
    """Make a change to a case in place."""
    kind = change.WhichOneof("change")
    assert kind is not None
    if kind in FIELDS:
        field, member = FIELDS[kind]
        constraint = story.pod["spec"]["topologySpreadConstraints"][change.constraint_index]
        constraint[member] = getattr(getattr(change, kind), field)
    elif kind == "add_nodes":
        assert change.add_nodes.node_count == 1
        made = new_node(story, like, "added", dict(change.add_nodes.labels))
        made["status"]["allocatable"] |= larger
        story.cluster.append(made)
    elif kind == "add_domains":
        names = [f"added-{number}" for number in range(change.add_domains.domain_count)]
        key = change.topology_key
        story.cluster.extend([new_node(story, like, name, {key: name}) for name in names])
    elif kind == "label_nodes":
        same = next(e for e in nodes_of(story) if e["metadata"]["name"] == like["metadata"]["name"])
        same["metadata"]["labels"].setdefault(change.topology_key, change.label_nodes.domain)
    elif kind == "uncordon_nodes":
        for node in nodes_of(story):
            node.get("spec", {}).pop("unschedulable", None)
            if CORDON in (taints := node.get("spec", {}).get("taints", [])):
                taints.remove(CORDON)
    else:
        key, _, effect = change.add_toleration.taint.partition(":")
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        story.pod["spec"].setdefault("tolerations", []).append(toleration)


def new_node(story: Story, like: Json, name: str, labels: Json) -> Json:
    """A node like one of the cluster's, ready and with labels as well."""
    made = deepcopy(like)
    known, nodes = like["metadata"], [each["metadata"]["labels"] for each in nodes_of(story)]
    labels = labels_of_added(known["labels"], known["name"], name, labels, nodes)
    made["metadata"] = {"name": name, "labels": labels}
    made.pop("spec", None)
    return made
