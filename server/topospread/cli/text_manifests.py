"""Texts within objects that have constraints in YAML: values of charts, manifests of add-ons."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.errors import BadInput
from topospread.cli.manifest_documents import Manifest, is_values
from topospread.cli.yaml_values import LinedDict, yaml_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_TEXT: Final = 512 << 10
"""Characters of the texts of one object that are read."""

MOST_TEXTS: Final = 100
"""Texts of one object that are read."""

_MOST_DEPTH: Final = 64

_HAS_CONSTRAINTS: Final = re.compile(
    r"""(?:^|[{,])[ \t-]*["']?topologySpreadConstraints["']?[ \t]*:"""
    r"""|\b(?:path|name)["']?[ \t]*:.{0,256}?topologySpreadConstraints""",
    re.MULTILINE,
)
"""A key of a mapping, or the value of a path or a name, which is not that long."""

_CONSTRAINTS: Final = "topologySpreadConstraints"


@dataclass(frozen=True, slots=True)
class ManifestText:
    """A text of an object, of which lint reads what it stands for.

    Attributes:
        path: of the text in the object; of a text within another, in the document there.
        line: of the key that has the text; 0 where no line is known.
        is_block: the text begins on the next line.
        documents: what it stands for.
        unread: why it was not read; empty where it was.
        outer: path of the text that this one is within; empty where it is within none.
        label: of the object in that text; empty where it has none.
    """

    path: str
    line: int
    is_block: bool
    documents: tuple[dict[Any, Any], ...] = ()
    unread: str = ""
    outer: str = ""
    label: str = ""

    @property
    def where(self) -> str:
        """The paths of both texts, where it is within another."""
        return ": ".join(filter(None, (self.outer, self.label, self.path)))

    def line_of(self, line: int) -> int:
        """Line in the file of a line of the text."""
        return self.line + line if self.is_block else self.line


def texts_with_constraints(manifest: Manifest) -> Iterator[ManifestText]:
    """Texts of an object that have topologySpreadConstraints, but for those of its metadata.

    Texts within these follow each; what these have within them is not looked for.
    """
    for text in _texts(manifest.content):
        yield text
        for document in text.documents:
            label = Manifest(document, "").label if document.get("kind") else ""
            for inner in _texts(document):
                yield replace(
                    inner,
                    line=text.line_of(inner.line),
                    is_block=text.is_block and inner.is_block,
                    outer=text.path,
                    label=label,
                )


def _texts(content: Mapping[Any, Any]) -> Iterator[ManifestText]:
    left, count = MOST_TEXT, 0
    waiting: list[tuple[str, Any, int, bool, int]] = [("", content, 0, False, 0)]
    while waiting:
        path, value, line, is_block, depth = waiting.pop()
        if isinstance(value, str):
            is_list = path.rpartition(".")[2] == _CONSTRAINTS
            has_constraints = _CONSTRAINTS in value and _HAS_CONSTRAINTS.search(value)
            if not has_constraints and not (is_list and "\n" in value):
                continue
            left, count = left - len(value), count + 1
            if left < 0 or count > MOST_TEXTS:
                yield ManifestText(path, line, is_block, unread="the texts are too long")
                return
            yield _read(path, value, line, is_block=is_block, is_list=is_list)
        elif depth == _MOST_DEPTH:
            continue
        elif isinstance(value, list):
            members = [
                (f"{path}[{number}]", each, line, False, depth + 1)
                for number, each in enumerate(value)
            ]
            waiting += reversed(members)
        elif isinstance(value, dict):
            lines = value.lines if isinstance(value, LinedDict) else {}
            blocks = value.blocks if isinstance(value, LinedDict) else frozenset()
            listed = value.listed if isinstance(value, LinedDict) else {}
            members = []
            for key, each in value.items():
                if not isinstance(each, str | list | dict):
                    continue
                if not depth and key in ("metadata", "status"):
                    continue
                at = f"{path}.{key}".removeprefix(".")
                if key in listed:
                    members += [
                        (f"{at}[{number}]", text, *place, depth + 2)
                        for number, (text, place) in enumerate(zip(each, listed[key], strict=True))
                    ]
                else:
                    members.append((at, each, lines.get(key, line), key in blocks, depth + 1))
            waiting += reversed(members)


def _read(path: str, text: str, line: int, *, is_block: bool, is_list: bool) -> ManifestText:
    try:
        parts = list(yaml_parts(BytesIO(text.encode("utf-8", "replace")), "text", lined=True))
    except BadInput:
        unread = "the text is no YAML, as that of a template is not"
        return ManifestText(path, line, is_block, unread=unread)
    documents: list[dict[Any, Any]] = []
    items: list[Any] = []
    for value, _, listed in parts:
        if listed is not None:
            items.append(value)
            continue
        if isinstance(value, dict) and items:
            value["items"], items = items, []
        if isinstance(value, list):  # operations of a JSON patch, or the constraints alone
            value = {_CONSTRAINTS if is_list else "patch": value}
        if is_values(value):
            value.pop("kind", None)
        if isinstance(value, dict):
            documents.append(value)
    return ManifestText(path, line, is_block, tuple(documents))
