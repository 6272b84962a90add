"""Variables in constraints: what something else is put in the place of, before they are applied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.lint_readings import value_at
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client import PodTemplate

_CONSTRAINTS: Final = "topologySpreadConstraints"

FIELDS: Final = frozenset(
    field.json_name for field in k8s.TopologySpreadConstraint.DESCRIPTOR.fields
)
"""Fields of a constraint."""

VARIABLE: Final = re.compile(r"\{\{|\$\{|\$\(")
SUBSTITUTED: Final = re.compile(r"\$\{|\$\(")
"""Begins what is put in the place of a text later, by Helm and others; by Flux and others alone."""

NO_VARIABLE: Final = re.compile(r"(?!)")
"""Matches nothing."""


def template_without_variables(
    template: PodTemplate, variables: re.Pattern[str]
) -> tuple[PodTemplate, set[tuple[int, str]]]:
    """A template without fields of constraints in whose place something else is put, and these."""
    content = template.content
    spec = content.get("spec") if isinstance(content, Mapping) else None
    constraints = spec.get(_CONSTRAINTS) if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(constraints, list):
        return template, set()
    given, variable = without_variables(constraints, variables, is_part=False)
    metadata = content.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    selector = value_at(template, "spec.selector")
    if has_variable(labels, variables) or has_variable(selector, variables):
        variable |= {(number, "labelSelector") for number in range(len(constraints))}
    spec = {**spec, _CONSTRAINTS: given}
    return template._replace(content={**content, "spec": spec}), variable


def without_variables(
    constraints: Sequence[Any], variables: re.Pattern[str], *, is_part: bool
) -> tuple[list[Any], set[tuple[int, str]]]:
    """Constraints without fields in whose place something else is put, and these."""
    variable = {
        (number, name)
        for number, each in enumerate(constraints)
        for name in _variable_fields(each, variables, is_part=is_part)
    }
    given = [
        {name: None if (number, name) in variable else value for name, value in each.items()}
        if isinstance(each, Mapping)
        else ({} if (number, "") in variable else each)
        for number, each in enumerate(constraints)
    ]
    return given, variable


def _variable_fields(
    constraint: object, variables: re.Pattern[str], *, is_part: bool
) -> Iterator[str]:
    """Fields in whose place something else is put; the empty name stands for all of them.

    `is_part` means that what the constraint lacks is that of another with its key.
    """
    if not isinstance(constraint, Mapping):
        is_variable = isinstance(constraint, str) and has_variable(constraint, variables)
        yield from ("",) if is_variable else ()
        return
    for name, value in constraint.items():
        if str(name).startswith("$"):
            yield ""
        elif has_variable(value, variables):
            yield str(name)
    if is_part:
        yield from FIELDS - constraint.keys()


def has_variable(value: object, variables: re.Pattern[str]) -> bool:
    """Whether a text in a value, or a key, has something put in the place of its parts later."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str) and variables.search(part):
            return True
        if isinstance(part, Mapping):
            waiting += (*part.keys(), *part.values())
        elif isinstance(part, list | tuple):
            waiting += part
    return False
