"""Objects of any kind → the parts that lint looks at: pod templates, and lists of constraints.

A value of a wrong type is a finding, and the rest is looked at without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.lint_manifests import (
    MOST_CONSTRAINTS,
    has_controller,
    ignored_codes,
    is_patch,
    workload_from_template,
)
from topospread.codec.lint_readings import TemplateReader, value_at
from topospread.codec.lint_refused import refused, refused_kind
from topospread.codec.lint_variables import (
    FIELDS,
    NO_VARIABLE,
    SUBSTITUTED,
    VARIABLE,
    has_variable,
    template_without_variables,
    without_variables,
)
from topospread.codec.pods import pod_from_proto
from topospread.errors import FieldViolation
from topospread.kube.validation import CONSTRAINTS_FIELD
from topospread.spread.linting.workloads import LintedWorkload
from topospread_client import (
    ConstraintList,
    PodTemplate,
    has_known_template,
    is_own_kind,
    misspelt_constraints,
    pod_from_template,
    spread_parts,
    unknown_fields,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

Manifest = Mapping[str, Any]

_CONSTRAINTS: Final = "topologySpreadConstraints"
_NEEDED: Final = frozenset({"maxSkew", "topologyKey", "whenUnsatisfiable"})
"""Fields of each constraint; what has one of them is meant as one."""

_KEPT: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds with a pod template that a server keeps without it."""

_SWITCHES: Final = frozenset({"enabled", "create"})
"""What charts have beside the fields of a constraint in a map of their own."""

_OF_SCHEMAS: Final = frozenset({"type", "items", "properties", "$ref", "description"})
_POLICIES: Final = re.compile(r"(^|\.)(kyverno\.io|gatekeeper\.sh|admissionregistration\.k8s\.io)/")
"""API groups whose objects have patterns of constraints, and expressions on them."""

_NO_FIELD: Final = re.compile(r"(^|\.)(\$|[+=<^X]?\()")
"""Begins what patches and tests have beside fields: ``$patch: delete``, ``(length(items)): 1``."""

_NO_POD: Final = "-"
"""Stands for the kind of what has none, which is no pod as elsewhere."""

MOST_PARTS: Final = 200
"""Pod templates and lists of constraints of one object that are linted."""

_MISSPELT: Final = f"Kubernetes calls them {_CONSTRAINTS}"

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
        variables = VARIABLE
        if template.holder is manifest and has_known_template(manifest):
            # Of Helm's templates none is left in what is applied.
            variables = NO_VARIABLE if is_applied else SUBSTITUTED
        if is_patch(template.holder):
            lists = [*lists, *_constraints_of(template)]
        elif template.holder is manifest or not has_controller(template.holder):
            parts.append(_of_template(reader, template, variables))
    for each in lists:
        parts += _of_list(reader, manifest, each)
    for path in all_paths[MOST_PARTS : MOST_PARTS + 1]:
        parts.append(unread_part(manifest, path, f"more than {MOST_PARTS} are too many"))
    known = has_known_template(manifest)
    misspelt = [] if known else misspelt_constraints(manifest)
    if not (parts or misspelt or known):
        return []
    unknown = [
        FieldViolation(each.field, each.description)
        for each in unknown_fields(manifest if kind else {**manifest, "kind": _NO_POD})
        if not _NO_FIELD.search(each.field)
    ]
    reported = {*all_paths, *(each.field for each in unknown)}
    parts += [unread_part(manifest, path, _MISSPELT) for path in misspelt if path not in reported]
    if parts and (wrong := refused_kind(manifest)):
        workload = parts[0].workload
        workload = replace(workload, malformed=(wrong, *workload.malformed))
        parts[0] = replace(parts[0], workload=workload)
    return _with_unknown_fields(parts, unknown[:MOST_CONSTRAINTS], manifest)


def _of_template(
    reader: TemplateReader, template: PodTemplate, variables: re.Pattern[str]
) -> LintedPart:
    holder = template.holder
    known = holder.get("kind") == "Pod" or has_known_template(holder)
    at = ".".join(filter(None, (template.text, CONSTRAINTS_FIELD)))
    if _claims(template) > _MOST_CLAIMS:
        return unread_part(holder, at, f"more than {_MOST_CLAIMS} volumeClaimTemplates")
    given, variable = template_without_variables(template, variables)
    reading, message = reader.read(given)
    workload = workload_from_template(reading.template, message)
    typed = {each.field for each in reading.wrong}
    found_wrong = [_explained(each, at) for each in reading.wrong]
    found_wrong += (each for each in workload.malformed if each.field not in typed)
    is_own = holder.get("kind") == "Pod" or is_own_kind(holder)
    if message is not None and workload.is_readable and is_own:
        labels_known = _has_all_labels(given, typed, variables)
        more = refused(reading.template, workload, message, labels_known=labels_known)
        found_wrong += islice(
            (each for each in more if not _follows(each, typed)), MOST_CONSTRAINTS
        )
    wrong = [
        each for each in found_wrong if not has_variable(value_at(given, each.field), variables)
    ]
    # What a field means in a template of another kind is not known.
    left = {each.field for each in reading.wrong if not (known or each.field.startswith(at))}
    return LintedPart(
        replace(
            workload,
            constraints_path=at,
            labels_known=known,
            malformed=tuple(each for each in wrong if each.field not in left),
            variable=frozenset(variable),
            is_partial=not known
            and (_lacks_containers(template) or _is_of_values(holder, template.path)),
            unread=_TOO_WRONG if reading.has_more else "",
        ),
        reading.template if workload.is_readable and not variable else None,
    )


