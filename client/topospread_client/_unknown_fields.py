"""Fields of manifests that Kubernetes does not have, as its API server finds them.

The names are in _kubernetes_fields.json, for the kinds that are read here. Of other kinds only
topologySpreadConstraints are looked at, wherever they stand.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from topospread_client._errors import Violation
from topospread_client._pod_templates import (
    CONSTRAINTS,
    has_known_template,
    path_text,
    spread_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client._pod_templates import ConstraintList, Path

KUBERNETES_VERSION: Final = "1.36"
"""Version of Kubernetes whose fields are known."""

GROUPS: Final = {
    **dict.fromkeys(("Pod", "PodTemplate", "Node", "Service", "ReplicationController"), ""),
    **dict.fromkeys(("Namespace", "PersistentVolume", "PersistentVolumeClaim"), ""),
    **dict.fromkeys(("ReplicaSet", "StatefulSet", "Deployment", "DaemonSet"), "apps"),
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    **dict.fromkeys(
        ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment"),
        "storage.k8s.io",
    ),
    **dict.fromkeys(("ResourceClaim", "DeviceClass", "ResourceSlice"), "resource.k8s.io"),
}
"""API groups of the kinds whose fields are known."""

_LONGEST_NAME: Final = 64
"""Characters of a field's name for which a similar one is looked for; Kubernetes' are shorter."""

_MOST_HINTS: Final = 20
"""Unknown fields of a manifest for which a similar name is looked for: it takes long."""

_SIMILAR: Final = 0.7

_MOST_STEPS: Final = 5
"""How far below an unknown field's object the place is looked for where it belongs."""

_BESIDES: Final = frozenset(
    {"ephemeralContainers", "initContainers", "managedFields", "status", "volumes"}
)
"""Fields below which nothing is that people put somewhere else by mistake."""

_SELECTORS: Final = frozenset({"labelSelector"})
"""Fields of a constraint that are objects."""

_OFTEN_MISPLACED: Final = ("PodSpec", "TopologySpreadConstraint", "PodTemplateSpec", "ObjectMeta")
"""Types whose fields are looked for in all of an object, where one of them stands in none of it."""

_MORE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "monitoring.coreos.com": frozenset({"additionalLabelSelectors"})
}
"""Fields that constraints have in objects of an API group, of which its controller makes others."""

_AT_ROOT: Final = "it belongs at the root of the object"
_DIRECTIVE: Final = "$"
"""Begins what a strategic merge patch has beside fields: ``$patch: delete``."""

_Type: TypeAlias = dict[str, "_Part | None"]
"""Fields of a type by name; None for scalars and free content, such as labels."""


class _Part(NamedTuple):
    """Type of a field that has fields itself, and whether the field is a list."""

    type: _Type
    listed: bool


class _Unknown(NamedTuple):
    """Field that a type does not have, with the path from a part whose type is known."""

    path: Path
    known: _Type
    value: object
    beside: Mapping[str, Any]


class _Checked(NamedTuple):
    """Part of a manifest whose fields are known: its type, and its path."""

    type: _Type
    content: object
    path: Path


def unknown_fields(manifest: Mapping[str, Any], path: str = "") -> tuple[Violation, ...]:
    """Find the fields of a manifest that Kubernetes does not have, misspelt ones for example.

    Args:
        manifest: of any kind. It is taken for a pod where it has no kind. Of kinds that are not
            Kubernetes' own, topologySpreadConstraints alone are looked at, wherever they are; of
            Rollouts and of CloneSets also the metadata and the pod template.
        path: of the manifest, for the violations.

    Returns:
        Violations with the paths of the fields and the reason FIELD_UNKNOWN, in the order of the
        manifest. The description says where a field belongs, or which one is meant, if one is.
    """
    found: list[tuple[_Checked, _Unknown]] = []
    if isinstance(manifest, Mapping):
        for part in _checked_parts(manifest):
            found += ((part, each) for each in _find(part.type, part.content))
    prefix = f"{path}." if path else ""
    return tuple(
        Violation(
            prefix + path_text(part.path + each.path),
            "FIELD_UNKNOWN",
            _hint(part, each, prefix) if number < _MOST_HINTS else "",
        )
        for number, (part, each) in enumerate(found)
    )


