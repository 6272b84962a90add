"""The API server's validation of constraints and kube-scheduler's of its arguments, as recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.conformance.cases import (
    ArgsValidation,
    Json,
    PodValidation,
    args_validations,
    pod_validations,
)
from tests.kube import values
from topospread.codec.pods import constraint_from_proto
from topospread.kube.objects import LabelSelector, SpreadConstraint
from topospread.kube.validation import (
    merge_match_label_keys,
    validate_args,
    validate_constraints,
    validate_pod,
)
from topospread.kube.violations import (
    aggregated,
    duplicate,
    invalid,
    not_supported,
    quoted,
    required,
    violation_text,
    violations_text,
)
from topospread.spread.constraints import drop_disabled_fields
from topospread.spread.settings import FeatureGates
from topospread_client import args_from_manifest

if TYPE_CHECKING:
    from topospread.errors import FieldViolation


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本", '"plain é 日本"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1f\x7f", '"\\x00\\x1f\\x7f"'),
        ("\u00a0\u200b\ue000", '"\\u00a0\\u200b\\ue000"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_quoting(text, shown):
    assert quoted(text) == shown


@pytest.mark.parametrize(
    ("violation", "text"),
    [
        (required("a.b", "can not be empty"), "a.b: Required value: can not be empty"),
        (invalid("a", -1, "too small"), "a: Invalid value: -1: too small"),
        (invalid("a", "x", "bad"), 'a: Invalid value: "x": bad'),
        (invalid("a", ["é", "<&>"], "bad"), r'a: Invalid value: ["é","\u003c\u0026\u003e"]: bad'),
        (invalid("a", None, "bad"), "a: Invalid value: null: bad"),
        (duplicate("a[0]", "{b, c}"), 'a[0]: Duplicate value: "{b, c}"'),
        (
            not_supported("a", "z", ("x", "y")),
            'a: Unsupported value: "z": supported values: "x", "y"',
        ),
    ],
)
def test_text_of_an_error(violation: FieldViolation, text):
    assert violation_text(violation) == text


def test_several_errors_stand_in_brackets_and_equal_ones_once():
    one, other = invalid("a", 1, "x"), invalid("b", 2, "y")
    assert violations_text([one, one]) == violation_text(one)
    both = f"[{violation_text(one)}, {violation_text(other)}]"
    assert violations_text([one, other, one]) == both


def recorded_form(violations: list[FieldViolation]) -> list[Json]:
    """The errors in the form and the order of the recorded answers."""
    errors = [
        {"type": v.type, "field": v.field, "detail": v.description, "badValue": v.bad_value}
        for v in violations
    ]
    order = ("field", "type", "detail")
    return sorted(
        errors,
        key=lambda e: (
            *(e[member].encode() for member in order),
            json.dumps(e["badValue"], ensure_ascii=False).encode(),
        ),
    )


@pytest.mark.parametrize("case", list(pod_validations()), ids=lambda case: case.name)
def test_recorded_pods(case: PodValidation):
    violations = validate_pod(values.pod(case.pod))
    assert recorded_form(violations) == case.expect
    if case.message is not None:
        texts = aggregated([*case.other_errors, *map(violation_text, violations)])
        name = case.pod["metadata"]["name"]
        assert f'Pod "{name}" is invalid: {texts}' == case.message


@pytest.mark.parametrize("case", list(args_validations()), ids=lambda case: case.name)
def test_recorded_args(case: ArgsValidation):
    args = args_from_manifest(case.args)
    constraints = [constraint_from_proto(c) for c in args.default_constraints]
    violations = validate_args(args.defaulting_type, constraints)
    assert recorded_form(violations) == case.expect
    if case.message is not None:
        assert violations_text(violations) == case.message


GOOD = SpreadConstraint(1, "zone", "DoNotSchedule", LabelSelector((("app", "a"),)))


def test_a_templates_keys_are_not_merged():
    constraint = replace(GOOD, match_label_keys=("app",))
    assert validate_constraints([constraint]) == []
    merged = merge_match_label_keys(constraint, {"app": "a"})
    assert [v.field for v in validate_constraints([merged])] == [
        "spec.topologySpreadConstraints[0][0]"
    ]


def test_pairs_that_only_look_equal_when_printed_are_no_duplicates():
    first = replace(GOOD, topology_key="a, b", when_unsatisfiable="c")
    second = replace(GOOD, topology_key="a", when_unsatisfiable="b, c")
    assert "Duplicate value" not in {v.type for v in validate_constraints([first, second])}


def test_ten_thousand_constraints_are_judged_each():
    violations = validate_constraints([GOOD] * 10_000)
    assert len(violations) == 9_999
    assert {v.type for v in violations} == {"Duplicate value"}


@dataclass(frozen=True)
class Dropping:
    name: str
    gates: FeatureGates
    stored: SpreadConstraint


FULL = replace(
    GOOD,
    min_domains=2,
    node_affinity_policy="Ignore",
    node_taints_policy="Honor",
    match_label_keys=("app",),
)
NO_DOMAINS = FeatureGates(min_domains=False)
NO_POLICIES = FeatureGates(node_inclusion_policy=False)
NO_KEYS = FeatureGates(match_label_keys=False)
DROPPINGS = [
    Dropping("all on", FeatureGates(), FULL),
    Dropping("domains", NO_DOMAINS, replace(FULL, min_domains=None)),
    Dropping(
        "policies", NO_POLICIES, replace(FULL, node_affinity_policy=None, node_taints_policy=None)
    ),
    Dropping("keys", NO_KEYS, replace(FULL, match_label_keys=())),
]


@pytest.mark.parametrize("case", DROPPINGS, ids=lambda case: case.name)
def test_fields_of_a_new_pod_whose_gate_is_off_are_dropped(case: Dropping):
    assert drop_disabled_fields([FULL], case.gates) == (case.stored,)
