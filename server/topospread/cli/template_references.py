"""Manifests of which some take their pod template from another, as a Rollout may."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topospread_client import template_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.manifest_documents import Manifest


def with_templates(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Manifests, where one that takes the template of another stands in its place, and has it."""
    takers = {
        (_namespace(each), reference): each
        for each in manifests
        if (reference := template_reference(each.content))
    }
    if not takers:
        return list(manifests)
    found: list[Manifest] = []
    placed: set[int] = set()
    for each in manifests:
        taker = takers.get((_namespace(each), f"{each.kind} {_metadata(each).get('name')}"))
        if taker is not None and isinstance(each.content.get("spec"), dict):
            found.append(replace(each, content=_joined(taker.content, each.content)))
            placed.add(id(taker))
        else:
            found.append(each)
    return [each for each in found if id(each) not in placed]


def _joined(taker: dict[str, Any], referred: dict[str, Any]) -> dict[str, Any]:
    """The taker with the selector and the template of what it refers to, at the lines of that."""
    made, spec = copy.copy(referred), copy.copy(referred["spec"])
    own = {name: each for name, each in taker["spec"].items() if name != "workloadRef"}
    for name in spec.keys() - {"selector", "template"}:
        del spec[name]
    spec.update(own)
    made.update({**taker, "spec": spec})
    return made


def _metadata(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest.content.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _namespace(manifest: Manifest) -> str:
    return str(_metadata(manifest).get("namespace") or "")
