"""Writes the names of Kubernetes' fields, by which the client finds those that are unknown.

python -m tools.kubernetes_fields

They are taken from the schemas that kubernetes-validate carries, which follow the Go types.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Final

from topospread_client import KUBERNETES_VERSION

PATH: Final = Path(__file__).parents[1] / "client/topospread_client/_kubernetes_fields.json"

_KINDS: Final = (
    "apps.v1.DaemonSet",
    "apps.v1.Deployment",
    "apps.v1.ReplicaSet",
    "apps.v1.StatefulSet",
    "batch.v1.CronJob",
    "batch.v1.Job",
    "core.v1.Node",
    "core.v1.Pod",
    "core.v1.ReplicationController",
    "core.v1.Service",
)


def main() -> None:
    """Write the file."""
    PATH.write_text(content())


def content() -> str:
    """Content of the file: the fields of each type, one type a line."""
    schemas = _schemas()
    types: dict[str, dict[str, str]] = {}
    waiting = [f"io.k8s.api.{kind}" for kind in _KINDS]
    while waiting:
        full_name = waiting.pop()
        name = _short(full_name)
        if name not in types:
            fields = schemas[full_name]["properties"]
            types[name] = {field: _type(fields[field], schemas) for field in sorted(fields)}
            waiting += filter(None, (_referred(fields[field], schemas)[1] for field in fields))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    return f"{{\n{lines}\n}}\n"


def _schemas() -> dict[str, Any]:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (folder / f"v{KUBERNETES_VERSION}.0-local" / "_definitions.json").read_text()
    schemas: dict[str, Any] = json.loads(text)["$defs"]
    return schemas


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Type of a field: ``T``, ``[]T``, or nothing where no type with fields is below it."""
    mark, full_name = _referred(schema, schemas)
    return mark + _short(full_name)


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
