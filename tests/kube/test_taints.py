"""Taints and tolerations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import values
from tests.reference import strategies
from tests.reference import taints as reference
from topospread.kube.objects import Taint, Toleration
from topospread.kube.taints import tolerated

TAINT = Taint("ded", "x", "NoSchedule")


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("ded", "Equal", "x", "NoSchedule"),
        Toleration("ded", "", "x"),
        Toleration("ded", "Exists"),
        Toleration("", "Exists"),
        Toleration("", "", "x"),
        Toleration("ded", "Exists", "ignored", "NoSchedule"),
    ],
)
def test_tolerations_that_match(toleration):
    assert tolerated([TAINT], [toleration])


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(),
        Toleration("ded", "Equal", "y"),
        Toleration("other", "Exists"),
        Toleration("ded", "Exists", "", "NoExecute"),
        Toleration("ded", "exists"),
        Toleration("ded", "Gt", "x"),
    ],
)
def test_tolerations_that_do_not(toleration):
    assert not tolerated([TAINT], [toleration])


def test_only_effects_that_keep_pods_away_count():
    assert tolerated([Taint("ded", "x", "PreferNoSchedule"), Taint("ded", "x", "")], [])
    assert not tolerated([Taint("ded", "x", "NoExecute")], [])


def test_every_taint_needs_a_toleration():
    other = Taint("gpu", "", "NoExecute")
    assert not tolerated([TAINT, other], [Toleration("ded", "Exists")])
    assert tolerated([TAINT, other], [Toleration("ded", "Exists"), Toleration("gpu", "Exists")])


@pytest.mark.parametrize(
    ("operator", "bound", "value", "expected"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Gt", "-5", "-4", True),
        ("Gt", "05", "6", False),
        ("Gt", "5", "+6", False),
        ("Gt", "", "6", False),
        ("Gt", "9223372036854775807", "9223372036854775808", False),
    ],
)
def test_comparisons_need_the_gate_and_canonical_numbers(operator, bound, value, expected):
    taints, tolerations = [Taint("num", value, "NoSchedule")], [Toleration("num", operator, bound)]
    assert tolerated(taints, tolerations, comparison_operators=True) == expected
    assert not tolerated(taints, tolerations)


@given(pod=strategies.incoming_pods(), node=strategies.nodes("n1"), gate=st.booleans())
def test_tolerating_agrees_with_the_reference(pod, node, gate):
    taints, tolerations = values.node(node).taints, values.pod(pod).tolerations
    expected = reference.accepts(pod, node, comparison_operators=gate)
    assert tolerated(taints, tolerations, comparison_operators=gate) == expected
