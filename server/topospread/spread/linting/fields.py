"""Rules on the fields of a constraint one by one, which hold also where another field is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.kube.label_syntax import label_key_errors
from topospread.kube.validation import NO_SELECTOR_FOR_KEYS
from topospread.spread.linting.catalog import LintFinding, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.errors import FieldViolation
    from topospread.spread.linting.workloads import LintedConstraint, LintedWorkload

IMPOSSIBLE_KEY: Final = rule(
    "IMPOSSIBLE_KEY",
    Severity.ERROR,
    "no label can have the topology key, so no node has it",
    "Write one label key: a constraint spreads over one.",
)
INVALID_FIELD: Final = rule(
    "INVALID_FIELD",
    Severity.ERROR,
    "the API server refuses the value of a field",
    "Write a value of the field's type.",
)
NOT_LINTED: Final = rule(
    "NOT_LINTED",
    Severity.INFO,
    "constraints that were not looked at",
    "Lint what is made of it, as the output of `helm template`.",
)

_SEPARATORS: Final = re.compile(r"[,;|]")
_CONSTRAINTS: Final = "topologySpreadConstraints"


def impossible_key(linted: LintedConstraint) -> Iterator[LintFinding]:
    """A key that the API server takes in a pod, and in no node."""
    key = linted.spec.topology_key
    errors = label_key_errors(key) if key else []
    if errors:
        effect = "its pods wait forever" if linted.is_hard else "the constraint does nothing"
        why = errors[0].partition(" (e.g.")[0]
        text = f'"{key}" cannot be the key of a label, so no node has it, and {effect}: {why}'
        yield IMPOSSIBLE_KEY.found(linted.index, text + _meant(key))


def _meant(key: str) -> str:
    parts = [each.strip() for each in _SEPARATORS.split(key) if each.strip()]
    if len(parts) == 1:
        parts = [each for each in key.split() if "/" in each]
    if len(parts) > 1 and not any(map(label_key_errors, parts)):
        return "; a constraint has one key: write one for each"
    name = key.strip().strip("/").partition("=")[0].strip()
    for meant in (name, name.lower()):
        if meant and not label_key_errors(meant):
            return f'; did you mean "{meant}"?'
    return ""


def unread_findings(workload: LintedWorkload) -> Iterator[LintFinding]:
    """What says that constraints were not looked at."""
    if workload.unread:
        text = f"has {_CONSTRAINTS} that were not looked at: {workload.unread}"
        yield NOT_LINTED.found(-1, text, field=workload.constraints_path)


def index_in(workload: LintedWorkload, field: str) -> tuple[int, str]:
    """Index of the constraint that a field of the object is in, and its name there.

    −1, and all of the path, for fields outside of constraints.
    """
    rest = field.removeprefix(f"{workload.constraints_path}[")
    index, bracket, name = rest.partition("]")
    if rest == field or not bracket or not index.isdecimal():
        return -1, field
    return int(index), name.removeprefix(".")


def first_part(name: str) -> str:
    """The field of a constraint that a path in it begins with; empty for the constraint itself."""
    return name.partition(".")[0].partition("[")[0]


def lacking_field(workload: LintedWorkload, violation: FieldViolation) -> str:
    """The field that lacks, where something else may add it; empty where that is not what is wrong.

    Args:
        workload: that has the constraint.
        violation: by its path in the object.
    """
    index, name = index_in(workload, violation.field)
    if workload.has_template or not 0 <= index < len(workload.given):
        return ""
    field = first_part(name)
    if violation.description == NO_SELECTOR_FOR_KEYS:
        field = "labelSelector"
    return "" if field in workload.given[index] else field


_HINTED: Final = re.compile(r'(?:did you mean "|it belongs under )([^"]+)')


def meant_field(workload: LintedWorkload, unknown: FieldViolation, name: str) -> str:
    """The field of a constraint that an unknown one in it stands for; empty where none is known.

    Args:
        workload: that has the constraint.
        unknown: with the hint at what is meant.
        name: of the unknown field in the constraint.
    """
    found = _HINTED.match(unknown.description)
    if found is None:
        return ""
    _, meant = index_in(workload, found[1])
    if not meant:  # it belongs in the constraint itself
        return name.rpartition(".")[2]
    return first_part(name) if "." in name else first_part(meant)
