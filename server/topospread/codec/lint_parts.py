"""Objects of any kind → the parts that lint looks at: pod templates, and lists of constraints.

A value of a wrong type is a finding, and the rest is looked at without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.lint_manifests import (
    MOST_CONSTRAINTS,
    has_controller,
    ignored_codes,
    is_patch,
    workload_from_template,
)
from topospread.codec.lint_readings import TemplateReader, value_at
from topospread.codec.pods import pod_from_proto
from topospread.errors import FieldViolation
from topospread.kube.validation import CONSTRAINTS_FIELD
from topospread.spread.linting.workloads import LintedWorkload
from topospread_client import (
    ConstraintList,
    PodTemplate,
    has_known_template,
    is_own_kind,
    pod_from_template,
    spread_parts,
    unknown_fields,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Manifest = Mapping[str, Any]

_CONSTRAINTS: Final = "topologySpreadConstraints"
_NEEDED: Final = frozenset({"maxSkew", "topologyKey", "whenUnsatisfiable"})
"""Fields of each constraint; what has one of them is meant as one."""

_KEPT: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds with a pod template that a server keeps without it."""

_FIELDS: Final = frozenset(
    field.json_name for field in k8s.TopologySpreadConstraint.DESCRIPTOR.fields
)

_OF_SCHEMAS: Final = frozenset({"type", "items", "properties", "$ref", "description"})
_POLICIES: Final = re.compile(r"(^|\.)(kyverno\.io|gatekeeper\.sh|admissionregistration\.k8s\.io)/")
"""API groups whose objects have patterns of constraints, and expressions on them."""

_VARIABLE: Final = re.compile(r"\{\{|\$\{|\$\(")
_SUBSTITUTED: Final = re.compile(r"\$\{|\$\(")
"""Begins what is put in the place of a text later, by Helm and others; by Flux and others alone."""

_NONE: Final = re.compile(r"(?!)")
"""Matches nothing."""

_DIRECTIVE: Final = ".$"
"""Begins what a strategic merge patch has beside fields: ``$patch: delete``."""

_NO_POD: Final = "-"
"""Stands for the kind of what has none, which is no pod as elsewhere."""

MOST_PARTS: Final = 200
"""Pod templates and lists of constraints of one object that are linted."""

_TOO_WRONG: Final = "they have too many values of a wrong type"

_MOST_CLAIMS: Final = 100
"""Claims beside a pod template, which are read for each of those that they are beside."""


@dataclass(frozen=True, slots=True)
class LintedPart:
    """A part of an object that is linted.

    Attributes:
        readable: the pod template without values of a wrong type; None where it makes no pod.
    """

    workload: LintedWorkload
    readable: PodTemplate | None = None

    def pod(self) -> k8s.Pod | None:
        """The pod that it would make, of a new revision; None where it makes none."""
        return None if self.readable is None else pod_from_template(self.readable)


