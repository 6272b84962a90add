"""The API server's validation of label selectors and label keys in objects that people write.

Not to be confused with what a scheduler cannot parse (:mod:`topospread.kube.selectors`): the texts
and fields differ. Source: apimachinery's ``ValidateLabelSelector``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.kube.label_syntax import label_key_errors, label_value_errors
from topospread.kube.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN
from topospread.kube.violations import forbidden, invalid, required

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.errors import FieldViolation
    from topospread.kube.objects import LabelExpression, LabelSelector


def selector_violations(field: str, selector: LabelSelector) -> Iterator[FieldViolation]:
    """What is wrong with a selector: its labels by key, then its expressions."""
    labels = f"{field}.matchLabels"
    for key, value in selector.match_labels:
        yield from label_key_violations(labels, key)
        yield from _value_violations(labels, value)
    for index, expression in enumerate(selector.match_expressions):
        yield from _expression_violations(f"{field}.matchExpressions[{index}]", expression)


def label_key_violations(field: str, key: str) -> Iterator[FieldViolation]:
    """What is wrong with a label key."""
    for detail in label_key_errors(key):
        yield invalid(field, key, detail)


def _value_violations(field: str, value: str) -> Iterator[FieldViolation]:
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
        yield from _value_violations(f"{field}.values[{index}]", value)
