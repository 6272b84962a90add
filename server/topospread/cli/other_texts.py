"""What a file is that has no objects of Kubernetes: by its text, or by its name."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

_OF_TEMPLATES: Final = re.compile(
    rb"\{\{-?[ \t]*(?:[.$/]|(?:if|else|end|range|with|include|define|template|toYaml)\b)"
)
"""What a template of Helm has, and what kustomize or a workflow's own templates mostly lack."""

_HELM: Final = "give the output of `helm template`"
_KUSTOMIZE: Final = "give the output of `kustomize build`"
_OBJECTS: Final = "`kubectl get -o json` prints objects"

_FIRST_LINES: Final = tuple(
    (re.compile(shape), hint)
    for shape, hint in (
        (rb"(?:NAMESPACE +)?NAME(?: {2,}|\r?\n)", f"it is a table for people: {_OBJECTS}"),
        (rb"Name: +\S", f"it is what `kubectl describe` prints: {_OBJECTS}"),
        (
            rb"(?i:error(: | from )|unable to connect |the connection to |no resources found)",
            "it is a message of kubectl, and no objects",
        ),
        (rb"(?i:<!doctype html|<html)", "it is a page of the web: is there a login before it?"),
        (rb"```", "it has a line of ```, as Markdown: take it out"),
        (rb"(?:Warning: |[$#>] *(?:kubectl|oc) )", "its first line is of a terminal: take it out"),
    )
)
"""What a text begins with that people take for objects, and what to say of it."""

_TAB: Final = re.compile(rb"^[ -]*\t", re.MULTILINE)


def text_hint(content: bytes) -> str:
    """What a text is that cannot be read, or has no objects; empty where nothing tells."""
    if _OF_TEMPLATES.search(content):
        return f"it looks like a template of Helm: {_HELM}"
    begin = content.lstrip()[:256]
    found = next((hint for shape, hint in _FIRST_LINES if shape.match(begin)), "")
    if not found and begin[:1] not in (b"{", b"[") and _TAB.search(content):
        return "lines begin with tabs, which YAML does not take: use blanks"
    return found


def name_hint(path: str) -> str:
    """What to do with a file without objects, by its name; empty where none tells."""
    file = PurePath(path)
    is_yaml = file.suffix in (".yaml", ".yml")
    if is_yaml and (file.stem == "Chart" or file.stem.startswith("values")):
        return f"Helm reads such a file: {_HELM}"
    if (is_yaml or not file.suffix) and file.stem in ("kustomization", "Kustomization"):
        return f"kustomize reads such a file: {_KUSTOMIZE}"
    return ""
