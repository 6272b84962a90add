"""Reading Kubernetes JSON, where null and absent are the same."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
Labels = Mapping[str, str]


def name_of(obj: Json) -> str:
    """The object's metadata.name."""
    return str(metadata_of(obj).get("name") or "")


def namespace_of(obj: Json) -> str:
    """The object's metadata.namespace; "" where it has none."""
    return str(metadata_of(obj).get("namespace") or "")


def labels_of(obj: Json) -> Labels:
    """The object's metadata.labels; empty where it has none."""
    labels: Labels = metadata_of(obj).get("labels") or {}
    return labels


def metadata_of(obj: Json) -> Json:
    """The object's metadata; empty where it has none."""
    metadata: Json = obj.get("metadata") or {}
    return metadata


def spec_of(obj: Json) -> Json:
    """The object's spec; empty where it has none."""
    spec: Json = obj.get("spec") or {}
    return spec


def items_of(cluster: Json, kind: str) -> list[Json]:
    """A cluster's objects of one kind ("nodes", "pods", "services", …)."""
    items: list[Json] = cluster.get(kind) or []
    return items