def lint_parts(manifest: Manifest, *, is_applied: bool = False) -> list[LintedPart]:
    """Parts of an object that are linted, in its order; none of what another object made.

    Args:
        manifest: of any kind, or values of a chart.
        is_applied: a cluster has it so: its own pod templates have no variables.
    """
    if has_controller(manifest):
        return []
    kind = manifest.get("kind")
    if kind == "Pod":
        templates = [PodTemplate((), manifest, manifest, ())]
        lists: list[ConstraintList] = []
    else:
        templates, lists = spread_parts(manifest)
        if is_own_kind(manifest) and not templates and not is_patch(manifest):
            # It must have one, but for what a server of this project dumped.
            templates = [PodTemplate((), None, manifest, ())] if kind not in _KEPT else []
    if _POLICIES.search(str(manifest.get("apiVersion") or "")):
        paths = [*(each.text for each in lists), *(each.text for each in templates)]
        return [unread_part(manifest, path, "they are a policy's") for path in paths[:1]]
    parts: list[LintedPart] = []
    reader = TemplateReader()
    all_paths = [*(each.text for each in templates), *(each.text for each in lists)]
    templates, lists = templates[:MOST_PARTS], lists[: max(0, MOST_PARTS - len(templates))]
    for template in templates:
        variables = _VARIABLE
        if template.holder is manifest and has_known_template(manifest):
            # Of Helm's templates none is left in what is applied.
            variables = _NONE if is_applied else _SUBSTITUTED
        if is_patch(template.holder):
            lists = [*lists, *_constraints_of(template)]
        elif template.holder is manifest or not has_controller(template.holder):
            parts.append(_of_template(reader, template, variables))
    for each in lists:
        parts += _of_list(reader, manifest, each)
    for path in all_paths[MOST_PARTS : MOST_PARTS + 1]:
        parts.append(unread_part(manifest, path, f"more than {MOST_PARTS} are too many"))
    if not parts and not has_known_template(manifest):
        return []
    unknown = [
        FieldViolation(each.field, each.description)
        for each in unknown_fields(manifest if kind else {**manifest, "kind": _NO_POD})
        if _DIRECTIVE not in each.field
    ]
    return _with_unknown_fields(parts, unknown[:MOST_CONSTRAINTS], manifest)


def _of_template(
    reader: TemplateReader, template: PodTemplate, variables: re.Pattern[str]
) -> LintedPart:
    holder = template.holder
    known = holder.get("kind") == "Pod" or has_known_template(holder)
    at = ".".join(filter(None, (template.text, CONSTRAINTS_FIELD)))
    if _claims(template) > _MOST_CLAIMS:
        return unread_part(holder, at, f"more than {_MOST_CLAIMS} volumeClaimTemplates")
    given, variable = _template_without_variables(template, variables)
    reading, message = reader.read(given)
    workload = workload_from_template(reading.template, message)
    wrong = [
        each
        for each in (*map(_explained, reading.wrong), *workload.malformed)
        if not _has_variable(value_at(given, each.field), variables)
    ]
    # What a field means in a template of another kind is not known.
    found = {each.field for each in reading.wrong if not (known or each.field.startswith(at))}
    return LintedPart(
        replace(
            workload,
            constraints_path=at,
            labels_known=known,
            malformed=tuple(each for each in wrong if each.field not in found),
            variable=frozenset(variable),
            unread=_TOO_WRONG if reading.has_more else "",
        ),
        reading.template if workload.is_readable and not variable else None,
    )


def _template_without_variables(
    template: PodTemplate, variables: re.Pattern[str]
) -> tuple[PodTemplate, set[tuple[int, str]]]:
    """A template without fields of constraints in whose place something else is put, and these."""
    content = template.content
    spec = content.get("spec") if isinstance(content, Mapping) else None
    constraints = spec.get(_CONSTRAINTS) if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(constraints, list):
        return template, set()
    given, variable = _without_variables(constraints, variables, is_part=False)
    metadata = content.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    selector = value_at(template, "spec.selector")
    if _has_variable(labels, variables) or _has_variable(selector, variables):
        variable |= {(number, "labelSelector") for number in range(len(constraints))}
    spec = {**spec, _CONSTRAINTS: given}
    return template._replace(content={**content, "spec": spec}), variable


def _claims(template: PodTemplate) -> int:
    """How many claims are made with each pod of a template."""
    owner = template.around[-1] if template.around else None
    claims = owner.get("volumeClaimTemplates") if isinstance(owner, Mapping) else None
    return len(claims) if isinstance(claims, list | tuple) else 0


def _explained(wrong: FieldViolation) -> FieldViolation:
    is_list = wrong.field.endswith(_CONSTRAINTS) and wrong.description.startswith("expected array")
    more = ": write each constraint as an element, with `- `" if is_list else ""
    return replace(wrong, description=wrong.description + more)


def _constraints_of(template: PodTemplate) -> Iterator[ConstraintList]:
    """Constraints of a template of which no more is known."""
    spec = template.content.get("spec") if isinstance(template.content, Mapping) else None
    if isinstance(spec, Mapping) and _CONSTRAINTS in spec:
        path = (*template.path, "spec", _CONSTRAINTS)
        yield ConstraintList(path, spec[_CONSTRAINTS], template.holder)


