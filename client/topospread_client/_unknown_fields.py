"""Fields of manifests that Kubernetes does not have, as its API server finds them.

The names are in _kubernetes_fields.json, for the kinds that are read here. Of other kinds only the
metadata and a pod template are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from topospread_client._errors import Violation

KUBERNETES_VERSION: Final = "1.36"
"""Version of Kubernetes whose fields are known."""

_GROUPS: Final = {
    "Pod": "",
    "Node": "",
    "Service": "",
    "ReplicationController": "",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "Deployment": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""API groups of the kinds whose fields are known."""

_LONGEST_NAME: Final = 64
"""Characters of a field's name for which a similar one is looked for; Kubernetes' are shorter."""

_MOST_HINTS: Final = 20
"""Unknown fields of a manifest for which a similar name is looked for: it takes long."""

_SIMILAR: Final = 0.7

_Type: TypeAlias = dict[str, "_Part | None"]
"""Fields of a type by name; None for scalars and free content, such as labels."""


class _Part(NamedTuple):
    """Type of a field that has fields itself, and whether the field is a list."""

    type: _Type
    listed: bool


class _Path(NamedTuple):
    """Way to a value from the root of the manifest, which becomes text only where it is needed."""

    parent: _Path | None
    step: str | int

    def text(self) -> str:
        """Path as kubectl prints it."""
        steps = []
        at: _Path | None = self
        while at is not None:
            steps.append(f"[{at.step}]" if isinstance(at.step, int) else f".{at.step}")
            at = at.parent
        return "".join(reversed(steps)).removeprefix(".")


def unknown_fields(manifest: Mapping[str, Any], path: str = "") -> tuple[Violation, ...]:
    """Find the fields of a manifest that Kubernetes does not have, misspelt ones for example.

    Args:
        manifest: of any kind. It is taken for a pod where it has no kind. Of kinds that are not
            read here, the metadata and the pod template in `spec` are looked at, no more.
        path: of the manifest, for the violations.

    Returns:
        Violations with the paths of the fields and the reason FIELD_UNKNOWN, in the order of the
        manifest.
    """
    found: list[tuple[_Path, _Type]] = []
    if isinstance(manifest, Mapping):
        for known, value, at in _checked_parts(manifest):
            if isinstance(value, Mapping) and not _all_known(known, value):
                _find(known, value, at, found)
    return tuple(
        Violation(
            f"{path}.{at.text()}".removeprefix("."),
            "FIELD_UNKNOWN",
            _hint(at.step, known) if number < _MOST_HINTS else "",
        )
        for number, (at, known) in enumerate(found)
    )


def _all_known(known: _Type, fields: Mapping[str, Any]) -> bool:
    """Whether a type has all fields of an object, found quickly; False where it cannot be told."""
    for name, value in fields.items():
        if name not in known:
            return False
        part = known[name]
        if part is None or not value:
            continue
        if part.listed:
            if type(value) is not list:
                return False
            for element in value:
                if type(element) is not dict or not _all_known(part.type, element):
                    return False
        elif type(value) is not dict or not _all_known(part.type, value):
            return False
    return True


def _find(
    known: _Type,
    fields: Mapping[str, Any],
    path: _Path | None,
    found: list[tuple[_Path, _Type]],
) -> None:
    """Collect the paths of fields that a type does not have, each with the type."""
    for name, value in fields.items():
        if name not in known:
            found.append((_Path(path, str(name)), known))
            continue
        part = known[name]
        if part is None or not value:
            continue
        if not part.listed:
            if isinstance(value, Mapping):
                _find(part.type, value, _Path(path, name), found)
        elif isinstance(value, list | tuple):
            for number, element in enumerate(value):
                if isinstance(element, Mapping):
                    _find(part.type, element, _Path(_Path(path, name), number), found)


def _hint(name: str | int, known: _Type) -> str:
    """Question that names the field that is most like an unknown one; empty where none is."""
    import difflib

    typed = str(name)
    if len(typed) > _LONGEST_NAME:
        return ""
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(typed.lower(), spelled, 1, _SIMILAR)
    return f'did you mean "{spelled[near[0]]}"?' if near else ""


def _checked_parts(manifest: Mapping[str, Any]) -> list[tuple[_Type, object, _Path | None]]:
    """Parts of a manifest whose fields are known, each with its type and its path."""
    types = _types()
    kind, version = manifest.get("kind") or "Pod", manifest.get("apiVersion")
    known = isinstance(kind, str) and kind in _GROUPS
    # Without a version the group is not checked, as in the conversion of manifests.
    if known and (not version or str(version).rpartition("/")[0] == _GROUPS[kind]):
        return [(types[kind], manifest, None)]
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    return [
        (types["ObjectMeta"], manifest.get("metadata"), _Path(None, "metadata")),
        (types["PodTemplateSpec"], template, _Path(_Path(None, "spec"), "template")),
    ]


@functools.cache
def _types() -> Mapping[str, _Type]:
    """Types with fields that are read here, by name."""
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
