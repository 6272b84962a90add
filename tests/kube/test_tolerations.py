"""Which taints a pod tolerates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import values
from tests.reference import strategies, taints
from topospread.kube.objects import Taint, Toleration
from topospread.kube.tolerations import Tolerations

if TYPE_CHECKING:
    from collections.abc import Sequence


def tolerated(
    held: Sequence[Taint], tolerations: Sequence[Toleration], *, gate: bool = False
) -> bool:
    return Tolerations(tolerations, comparison_operators=gate).tolerate(held)


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
    held, tolerations = [Taint("num", value, "NoSchedule")], [Toleration("num", operator, bound)]
    assert tolerated(held, tolerations, gate=True) == expected
    assert not tolerated(held, tolerations)


@given(pod=strategies.incoming_pods(), node=strategies.nodes("n1"), gate=st.booleans())
def test_tolerating_agrees_with_the_reference(pod, node, gate):
    held, tolerations = values.node(node).taints, values.pod(pod).tolerations
    expected = taints.accepts(pod, node, comparison_operators=gate)
    assert tolerated(held, tolerations, gate=gate) == expected


KEYS, EFFECTS = ("ded", "num", ""), ("NoSchedule", "NoExecute", "PreferNoSchedule", "")
VALUES = ("x", "7", "8", "007", "-3", "9223372036854775807", "-9223372036854775808", "")
TOLERATIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(("Equal", "Exists", "Gt", "Lt", "", "Near")),
        "value": st.sampled_from(VALUES),
        "effect": st.sampled_from(EFFECTS),
    }
)
TAINTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "value": st.sampled_from(VALUES),
        "effect": st.sampled_from(EFFECTS),
    }
)


@given(
    every=st.lists(TOLERATIONS, max_size=12), held=st.lists(TAINTS, max_size=8), gate=st.booleans()
)
def test_many_tolerations_are_asked_as_one_by_one(every, held, gate):
    prepared = Tolerations([Toleration(**each) for each in every], comparison_operators=gate)
    expected = [
        Taint(**taint)
        for taint in held
        if taint["effect"] in ("NoSchedule", "NoExecute")
        and not any(taints.tolerates(one, taint, comparison_operators=gate) for one in every)
    ]
    assert list(prepared.untolerated([Taint(**taint) for taint in held])) == expected
    assert prepared.tolerate([Taint(**taint) for taint in held]) == (not expected)