def _of_list(
    reader: TemplateReader, manifest: Manifest, listed: ConstraintList
) -> Iterator[LintedPart]:
    """Constraints that stand outside of any template."""
    content, path = listed.content, listed.text
    empty = _of_no_template(manifest, path)
    if isinstance(content, Mapping) and not _NEEDED & content.keys():
        if content and not _OF_SCHEMAS & content.keys():
            is_set = "value" in content
            text = "they are a map, as a chart or a controller may read"
            text = "fields of them are set one by one" if is_set else text
            yield LintedPart(replace(empty, unread=text))
        return
    if not content or isinstance(content, bool):
        return
    if isinstance(content, str) and (_VARIABLE.search(content) or "\n" in content):
        yield LintedPart(replace(empty, unread="they are a text"))
        return
    given: Any = list(content) if isinstance(content, list | tuple) else content
    variable: set[tuple[int, str]] = set()
    if isinstance(given, list):
        given, variable = _without_variables(given, _VARIABLE, is_part=is_patch(listed.holder))
    reading, message = reader.read(PodTemplate((), {"spec": {_CONSTRAINTS: given}}, {}, ()))
    made = None if message is None else workload_from_template(reading.template, message)
    wrong = tuple(
        _explained(replace(each, field=path + each.field.removeprefix(CONSTRAINTS_FIELD)))
        for each in (*reading.wrong, *(made.malformed if made else ()))
    )
    if made is None or not made.is_readable:
        unread = _TOO_WRONG if reading.has_more else ""
        yield LintedPart(replace(empty, malformed=wrong, is_readable=False, unread=unread))
        return
    yield LintedPart(
        replace(
            empty,
            pod=made.pod,
            malformed=wrong,
            given=tuple(
                frozenset(map(str, each)) if isinstance(each, Mapping) else frozenset()
                for each in (given if isinstance(given, list) else ())
            ),
            variable=frozenset(variable),
        )
    )


def _without_variables(
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
        is_variable = isinstance(constraint, str) and _has_variable(constraint, variables)
        yield from ("",) if is_variable else ()
        return
    for name, value in constraint.items():
        if str(name).startswith("$"):
            yield ""
        elif _has_variable(value, variables):
            yield str(name)
    if is_part:
        yield from _FIELDS - constraint.keys()


def _has_variable(value: object, variables: re.Pattern[str]) -> bool:
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


def unread_part(manifest: Manifest, path: str, why: str) -> LintedPart:
    """What stands for constraints of an object that are not looked at."""
    return LintedPart(replace(_of_no_template(manifest, path), unread=why))


def _of_no_template(manifest: Manifest, path: str) -> LintedWorkload:
    """What is linted where no more is known of the pods than that constraints are theirs."""
    return LintedWorkload(
        kind=str(manifest.get("kind") or ""),
        pod=pod_from_proto(k8s.Pod()),
        replicas=None,
        path=path.removesuffix(_CONSTRAINTS).removesuffix("."),
        constraints_path=path,
        has_template=False,
        labels_known=False,
        ignored=ignored_codes(manifest),
    )


def _with_unknown_fields(
    parts: list[LintedPart], unknown: Sequence[FieldViolation], manifest: Manifest
) -> list[LintedPart]:
    """The parts with the unknown fields of their constraints; the first with all others."""
    if not unknown:
        return parts
    if not parts:
        parts = [LintedPart(_of_no_template(manifest, ""))]
    by_part: list[list[FieldViolation]] = [[] for _ in parts]
    for each in unknown:
        paths = enumerate(part.workload.constraints_path for part in parts)
        at = next((number for number, path in paths if each.field.startswith(f"{path}[")), 0)
        by_part[at].append(each)
    return [
        replace(part, workload=replace(part.workload, unknown_fields=tuple(own)))
        for part, own in zip(parts, by_part, strict=True)
    ]
