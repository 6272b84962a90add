"""Which nodes a pod accepts: node selector and affinity."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.kube import values
from tests.reference import affinity, strategies
from topospread.kube.affinity import compile_requirements, pinned_node
from topospread.kube.objects import NodeExpression, NodeRequirements, NodeTerm

LABELS = {"disk": "ssd", "num": "7", "odd": "x1"}


def requiring(*terms: NodeTerm) -> NodeRequirements:
    return NodeRequirements(terms=terms)


def labels_term(key, operator, *found):
    return NodeTerm(match_expressions=(NodeExpression(key, operator, found),))


def fields_term(key, operator, *found):
    return NodeTerm(match_fields=(NodeExpression(key, operator, found),))


MATCHING = labels_term("disk", "In", "ssd")


@pytest.mark.parametrize(
    "requirements",
    [
        NodeRequirements(),
        NodeRequirements(node_selector=(("disk", "ssd"),)),
        requiring(MATCHING),
        requiring(labels_term("disk", "NotIn", "hdd"), labels_term("x", "Exists")),
        requiring(labels_term("num", "Gt", "6")),
        requiring(labels_term("num", "Lt", "008")),
        requiring(labels_term("missing", "NotIn", "x")),
        requiring(labels_term("missing", "DoesNotExist")),
        requiring(fields_term("metadata.name", "In", "n1")),
        requiring(fields_term("metadata.name", "NotIn", "n2")),
        requiring(fields_term("metadata.namespace", "In", "")),
        requiring(labels_term("num", "Gt", "-1"), MATCHING),
    ],
)
def test_requirements_that_a_node_fulfils(requirements):
    assert compile_requirements(requirements).matches("n1", LABELS)


@pytest.mark.parametrize(
    "requirements",
    [
        NodeRequirements(node_selector=(("disk", "hdd"),)),
        NodeRequirements(node_selector=(("disk", "ssd"), ("missing", ""))),
        NodeRequirements(node_selector=(("disk", "hdd"),), terms=(MATCHING,)),
        requiring(),
        requiring(NodeTerm()),
        requiring(labels_term("disk", "In")),
        requiring(labels_term("disk", "Exists", "ssd")),
        requiring(labels_term("disk", "Like", "ssd")),
        requiring(labels_term("num", "Gt", "7")),
        requiring(labels_term("num", "Gt", "1_0")),
        requiring(labels_term("num", "Gt", "-1")),
        requiring(labels_term("num", "Gt", "1", "2")),
        requiring(labels_term("odd", "Gt", "0")),
        requiring(labels_term("odd", "Lt", "9")),
        requiring(labels_term("missing", "Lt", "9")),
        requiring(fields_term("metadata.name", "In", "n1", "n2")),
        requiring(fields_term("metadata.name", "Exists")),
        requiring(fields_term("metadata.namespace", "In", "n1")),
    ],
)
def test_requirements_that_a_node_does_not_fulfil(requirements):
    assert not compile_requirements(requirements).matches("n1", LABELS)


def test_only_a_pod_without_requirements_matches_all():
    assert compile_requirements(NodeRequirements()).matches_all
    assert not compile_requirements(requiring()).matches_all
    assert not compile_requirements(NodeRequirements((("a", "b"),))).matches_all


NAMED_A = fields_term("metadata.name", "In", "a")


@pytest.mark.parametrize(
    ("requirements", "node"),
    [
        (requiring(NAMED_A), "a"),
        (requiring(NAMED_A, NodeTerm(MATCHING.match_expressions, NAMED_A.match_fields)), "a"),
        (NodeRequirements(), None),
        (requiring(), None),
        (requiring(NAMED_A, fields_term("metadata.name", "In", "b")), None),
        (requiring(NAMED_A, MATCHING), None),
        (requiring(MATCHING), None),
        (requiring(fields_term("metadata.name", "NotIn", "a")), None),
        (requiring(fields_term("metadata.name", "In", "a", "b")), None),
        (requiring(fields_term("spec.name", "In", "a")), None),
    ],
)
def test_a_pod_is_pinned_where_every_term_names_the_same_node(requirements, node):
    assert pinned_node(requirements) == node


def test_terms_that_do_not_parse_are_gone_and_the_others_stay():
    broken = labels_term("a b", "Exists")
    assert compile_requirements(requiring(broken, MATCHING)) == compile_requirements(
        requiring(MATCHING)
    )


@given(pod=strategies.incoming_pods(), node=strategies.nodes("n1"))
def test_matching_agrees_with_the_reference(pod, node):
    found = values.node(node)
    compiled = compile_requirements(values.pod(pod).requirements)
    assert compiled.matches(found.name, found.labels) == affinity.accepts(pod, node)
