"""Files of YAML or JSON → Kubernetes manifests with their positions.

They are read as kubectl prints them and people write them: several documents, List kinds,
directories, and standard input.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from topospread.cli.errors import BadInput, printable
from topospread.cli.value_readers import json_parts, yaml_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.cli.value_readers import Part


STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")

MAX_BYTES: Final = 512 << 20
"""Bytes of JSON that one command reads: some 50,000 pods, which take some gigabytes of memory."""

YAML_WEIGHT: Final = 8
"""Bytes of JSON that a byte of YAML counts as, because it takes about that much memory."""

MAX_STREAMED_BYTES: Final = 8 * MAX_BYTES
"""Bytes of JSON, in Lists, that one command reads item by item; those of YAML weigh more here, too,
because they take longer. What it makes of the items is in memory, and is a tenth of them or less.
"""

MAX_NESTED_LISTS: Final = 8
"""Depth of lists within lists; kubectl makes none."""

_BEGIN: Final = 64 << 10
_GZIP: Final = b"\x1f\x8b"
_ITEMS: Final = re.compile(rb'^items:[ \t]*\r?$|"items":\s*\[', re.MULTILINE)

_OF_TEMPLATES: Final = re.compile(
    rb"\{\{-?[ \t]*(?:[.$/]|(?:if|else|end|range|with|include|define|template|toYaml)\b)"
)
"""What a template of Helm has, and what kustomize or a workflow's own templates mostly lack."""

