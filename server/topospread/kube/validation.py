"""Validation of topology spread constraints: the API server's, and kube-scheduler's of its args.

Types, fields, texts and order are upstream's as of 1.36, slips included (see the field of a key
that is in both matchLabelKeys and labelSelector). Order within matchLabels, which upstream leaves
to chance, is that of the keys. Sources: core/validation, the pod strategy's PrepareForCreate, and
the scheduler's ``ValidatePodTopologySpreadArgs``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.kube.label_syntax import label_key_errors, label_value_errors
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    IGNORE,
    SCHEDULE_ANYWAY,
    LabelExpression,
    Pod,
    SpreadConstraint,
)
from topospread.kube.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN
from topospread.kube.violations import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.errors import FieldViolation
    from topospread.kube.objects import LabelSelector


CONSTRAINTS_FIELD: Final = "spec.topologySpreadConstraints"
DEFAULTS_FIELD: Final = "defaultConstraints"
DEFAULTING_TYPES: Final = ("System", "List")

NO_SELECTOR_FOR_KEYS: Final = "must not be specified when labelSelector is not set"
"""What is wrong with matchLabelKeys that select among no pods."""

_ACTIONS: Final = (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
_POLICIES: Final = (HONOR, IGNORE)


def validate_pod(pod: Pod) -> list[FieldViolation]:
    """Errors that the API server would report for a new pod's constraints, all at once.

    matchLabelKeys are merged into the selectors first, as it does, so that fields may name
    expressions that the pod did not have.
    """
    merged = [merge_match_label_keys(c, pod.labels) for c in pod.constraints]
    return validate_constraints(merged)


def validate_constraints(constraints: Sequence[SpreadConstraint]) -> list[FieldViolation]:
    """Errors of constraints that need no merging: those of a pod template, or merged ones."""
    last = {_pair(c): index for index, c in enumerate(constraints)}
    found: list[FieldViolation] = []
    for index, constraint in enumerate(constraints):
        at = f"{CONSTRAINTS_FIELD}[{index}]"
        found += _own_violations(at, constraint)
        if last[_pair(constraint)] != index:
            found.append(_repeated(f"{at}.{{topologyKey, whenUnsatisfiable}}", constraint))
        found += _option_violations(at, constraint)
        found += _match_label_keys_violations(at, constraint)
        if constraint.label_selector is not None:
            found += selector_violations(f"{at}.labelSelector", constraint.label_selector)
    return found


def validate_args(
    defaulting_type: str, constraints: Sequence[SpreadConstraint]
) -> list[FieldViolation]:
    """Errors that kube-scheduler would report for PodTopologySpreadArgs, all at once.

    Args:
        defaulting_type: empty becomes System before anything is looked at.
        constraints: defaultConstraints; minDomains, policies and matchLabelKeys are not looked at.
    """
    defaulting_type = defaulting_type or "System"
    found: list[FieldViolation] = []
    if defaulting_type not in DEFAULTING_TYPES:
        found.append(not_supported("defaultingType", defaulting_type, DEFAULTING_TYPES))
    elif defaulting_type == "System" and constraints:
        detail = "when .defaultConstraints are not empty"
        found.append(invalid("defaultingType", defaulting_type, detail))
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"{DEFAULTS_FIELD}[{index}]"
        found += _default_violations(at, constraint)
        if _pair(constraint) in seen:
            found.append(_repeated(at, constraint))
        seen.add(_pair(constraint))
    return found


def merge_match_label_keys(
    constraint: SpreadConstraint, labels: Mapping[str, str]
) -> SpreadConstraint:
    """A constraint of a new pod as the API server stores it: its matchLabelKeys in its selector.

    Keys that the pod has no label for are skipped; without a selector nothing is merged.
    """
    selector = constraint.label_selector
    if selector is None:
        return constraint
    added = tuple(
        LabelExpression(key, IN, (labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    merged = replace(selector, match_expressions=(*selector.match_expressions, *added))
    return replace(constraint, label_selector=merged)


def _pair(constraint: SpreadConstraint) -> tuple[str, str]:
    return constraint.topology_key, constraint.when_unsatisfiable


def _repeated(field: str, constraint: SpreadConstraint) -> FieldViolation:
    return duplicate(field, f"{{{constraint.topology_key}, {constraint.when_unsatisfiable}}}")


def _own_violations(at: str, constraint: SpreadConstraint) -> Iterator[FieldViolation]:
    if constraint.max_skew <= 0:
        yield invalid(f"{at}.maxSkew", constraint.max_skew, "must be greater than zero")
    if not constraint.topology_key:
        yield required(f"{at}.topologyKey", "can not be empty")
    if constraint.when_unsatisfiable not in _ACTIONS:
        yield not_supported(f"{at}.whenUnsatisfiable", constraint.when_unsatisfiable, _ACTIONS)


def _option_violations(at: str, constraint: SpreadConstraint) -> Iterator[FieldViolation]:
    domains, action = constraint.min_domains, constraint.when_unsatisfiable
    if domains is not None and domains <= 0:
        yield invalid(f"{at}.minDomains", domains, "must be greater than zero")
    if domains is not None and action != DO_NOT_SCHEDULE:
        detail = f"can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {action}"
        yield invalid(f"{at}.minDomains", domains, detail)
    for name, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy is not None and policy not in _POLICIES:
            yield not_supported(f"{at}.{name}", policy, _POLICIES)


def _match_label_keys_violations(at: str, constraint: SpreadConstraint) -> Iterator[FieldViolation]:
    selector, keys = constraint.label_selector, constraint.match_label_keys
    if not keys:
        return
    if selector is None:
        yield forbidden(f"{at}.matchLabelKeys", NO_SELECTOR_FOR_KEYS)
        return
    for index, key in enumerate(keys):
        yield from label_key_violations(f"{at}.matchLabelKeys[{index}]", key)
    positions = {key: index for index, key in enumerate(keys)}
    seen = {key for key, _ in selector.match_labels}
    for expression in selector.match_expressions:
        key = expression.key
        if key in positions and key in seen:
            # Upstream's path lacks the field's name here.
            detail = "exists in both matchLabelKeys and labelSelector"
            yield invalid(f"{at}[{positions[key]}]", key, detail)
        seen.add(key)


def _default_violations(at: str, constraint: SpreadConstraint) -> Iterator[FieldViolation]:
    if constraint.max_skew <= 0:
        yield invalid(f"{at}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield required(f"{at}.topologyKey", "can not be empty")
    else:
        yield from label_key_violations(f"{at}.topologyKey", constraint.topology_key)
    if not constraint.when_unsatisfiable:
        yield required(f"{at}.whenUnsatisfiable", "can not be empty")
    elif constraint.when_unsatisfiable not in _ACTIONS:
        yield not_supported(f"{at}.whenUnsatisfiable", constraint.when_unsatisfiable, _ACTIONS)
    if constraint.label_selector is not None:
        detail = "constraint must not define a selector, as they deduced for each pod"
        yield forbidden(f"{at}.labelSelector", detail)


def selector_violations(field: str, selector: LabelSelector) -> Iterator[FieldViolation]:
    """Errors of a selector: its labels by key, then its expressions."""
    labels = f"{field}.matchLabels"
    for key, value in selector.match_labels:
        yield from label_key_violations(labels, key)
        yield from label_value_violations(labels, value)
    for index, expression in enumerate(selector.match_expressions):
        yield from _expression_violations(f"{field}.matchExpressions[{index}]", expression)


def label_key_violations(field: str, key: str) -> Iterator[FieldViolation]:
    """Errors of a label key."""
    for detail in label_key_errors(key):
        yield invalid(field, key, detail)


def label_value_violations(field: str, value: str) -> Iterator[FieldViolation]:
    """Errors of a label's value."""
    for detail in label_value_errors(value):
        yield invalid(field, value, detail)


def _expression_violations(field: str, expression: LabelExpression) -> Iterator[FieldViolation]:
    if expression.operator in (IN, NOT_IN):
        if not expression.values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{field}.values", detail)
    elif expression.operator in (EXISTS, DOES_NOT_EXIST):
        if expression.values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{field}.values", detail)
    else:
        yield invalid(f"{field}.operator", expression.operator, "not a valid selector operator")
    yield from label_key_violations(f"{field}.key", expression.key)
    for index, value in enumerate(expression.values):
        yield from label_value_violations(f"{field}.values[{index}]", value)
