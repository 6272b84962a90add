"""Parts of manifests, which may be of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def part_of(value: object, name: str = "") -> Mapping[str, Any]:
    """An object, or a member of one; an empty one where there is none."""
    part = value.get(name) if name and isinstance(value, Mapping) else value
    return part if isinstance(part, Mapping) else {}
