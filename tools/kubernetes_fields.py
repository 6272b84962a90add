"""Writes the names of Kubernetes' fields, by which the client finds those that are unknown.

python -m tools.kubernetes_fields

They are taken from the schemas that kubernetes-validate carries, which follow the Go types. A type
goes by its short name; where two share one, that is the kind's, and the other has its group, too.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Final

from topospread_client import KUBERNETES_VERSION

PATH: Final = Path(__file__).parents[1] / "client/topospread_client/_kubernetes_fields.json"

_API: Final = "io.k8s.api."

_KINDS: Final = (
    "apps.v1.DaemonSet",
    "apps.v1.Deployment",
    "apps.v1.ReplicaSet",
    "apps.v1.StatefulSet",
    "batch.v1.CronJob",
    "batch.v1.Job",
    "core.v1.Namespace",
    "core.v1.Node",
    "core.v1.PersistentVolume",
    "core.v1.PersistentVolumeClaim",
    "core.v1.Pod",
    "core.v1.PodTemplate",
    "core.v1.ReplicationController",
    "core.v1.Service",
    "resource.v1.DeviceClass",
    "resource.v1.ResourceClaim",
    "resource.v1.ResourceSlice",
    "storage.v1.CSIDriver",
    "storage.v1.CSINode",
    "storage.v1.CSIStorageCapacity",
    "storage.v1.StorageClass",
    "storage.v1.VolumeAttachment",
)


def main() -> None:
    """Write the file."""
    PATH.write_text(content())


def content() -> str:
    """Content of the file: the fields of each type, one type a line."""
    schemas = _schemas()
    types: dict[str, dict[str, str]] = {}
    waiting = [f"{_API}{kind}" for kind in _KINDS]
    owners = {_short(kind): kind for kind in waiting}
    while waiting:
        full_name = waiting.pop()
        name = _name(full_name, owners)
        if name not in types:
            fields = schemas[full_name]["properties"]
            types[name] = {field: _type(fields[field], schemas, owners) for field in sorted(fields)}
            waiting += filter(None, (_referred(fields[field], schemas)[1] for field in fields))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    return f"{{\n{lines}\n}}\n"


def _schemas() -> dict[str, Any]:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (folder / f"v{KUBERNETES_VERSION}.0-local" / "_definitions.json").read_text()
    schemas: dict[str, Any] = json.loads(text)["$defs"]
    return schemas


def _type(schema: dict[str, Any], schemas: dict[str, Any], owners: dict[str, str]) -> str:
    """Type of a field: ``T``, ``[]T``, or nothing where no type with fields is below it."""
    mark, full_name = _referred(schema, schemas)
    return mark + _name(full_name, owners)


def _name(full_name: str, owners: dict[str, str]) -> str:
    """Short name of a type, unless another owns it; `owners` are full names by short ones."""
    short = _short(full_name)
    shared = owners.setdefault(short, full_name) != full_name
    return full_name.removeprefix(_API) if shared else short


def _referred(schema: dict[str, Any], schemas: dict[str, Any]) -> tuple[str, str]:
    """Mark and full name of the type that a field is of; empty for scalars and free content."""
    listed = schema.get("items", {})
    full_name = _short(schema.get("$ref") or listed.get("$ref", ""), "/")
    if not schemas.get(full_name, {}).get("properties"):
        return "", ""
    return ("[]" if listed else ""), full_name


def _short(name: str, separator: str = ".") -> str:
    return name.rpartition(separator)[2]


if __name__ == "__main__":
    main()