def _find(known: _Type, fields: Any) -> list[_Unknown]:
    """Unknown fields of a value, which may be no object at all."""
    found: list[_Unknown] = []
    if type(fields) is not dict and not isinstance(fields, Mapping):
        return found
    for name, value in fields.items():
        if name not in known:
            found.append(_Unknown((_name_text(name),), known, value, fields))
        elif (part := known[name]) is None or not value:
            continue
        elif not part.listed:
            if below := _find(part.type, value):
                found += _prefixed((name,), below)
        elif type(value) is list or type(value) is tuple:
            for number, element in enumerate(value):
                if below := _find(part.type, element):
                    found += _prefixed((name, number), below)
    return found


def _name_text(name: object) -> str:
    """A key as YAML writes it."""
    if name is None or isinstance(name, bool):
        return "null" if name is None else str(name).lower()
    return str(name) or '""'


def _prefixed(path: Path, found: list[_Unknown]) -> Iterator[_Unknown]:
    return (each._replace(path=path + each.path) for each in found)


def _hint(part: _Checked, unknown: _Unknown, prefix: str) -> str:
    """Where an unknown field belongs, or which one is meant; empty where neither is known."""
    types = _types()
    *above, last = unknown.path
    name, path = str(last), (*part.path, *above)
    if len(name) > _LONGEST_NAME:
        return ""
    if hint := _hint_in_constraint(unknown, name, _path_prefix(prefix, path)):
        return hint
    if (below := _place_below(unknown.known, name)) is not None:
        return _belongs(prefix, path, below)
    similar = _similar(name, unknown.known)
    outer = list(_types_along(part.type, above))[-2::-1]
    if not similar or name in types["TopologySpreadConstraint"]:
        for end, known in outer:
            if name in known:
                at = path[: len(part.path) + end]
                return _belongs(prefix, at, ()) if at else _AT_ROOT
    if unknown.known is types["LabelSelector"] and isinstance(unknown.value, str | int | float):
        return _belongs(prefix, path, ("matchLabels",))
    if similar:
        return f'did you mean "{similar}"?'
    if any(name in types[each] for each in _OFTEN_MISPLACED):
        for end, known in outer:
            if (below := _place_below(known, name)) is not None:
                return _belongs(prefix, path[: len(part.path) + end], below)
    return ""


def _hint_in_constraint(unknown: _Unknown, name: str, path: str) -> str:
    """What is meant by a field of a constraint that is a part of another's name, or its content."""
    types, value, beside = _types(), unknown.value, unknown.beside
    if unknown.known is not types["TopologySpreadConstraint"]:
        return ""
    lacking = [each for each in unknown.known if each not in beside]
    ends = [each for each in lacking if len(name) > 2 and each.lower().endswith(name.lower())]
    if len(ends) == 1 and (ends[0] not in _SELECTORS or isinstance(value, Mapping)):
        return f'did you mean "{ends[0]}"?'
    if name in types["LabelSelector"] or _similar(name, unknown.known):
        return ""
    selector = beside.get("labelSelector")
    if isinstance(value, Mapping):
        if value.keys() & unknown.known.keys():
            return "its fields belong in the constraint itself"
        if not selector and value.keys() & types["LabelSelector"].keys():
            return 'did you mean "labelSelector"?'
    is_map = isinstance(value, Mapping) and not selector  # nothing else in a constraint is one
    is_label = "/" in name or ("labelSelector" in beside and not selector)
    if is_map or (is_label and isinstance(value, str | int | float)):
        return f"it belongs under {path}labelSelector.matchLabels"
    return ""


def _belongs(prefix: str, path: Path, below: tuple[str, ...]) -> str:
    where = ".".join(filter(None, (path_text(path), *below)))
    return f"it belongs under {prefix}{where}"


def _path_prefix(prefix: str, path: Path) -> str:
    return f"{prefix}{path_text(path)}." if path else prefix


