"""Files of YAML or JSON → Kubernetes manifests, each knowing where it stood.

Read is what kubectl prints and people write: several documents, List kinds, directories, and
standard input.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml
from typing_extensions import override

from topospread.cli.complaints import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")

_MAX_DEPTH: Final = 1000
_BLANKS: Final = re.compile(r"\s*")
_DROPPED: Final = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(
        r"^[-+]?(?:0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|0|[1-9][0-9]*)$"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"
    ),
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as it was written.

    Attributes:
        content: the object.
        source: where it stood, for example ``pods.yaml:12``.
    """

    content: dict[str, Any]
    source: str

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.content["kind"])

    @property
    def label(self) -> str:
        """Kind and name for a person, for example ``Pod prod/web-0``."""
        metadata = self.content.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        namespace = metadata.get("namespace")
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"

    @property
    def title(self) -> str:
        """Where it stood and what it is: the begin of a complaint about it."""
        return f"{self.source}: {self.label}"


def read(paths: Sequence[str], *, recursive: bool = False) -> list[Manifest]:
    """All objects of the files, in order.

    Args:
        paths: files, directories (their .yaml, .yml and .json files, sorted), or ``-`` for stdin.
        recursive: look into subdirectories, too.

    Raises:
        BadInput: a file that is missing, or that is neither YAML nor JSON, with the line.
    """
    found: list[Manifest] = []
    for path in paths:
        for file in _files(path, recursive=recursive):
            found.extend(_manifests(*_content(file)))
    return found


def value_of(path: str) -> Any:
    """The one document of a file that holds no Kubernetes object.

    Raises:
        BadInput: as for :func:`read`, or more or less than one document.
    """
    content, source = _content(path)
    documents = list(_documents(content, source))
    if len(documents) != 1:
        raise BadInput(f"{source}: expected one document, found {len(documents)}")
    return documents[0][0]


def _files(path: str, *, recursive: bool) -> list[str]:
    if path == STDIN or not Path(path).is_dir():
        return [path]
    entries = Path(path).rglob("*") if recursive else Path(path).iterdir()
    files = sorted(str(entry) for entry in entries if entry.suffix in SUFFIXES and entry.is_file())
    if not files:
        raise BadInput(f"{path}: this directory has no .yaml, .yml or .json file")
    return files


def _content(path: str) -> tuple[bytes, str]:
    if path == STDIN:
        return sys.stdin.buffer.read(), "standard input"
    try:
        return Path(path).read_bytes(), path
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: check the path") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _manifests(content: bytes, source: str) -> Iterator[Manifest]:
    for document, line in _documents(content, source):
        if document is None:
            continue
        yield from _objects(document, f"{source}:{line}")


def _objects(document: Any, source: str) -> Iterator[Manifest]:
    """The object itself, or those that a List holds."""
    if not isinstance(document, dict):
        raise BadInput(f"{source}: expected a Kubernetes object, found {_described(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadInput(f"{source}: this object has no `kind`: is it a Kubernetes manifest?")
    if not kind.endswith("List") or "items" not in document:
        yield Manifest(document, source)
        return
    items = document["items"]
    if items is None:
        return
    if not isinstance(items, list):
        raise BadInput(f"{source}: the items of a {kind} must be a list, found {_described(items)}")
    for position, item in enumerate(items):
        where = f"{source} items[{position}]"
        if isinstance(item, dict) and "kind" not in item and kind != "List":
            # The API itself leaves kind and apiVersion out of a typed list's items.
            version, singular = document.get("apiVersion"), kind.removesuffix("List")
            item = {"apiVersion": version, "kind": singular, **item}
        yield from _objects(item, where)


def _documents(content: bytes, source: str) -> Iterator[tuple[Any, int]]:
    """Each document with the line at which it begins."""
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            yield orjson.loads(content), 1
        except orjson.JSONDecodeError as error:
            yield from _json_stream(content, source, error)
        return
    yield from _yaml_stream(content, source)


def _json_stream(
    content: bytes, source: str, error: orjson.JSONDecodeError
) -> Iterator[tuple[Any, int]]:
    """Several JSON objects after one another; a flow mapping of YAML if it is no JSON at all."""
    documents: list[tuple[Any, int]] = []
    try:
        text = content.decode("utf-8")
        decoder, begin, line = json.JSONDecoder(), _after_blanks(text, 0), 1
        line += text.count("\n", 0, begin)
        while begin < len(text):
            document, end = decoder.raw_decode(text, begin)
            documents.append((document, line))
            end = _after_blanks(text, end)
            line += text.count("\n", begin, end)
            begin = end
    except (ValueError, RecursionError):
        try:
            documents = list(_yaml_stream(content, source))
        except BadInput:
            raise BadInput(f"{source}:{error.lineno}: not JSON: {error.msg}") from error
    yield from documents


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _yaml_stream(content: bytes, source: str) -> Iterator[tuple[Any, int]]:
    loader = _Loader(content)
    try:
        _check_depth(content, source)
        while loader.check_node() and (node := loader.get_node()) is not None:
            yield loader.construct_document(node), node.start_mark.line + 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be read"
        raise BadInput(f"{source}{line}: not YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: not YAML: {str(error).splitlines()[0]}") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{source}: not YAML that can be used: {error}") from error
    finally:
        loader.dispose()


def _check_depth(content: bytes, source: str) -> None:
    """Refuse nesting that libyaml's recursive composer would overrun its stack with.

    Looking at every event takes as long as reading, so it is left to files that could be so deep:
    indentation alone would need hundreds of megabytes.
    """
    openers = content.count(b"[") + content.count(b"{") + content.count(b"- -")
    if openers < _MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(content, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise BadInput(f"{source}:{line}: not YAML: nested more than {_MAX_DEPTH} deep")


class _Loader(yaml.CSafeLoader):
    """Reads scalars as kubectl does (no dates, no base 60) and refuses a key given twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        first: [(tag, _NUMBERS.get(tag, shape)) for tag, shape in shapes if tag not in _DROPPED]
        for first, shapes in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    names = {list: "a list", str: "a text", bool: "a truth value"}
    return names.get(type(value), "a number")
