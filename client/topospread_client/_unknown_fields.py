"""Fields of manifests that Kubernetes does not have, as its API server finds them.

The names are in _kubernetes_fields.json, for the kinds that are read here. Of other kinds only the
metadata and a pod template are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from topospread_client._errors import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

KUBERNETES_VERSION: Final = "1.36"
"""Version of Kubernetes whose fields are known."""

GROUPS: Final = {
    **dict.fromkeys(("Pod", "Node", "Service", "ReplicationController"), ""),
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

_Type: TypeAlias = dict[str, "_Part | None"]
"""Fields of a type by name; None for scalars and free content, such as labels."""


class _Part(NamedTuple):
    """Type of a field that has fields itself, and whether the field is a list."""

    type: _Type
    listed: bool


class _Unknown(NamedTuple):
    """Field that a type does not have."""

    path: str
    name: str
    known: _Type


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
    found: list[_Unknown] = []
    if isinstance(manifest, Mapping):
        for known, value, at in _checked_parts(manifest):
            found += _prefixed(at, _find(known, value))
    return tuple(
        Violation(
            f"{path}{each.path}".removeprefix("."),
            "FIELD_UNKNOWN",
            _hint(each.name, each.known) if number < _MOST_HINTS else "",
        )
        for number, each in enumerate(found)
    )


def _find(known: _Type, fields: Any) -> list[_Unknown]:
    """Unknown fields of a value, which may be no object at all."""
    found: list[_Unknown] = []
    if type(fields) is not dict and not isinstance(fields, Mapping):
        return found
    for name, value in fields.items():
        if name not in known:
            found.append(_Unknown(f".{name}", str(name), known))
        elif (part := known[name]) is None or not value:
            continue
        elif not part.listed:
            if below := _find(part.type, value):
                found += _prefixed(f".{name}", below)
        elif type(value) is list or type(value) is tuple:
            for number, element in enumerate(value):
                if below := _find(part.type, element):
                    found += _prefixed(f".{name}[{number}]", below)
    return found


def _prefixed(path: str, found: list[_Unknown]) -> Iterator[_Unknown]:
    return (each._replace(path=f"{path}{each.path}") for each in found)


def _hint(name: str, known: _Type) -> str:
    """Question that names the field that is most like an unknown one; empty where none is."""
    import difflib

    if len(name) > _LONGEST_NAME:
        return ""
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, 1, _SIMILAR)
    return f'did you mean "{spelled[near[0]]}"?' if near else ""


def _checked_parts(manifest: Mapping[str, Any]) -> list[tuple[_Type, object, str]]:
    """Parts of a manifest whose fields are known, each with its type and its path."""
    types = _types()
    kind, version = manifest.get("kind") or "Pod", manifest.get("apiVersion")
    known = isinstance(kind, str) and kind in GROUPS
    # Without a version the group is not checked, as in the conversion of manifests.
    if known and (not version or str(version).rpartition("/")[0] == GROUPS[kind]):
        return [(types[kind], manifest, "")]
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    return [
        (types["ObjectMeta"], manifest.get("metadata"), ".metadata"),
        (types["PodTemplateSpec"], template, ".spec.template"),
    ]


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