def _place_below(known: _Type, name: str) -> tuple[str, ...] | None:
    """Path from a type to the only one, of those nearest below it, that has a field."""
    level: list[tuple[tuple[str, ...], _Type]] = [((), known)]
    for _ in range(_MOST_STEPS):
        level = [
            ((*path, f"{field}[]" if part.listed else field), part.type)
            for path, owner in level
            for field, part in owner.items()
            if part is not None and field not in _BESIDES
        ]
        places = [path for path, each in level if name in each]
        if places:
            return places[0] if len(places) == 1 else None
    return None


def _types_along(known: _Type, path: Sequence[str | int]) -> Iterator[tuple[int, _Type]]:
    """The types of a value's parts along a path, each with the number of steps to it."""
    yield 0, known
    listed = False
    for end, step in enumerate(path, 1):
        if not listed:
            part = known[str(step)]
            assert part is not None, "an unknown field is below it"
            known, listed = part
        else:
            listed = False
        if not listed:
            yield end, known


def _similar(name: str, known: _Type) -> str:
    """The field that is most like an unknown one; empty where none is."""
    import difflib

    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, 1, _SIMILAR)
    return spelled[near[0]] if near else ""


def _checked_parts(manifest: Mapping[str, Any]) -> list[_Checked]:
    """Parts of a manifest whose fields are known."""
    types = _types()
    kind, version = manifest.get("kind") or "Pod", manifest.get("apiVersion")
    # Without a version the group is not checked, as in the conversion of manifests.
    if isinstance(kind, str) and kind in GROUPS:
        group = str(version).rpartition("/")[0] if version else GROUPS[kind]
        if group == GROUPS[kind] or (group == "extensions" and GROUPS[kind] == "apps"):
            return [_Checked(types[kind], manifest, ())]
    found = spread_parts(manifest)
    parts: list[_Checked] = []
    if has_known_template(manifest):
        parts.append(_Checked(types["ObjectMeta"], manifest.get("metadata"), ("metadata",)))
    for each in found.templates:
        if has_known_template(each.holder):
            parts.append(_Checked(types["PodTemplateSpec"], each.content, each.path))
        else:
            spec = each.content.get("spec") if isinstance(each.content, Mapping) else None
            given = spec.get(CONSTRAINTS) if isinstance(spec, Mapping) else None
            parts += _constraints(given, (*each.path, "spec", CONSTRAINTS), each.holder)
    checked = [each.path for each in found.templates if has_known_template(each.holder)]
    for listed in found.lists:
        if any(listed.path[: len(path)] == path for path in checked):
            continue
        if has_known_template(listed.holder):
            parts.append(_misplaced(listed))
        else:
            parts += _constraints(listed.content, listed.path, listed.holder)
    return parts


def _constraints(given: object, path: Path, holder: Mapping[str, Any]) -> Iterator[_Checked]:
    """The constraints of a list, which is of an object whose other fields are not known."""
    known = _types()["TopologySpreadConstraint"]
    more = _MORE_FIELDS.get(str(holder.get("apiVersion")).rpartition("/")[0], frozenset())
    for number, each in enumerate(given if isinstance(given, list | tuple) else ()):
        if isinstance(each, Mapping):
            own = {
                name: value
                for name, value in each.items()
                if name not in more and not str(name).startswith(_DIRECTIVE)
            }
            yield _Checked(known, own, (*path, number))


def _misplaced(listed: ConstraintList) -> _Checked:
    """Constraints that stand beside a pod template whose fields are known."""
    *above, name = listed.path
    known: _Type = {"template": _Part(_types()["PodTemplateSpec"], False)}
    below = {str(name): listed.content}
    if above != ["spec"]:
        known = {}
    return _Checked(known, below, tuple(above))


@functools.cache
def _types() -> Mapping[str, _Type]:
    import json
    import pkgutil

    content = pkgutil.get_data(__package__, "_kubernetes_fields.json")
    assert content is not None, "it is a part of the package"
    named: dict[str, dict[str, str]] = json.loads(content)
    types: dict[str, _Type] = {name: {} for name in named}
    for name, fields in named.items():
        for field, kind in fields.items():
            part = _Part(types[kind.removeprefix("[]")], kind.startswith("[]")) if kind else None
            types[name][field] = part
    return types
