"""The API server's validation of constraints and kube-scheduler's of its arguments, as recorded."""

import json
from dataclasses import dataclass, replace

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
from topospread.errors import FieldViolation
from topospread.kube.objects import LabelSelector, SpreadConstraint
from topospread.kube.validation import (
    drop_disabled_fields,
    merge_match_label_keys,
    validate_args,
    validate_constraints,
    validate_pod,
)
from topospread.kube.violations import aggregated, violation_text, violations_text
from topospread.spread.settings import FeatureGates
from topospread_client import args_from_manifest


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
    sent: SpreadConstraint
    old: SpreadConstraint | None
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
    Dropping("all on", FeatureGates(), FULL, None, FULL),
    Dropping("created", NO_DOMAINS, FULL, None, replace(FULL, min_domains=None)),
    Dropping("newly set", NO_DOMAINS, FULL, GOOD, replace(FULL, min_domains=None)),
    Dropping("set before", NO_DOMAINS, FULL, replace(GOOD, min_domains=7), FULL),
    Dropping(
        "policies",
        NO_POLICIES,
        FULL,
        None,
        replace(FULL, node_affinity_policy=None, node_taints_policy=None),
    ),
    Dropping(
        "one policy set before",
        NO_POLICIES,
        FULL,
        replace(GOOD, node_taints_policy="Ignore"),
        replace(FULL, node_affinity_policy=None),
    ),
    Dropping("keys", NO_KEYS, FULL, None, replace(FULL, match_label_keys=())),
    Dropping("keys set before", NO_KEYS, FULL, FULL, FULL),
]


@pytest.mark.parametrize("case", DROPPINGS, ids=lambda case: case.name)
def test_fields_whose_gate_is_off_are_dropped_unless_the_pod_has_them(case: Dropping):
    old = None if case.old is None else [case.old]
    assert drop_disabled_fields([case.sent], old, case.gates) == (case.stored,)