_HELM: Final = "give the output of `helm template`"
_KUSTOMIZE: Final = "give the output of `kustomize build`"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file; `source` is file and line, for example ``pods.yaml:12``."""

    content: dict[str, Any]
    source: str
    is_listed: bool = False

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.content["kind"])

    @property
    def label(self) -> str:
        """Kind and name for a person, for example ``Pod prod/web-0``."""
        metadata = self.content.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        namespace = metadata.get("namespace")
        full_name = f"{namespace}/{name}" if namespace else name
        return printable(f"{self.kind} {full_name}")

    @property
    def title(self) -> str:
        """Source and label, which begin error messages about the object."""
        return f"{self.source}: {self.label}"


def read(
    paths: Sequence[str],
    *,
    recursive: bool = False,
    whole: bool = False,
    lined: bool = False,
    lists: set[str] | None = None,
) -> list[Manifest]:
    """Objects of all files, in order; of directories their .yaml, .yml and .json files, sorted.

    `whole` refuses what may be a part of something longer; `lined` keeps the line of each part of
    an object, where the file is YAML; `lists` is as of `stream`.
    """
    found: list[Manifest] = []
    budget = _ReadBudget()
    for path in paths:
        for file in _files(path, recursive=recursive):
            with _opened(file) as (opened, source):
                content, regular = budget.read(opened, source), _is_regular(opened)
            parts = _parts(content, source, lined=lined)
            if whole:
                _check_complete(content, source, parts, regular=regular)
            found.extend(_manifests(parts, source, lists))
    return found


def stream(
    path: str, progress: Callable[[str, int, int], None], lists: set[str] | None = None
) -> Iterator[Manifest]:
    """Objects of a file or directory; of Lists one item after the other, as they are read.

    `progress` is called with a file's name, the bytes of it that were read, and its size: 0 where
    nothing tells. `lists` gets the kinds that there are whole lists of, such as a
    PersistentVolumeList, be it empty.
    """
    budget = _ReadBudget()
    for name in _files(path, recursive=False):
        with _opened(name) as (file, source):
            begin = file.read(_BEGIN)
            size, weight = _size(file), _weight(begin)
            progress(source, 0, size)
            if _ITEMS.search(begin):
                budget.stream(max(size, len(begin)) * weight, source)
                read = 0

                def count(more: int, source: str = source, size: int = size) -> None:
                    nonlocal read
                    read += more
                    if not size:
                        budget.stream(more * weight, source)  # noqa: B023 # read in this round
                    progress(source, read, size)

                parts = json_parts if weight == 1 else yaml_parts
                try:
                    for value, line, listed in parts(_CountedRead(begin, file, count), source):
                        item = value if listed is None else _typed(value, listed)
                        at = f"{source}:{line}"
                        yield from _objects(item, at, listed is not None, lists)
                    continue
                except BadInput:
                    if not size or not budget.has(size * weight):
                        raise
                # Flow YAML, or a kind behind the items; or the error is told as of other files.
                file.seek(0)
                begin = b""
            parsed = _parts(budget.read(file, source, begin), source)
            yield from _manifests(parsed, source, lists)


class _CountedRead:
    """A file, of which each block that is read is counted."""

    def __init__(self, begin: bytes, file: BinaryIO, count: Callable[[int], None]) -> None:
        self._begin, self._file, self._count = begin, file, count

    def read(self, size: int = -1) -> bytes:
        """Read a block; the first is what was read before."""
        block, self._begin = self._begin or self._file.read(size), b""
        self._count(len(block))
        return block


def read_value(path: str) -> Any:
    """Read a file of one document that is no Kubernetes object."""
    with _opened(path) as (file, source):
        parts = _parts(_ReadBudget().read(file, source), source)
    documents = [value for value, _, listed in parts if listed is None]
    if len(documents) != 1:
        raise BadInput(f"{source}: expected one document, found {len(documents)}")
    return documents[0]


def _parts(content: bytes, source: str, *, lined: bool = False) -> list[Part]:
    def of_yaml() -> list[Part]:
        return list(yaml_parts(BytesIO(content), source, lined=lined))

    try:
        if not _looks_like_json(content):
            return of_yaml()
        try:
            return list(json_parts(BytesIO(content), source, at_once=True))
        except BadInput as error:
            # YAML may look like JSON; what is neither is told as of JSON.
            if len(content) * YAML_WEIGHT > MAX_BYTES:
                raise
            try:
                return of_yaml()
            except BadInput:
                raise error from None
    except BadInput as error:
        if _OF_TEMPLATES.search(content):
            hint = f"it looks like a template of Helm: {_HELM}"
            raise BadInput(f"{error.message}: {hint}") from error
        raise


def _manifests(
    parts: Iterable[Part], source: str, lists: set[str] | None = None
) -> Iterator[Manifest]:
    items: list[tuple[Any, int]] = []
    for value, line, listed in parts:
        if listed is not None:
            items.append((value, line))
        elif value is not None:
            if items and not _is_list(value):
                value["items"] = [item for item, _ in items]
                items = []
            for item, at in items:
                yield from _objects(_typed(item, value), f"{source}:{at}", 1, lists)
            yield from _objects(value, f"{source}:{line}", 0, lists)
            items = []


def _objects(document: Any, source: str, depth: int, lists: set[str] | None) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise BadInput(f"{source}: expected a Kubernetes object, found {_described(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        hint = _name_hint(source.rpartition(":")[0]) or "is it a Kubernetes manifest?"
        raise BadInput(f"{source}: this object has no `kind`: {hint}")
    if not _is_list(document):
        yield Manifest(document, source, is_listed=depth > 0)
        return
    items = document["items"]
    metadata = document.get("metadata")
    is_page = isinstance(metadata, dict) and metadata.get("continue")
    if lists is not None and not is_page and kind != "List":
        lists.add(kind.removesuffix("List"))
    if items is None:
        return
    if depth == MAX_NESTED_LISTS:
        raise BadInput(f"{source}: lists within lists, more than {MAX_NESTED_LISTS} deep")
    if not isinstance(items, list):
        raise BadInput(f"{source}: the items of a {kind} must be a list, found {_described(items)}")
    for position, item in enumerate(items):
        at = f"{source} items[{position}]"
        yield from _objects(_typed(item, document), at, depth + 1, lists)


def _is_list(document: Mapping[str, Any]) -> bool:
    kind = document.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and "items" in document


def _typed(item: Any, listed: Mapping[str, Any]) -> Any:
    """An item with its kind: the API itself leaves kind and apiVersion out of a typed list's."""
    kind = listed.get("kind")
    if not isinstance(item, dict) or "kind" in item or not isinstance(kind, str) or kind == "List":
        return item
    return {"apiVersion": listed.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    names = {list: "a list", str: "a text", bool: "a truth value"}
    return names.get(type(value), "a number")


def _name_hint(path: str) -> str:
    """What to do with a file without a Kubernetes object, by its name; empty where none tells."""
    file = PurePath(path)
    is_yaml = file.suffix in (".yaml", ".yml")
    if is_yaml and (file.stem == "Chart" or file.stem.startswith("values")):
        return f"Helm reads such a file: {_HELM}"
    if (is_yaml or not file.suffix) and file.stem in ("kustomization", "Kustomization"):
        return f"kustomize reads such a file: {_KUSTOMIZE}"
    return ""


def _files(path: str, *, recursive: bool) -> list[str]:
    def fail(error: OSError) -> None:
        raise error  # a directory that cannot be read is no empty one

    try:
        if path == STDIN or not Path(path).is_dir():
            return [path]
        files: list[str] = []
        for directory, _, names in os.walk(path, onerror=fail):
            entries = [Path(directory, name) for name in names]
            files += [str(each) for each in entries if each.suffix in SUFFIXES and each.is_file()]
            if not recursive:
                break
    except OSError as error:
        raise BadInput(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    if not files:
        raise BadInput(f"{path}: this directory has no .yaml, .yml or .json file")
    return sorted(files)


class _ReadBudget:
    """Bytes that a command may still read; its files share them, because all are in memory."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._left_to_stream = MAX_STREAMED_BYTES

    def stream(self, count: int, source: str) -> None:
        """Note that so many bytes are read which are not in memory together."""
        self._left_to_stream -= count
        if self._left_to_stream < 0:
            raise BadInput(
                f"{source}: too much to read at once: at most {MAX_STREAMED_BYTES >> 20} MiB of"
                f" JSON, or {MAX_STREAMED_BYTES // YAML_WEIGHT >> 20} MiB of YAML, in all files"
                " together: a cluster of this size is for a server (`topospread sync`)"
            )

    def has(self, count: int) -> bool:
        """Whether so many bytes may still be read at once."""
        return count <= self._left

    def read(self, file: BinaryIO, source: str, begin: bytes = b"") -> bytes:
        """Read a file of which `begin` was read already; none of it where its size is too much."""
        begin = begin or file.read(_BEGIN)
        if begin.startswith(_GZIP):
            raise BadInput(f"{source}: compressed with gzip: unpack it first, with `gunzip`")
        weight = _weight(begin)
        most = self._left // weight
        size = _size(file)
        content = begin if size > most else begin + file.read(max(0, most + 1 - len(begin)))
        if max(size, len(content)) > most:
            raise BadInput(
                f"{source}: too much to read at once: at most {MAX_BYTES >> 20} MiB of JSON, or "
                f"{(MAX_BYTES // YAML_WEIGHT) >> 20} MiB of YAML, in all files together: give "
                "fewer objects at a time, or sync a whole cluster with `topospread sync`"
            )
        self._left -= len(content) * weight
        return content


def _is_regular(file: BinaryIO) -> bool:
    """Whether a file is no pipe or terminal."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


def _size(file: BinaryIO) -> int:
    """Size of a regular file; 0 of a pipe or terminal."""
    return os.fstat(file.fileno()).st_size if _is_regular(file) else 0


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """A file to read, and its name for error messages."""
    if path == STDIN:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        with Path(path).open("rb") as file:
            yield file, path
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: check the path") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _check_complete(content: bytes, source: str, parts: Sequence[Part], *, regular: bool) -> None:
    """Refuse content that may be a part of something longer.

    A pipe ends in the same way whether its writer is done or has died, so what comes through one
    must show its own end: a single value of JSON does, a List of kubectl does (`kind` comes after
    `items`), and so does YAML's mark for the end of a document.
    """
    documents = [(value, line) for value, line, listed in parts if listed is None]
    for document, line in documents:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if isinstance(metadata, dict) and metadata.get("continue"):
            raise BadInput(
                f"{source}:{line}: this is one page of a longer list (metadata.continue), and"
                " --replace would remove the rest: give all of it"
            )
    if not documents or _has_end(content, [document for document, _ in documents]):
        return
    if regular and content.endswith(b"\n"):
        return
    raise BadInput(
        f"{source}: --replace removes what the input lacks, and this may have been cut: "
        + (
            "its last line does not end"
            if regular
            else "give one JSON value or List as kubectl prints it, or a last line of `...` that is"
            " only written when all is there: (command && echo ...) | topospread apply --replace"
            " -f -"
        )
    )


def _has_end(content: bytes, documents: Sequence[Any]) -> bool:
    if content.rstrip().endswith((b"\n...", b"\r...")):
        return True
    if len(documents) != 1 or _looks_like_json(content):
        return len(documents) == 1
    (last,) = documents
    return isinstance(last, dict) and _is_list(last) and list(last)[-1] != "items"


def _weight(begin: bytes) -> int:
    return 1 if _looks_like_json(begin) else YAML_WEIGHT


def _looks_like_json(content: bytes) -> bool:
    return content.lstrip()[:1] in (b"{", b"[")