def _lacks_containers(template: PodTemplate) -> bool:
    spec = template.content.get("spec") if isinstance(template.content, Mapping) else None
    return not isinstance(spec, Mapping) or "containers" not in spec


def _follows(refused: FieldViolation, wrong: Collection[str]) -> bool:
    """Whether what is refused is there because a value of a wrong type was left out."""
    parent = refused.field.rpartition(".")[0]
    at = parent if parent.endswith("]") else refused.field
    return any(each.startswith(at) or refused.field.startswith(each) for each in wrong)


def _has_all_labels(
    template: PodTemplate, wrong: Collection[str], variables: re.Pattern[str]
) -> bool:
    """Whether the labels of a template are those that its pods will have."""
    content = template.content if isinstance(template.content, Mapping) else {}
    metadata = content.get("metadata")
    if any(f"{template.text}.metadata" in each for each in wrong) or "labels" in content:
        return False  # some are left out, or misplaced
    if not isinstance(metadata, Mapping) or not metadata.get("labels"):
        return False  # as in a patch
    return not has_variable(metadata, variables)


def _claims(template: PodTemplate) -> int:
    """How many claims are made with each pod of a template."""
    owner = template.around[-1] if template.around else None
    claims = owner.get("volumeClaimTemplates") if isinstance(owner, Mapping) else None
    return len(claims) if isinstance(claims, list | tuple) else 0


def _explained(wrong: FieldViolation, at: str) -> FieldViolation:
    """What is wrong, with how it is to be written, or where: `at` is the path of constraints."""
    more, key = "", wrong.field.rpartition("[")[2].removesuffix("]")
    if wrong.field == at and wrong.description.startswith("expected array"):
        more = ": write each constraint as an element, with `- `"
    elif key == _CONSTRAINTS:
        more = f": they belong under {at.removesuffix(_CONSTRAINTS).removesuffix('.')}"
    elif key in FIELDS and wrong.field.startswith(f"{at}["):
        more = ": it belongs in the constraint, beside labelSelector"
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
    of_values = _is_of_values(manifest, listed.path)
    if isinstance(content, Mapping) and (
        not _NEEDED & content.keys()
        or _SWITCHES & content.keys()
        or (of_values and not content.keys() <= FIELDS)
    ):
        if content and not _OF_SCHEMAS & content.keys():
            is_set = "value" in content
            text = "they are a map, as a chart or a controller may read"
            text = "fields of them are set one by one" if is_set else text
            yield LintedPart(replace(empty, unread=text))
        return
    if not content or isinstance(content, bool):
        return
    if isinstance(content, str) and (VARIABLE.search(content) or "\n" in content):
        yield LintedPart(replace(empty, unread="they are a text"))
        return
    is_single = isinstance(content, Mapping) and of_values
    given: Any = list(content) if isinstance(content, list | tuple) else content
    given = [content] if is_single else given
    variable: set[tuple[int, str]] = set()
    if isinstance(given, list):
        given, variable = without_variables(
            given, VARIABLE, is_part=listed.is_part or is_patch(listed.holder)
        )
    reading, message = reader.read(PodTemplate((), {"spec": {_CONSTRAINTS: given}}, {}, ()))
    made = None if message is None else workload_from_template(reading.template, message)
    wrong = tuple(
        _explained(replace(each, field=path + each.field.removeprefix(CONSTRAINTS_FIELD)), path)
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
            is_single=is_single,
        )
    )


def _is_of_values(manifest: Manifest, path: Sequence[str | int]) -> bool:
    """Whether what is at a path is one of a chart's values, which it reads in its own way."""
    if not manifest.get("kind"):
        return path[0] != "patch"
    return any(str(step).startswith("values") for step in path)


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


def part_number(parts: Sequence[LintedPart], field: str) -> int:
    """The part whose constraints have a field of the object; the first for all other fields."""
    paths = enumerate(part.workload.constraints_path for part in parts)
    return next((number for number, path in paths if field.startswith(f"{path}[")), 0)


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
        by_part[part_number(parts, each.field)].append(each)
    return [
        replace(part, workload=replace(part.workload, unknown_fields=tuple(own)))
        for part, own in zip(parts, by_part, strict=True)
    ]
