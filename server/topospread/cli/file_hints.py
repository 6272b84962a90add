"""What to do with files that are no plain manifests: archives, templates, and what tools read."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

_GZIP: Final = b"\x1f\x8b"

_OF_TEMPLATES: Final = re.compile(
    rb"\{\{-?[ \t]*(?:[.$/]|(?:if|else|end|range|with|include|define|template|toYaml)\b)"
)
"""What a template of Helm has, and what kustomize or a workflow's own templates mostly lack."""

_HELM: Final = "give the output of `helm template`"
_KUSTOMIZE: Final = "give the output of `kustomize build`"

_YAML: Final = (".yaml", ".yml")


def packed_hint(begin: bytes) -> str:
    """What to do with a file that begins so; empty unless it is compressed."""
    return "compressed with gzip: unpack it first, with `gunzip`" if begin.startswith(_GZIP) else ""


def template_hint(content: bytes) -> str:
    """What to do with a text that is no YAML and no JSON; empty unless it seems a template."""
    return f"it looks like a template of Helm: {_HELM}" if _OF_TEMPLATES.search(content) else ""


def name_hint(path: str) -> str:
    """What to do with a file without a Kubernetes object, by its name; empty where none tells."""
    file = PurePath(path)
    stem, ending = file.stem, file.suffix
    if ending in _YAML and (stem == "Chart" or stem.startswith("values")):
        return f"Helm reads such a file: {_HELM}"
    if ending in ("", *_YAML) and stem in ("kustomization", "Kustomization"):
        return f"kustomize reads such a file: {_KUSTOMIZE}"
    return ""
