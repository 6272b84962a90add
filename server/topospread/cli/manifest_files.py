"""Files of YAML or JSON → Kubernetes manifests with their positions.

They are read as kubectl prints them and people write them: several documents, List kinds,
directories, and standard input.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from topospread.cli.errors import BadInput, printable
from topospread.cli.file_hints import name_hint, packed_hint, template_hint
from topospread.cli.json_window import (
    DECODER,
    KeyGivenTwiceError,
    begins_list,
    json_items,
    json_problem,
)
from topospread.cli.yaml_reader import yaml_documents, yaml_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from _typeshed import SupportsRead

    from topospread.cli.json_window import Part

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
_YAML_ITEMS: Final = re.compile(rb"^items:[ \t]*\r?$", re.MULTILINE)
_BLANKS: Final = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file.

    Attributes:
        content: the object.
        source: file and line, for example ``pods.yaml:12``.
        is_listed: it is an item of a List, as kubectl prints several objects.
    """

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
    paths: Sequence[str], *, recursive: bool = False, whole: bool = False, lined: bool = False
) -> list[Manifest]:
    """Objects of all files, in order.

    Args:
        paths: files, directories (their .yaml, .yml and .json files, sorted), or ``-`` for stdin.
        recursive: look into subdirectories, too.
        whole: refuse what may be a part of something longer.
        lined: keep the line of each part of an object, where the file is YAML.

    Raises:
        BadInput: a file that is missing, or that is neither YAML nor JSON, with the line; or more
            than is read at once.
    """
    found: list[Manifest] = []
    budget = ReadBudget()
    for path in paths:
        for file in _files(path, recursive=recursive):
            content, source, regular = _content(file, budget)
            documents = list(_documents(content, source, lined=lined))
            if whole:
                _check_complete(content, source, documents, regular=regular)
            found.extend(_manifests(documents, source))
    return found


def stream(path: str, progress: Callable[[str, int, int], None]) -> Iterator[Manifest]:
    """Objects of a file or directory; of Lists one item after the other, as they are read.

    Args:
        path: as for :func:`read`.
        progress: called with a file's name, the bytes of it that were read, and its size, which is
            0 where nothing tells.

    Raises:
        BadInput: as for :func:`read`.
    """
    budget = ReadBudget()
    for name in _files(path, recursive=False):
        with _opened(name) as (file, source):
            begin = file.read(_BEGIN)
            size, weight = _size(file), _weight(begin)
            progress(source, 0, size)
            items_of = _reader_of_items(begin)
            if items_of is not None:
                budget.stream(max(size, len(begin)) * weight, source)
                read = 0

                def count(more: int, source: str = source, size: int = size) -> None:
                    nonlocal read
                    read += more
                    if not size:
                        budget.stream(more * weight, source)  # noqa: B023 # read in this round
                    progress(source, read, size)

                try:
                    yield from _streamed(items_of(_Counted(begin, file, count), source), source)
                    continue
                except BadInput:
                    if not size or not budget.has(size * weight):
                        raise
                # Flow YAML, or a kind behind the items; or the error is told as of other files.
                file.seek(0)
                begin = b""
            content = budget.read(file, source, begin)
            yield from _manifests(list(_documents(content, source)), source)


class _Counted:
    """A file, of which each block that is read is counted."""

    def __init__(self, begin: bytes, file: BinaryIO, count: Callable[[int], None]) -> None:
        self._begin, self._file, self._count = begin, file, count

    def read(self, size: int = -1) -> bytes:
        """Read a block; the first is what was read before."""
        block, self._begin = self._begin or self._file.read(size), b""
        self._count(len(block))
        return block


def _reader_of_items(begin: bytes) -> Callable[[SupportsRead[bytes], str], Iterator[Part]] | None:
    """What reads a file that begins so item by item; None where it begins like no List."""
    if not _looks_like_json(begin):
        return yaml_items if _YAML_ITEMS.search(begin) else None
    return json_items if begins_list(begin) else None


def _streamed(parts: Iterator[Part], source: str) -> Iterator[Manifest]:
    for value, line, listed in parts:
        if listed is None:
            yield from _objects(value, f"{source}:{line}")
        else:
            yield from _objects(_typed(value, listed), f"{source}:{line}", depth=1)


def _typed(item: Any, listed: Mapping[str, Any]) -> Any:
    """An item with its kind: the API itself leaves kind and apiVersion out of a typed list's."""
    kind = listed.get("kind")
    if not isinstance(item, dict) or "kind" in item or not isinstance(kind, str) or kind == "List":
        return item
    return {"apiVersion": listed.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def read_value(path: str) -> Any:
    """Read a file of one document that is no Kubernetes object.

    Raises:
        BadInput: as for :func:`read`, or more or less than one document.
    """
    content, source, _ = _content(path, ReadBudget())
    documents = list(_documents(content, source))
    if len(documents) != 1:
        raise BadInput(f"{source}: expected one document, found {len(documents)}")
    return documents[0][0]


def _files(path: str, *, recursive: bool) -> list[str]:
    try:
        if path == STDIN or not Path(path).is_dir():
            return [path]
        entries = _entries(path, recursive=recursive)
        files = sorted(
            str(entry) for entry in entries if entry.suffix in SUFFIXES and entry.is_file()
        )
    except OSError as error:
        raise BadInput(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    if not files:
        raise BadInput(f"{path}: this directory has no .yaml, .yml or .json file")
    return files


def _entries(path: str, *, recursive: bool) -> Iterator[Path]:
    """Files of a directory; one that cannot be read is an error, not an empty directory."""

    def fail(error: OSError) -> None:
        raise error

    for directory, _, names in os.walk(path, onerror=fail):
        yield from (Path(directory, name) for name in names)
        if not recursive:
            return


class ReadBudget:
    """Bytes that a command may still read; its files share them, because all are in memory."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._left_to_stream = MAX_STREAMED_BYTES

    def stream(self, count: int, source: str) -> None:
        """Note that so many bytes are read which are not in memory together.

        Raises:
            BadInput: they are too many.
        """
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
        """Read a file's content.

        Args:
            file: it.
            source: its name.
            begin: what was read of it already.

        Raises:
            BadInput: the file is compressed, or too long; it is not read where its size shows that.
        """
        begin = begin or file.read(_BEGIN)
        if hint := packed_hint(begin):
            raise BadInput(f"{source}: {hint}")
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


def _regular(file: BinaryIO) -> bool:
    """Whether a file is a regular one: no pipe or terminal."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


def _size(file: BinaryIO) -> int:
    """Size of a regular file; 0 of a pipe or terminal."""
    return os.fstat(file.fileno()).st_size if _regular(file) else 0


def _content(path: str, budget: ReadBudget) -> tuple[bytes, str, bool]:
    """Content of a file, its name for error messages, and whether it is a regular file."""
    with _opened(path) as (file, source):
        return budget.read(file, source), source, _regular(file)


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """A file to read, and its name for error messages.

    Raises:
        BadInput: it is missing or cannot be read.
    """
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


def _check_complete(
    content: bytes, source: str, documents: Sequence[tuple[Any, int]], *, regular: bool
) -> None:
    """Refuse content that may be a part of something longer.

    A pipe ends in the same way whether its writer is done or has died, so what comes through one
    must show its own end: a single value of JSON does, a List of kubectl does (`kind` comes after
    `items`), and so does YAML's mark for the end of a document.

    Raises:
        BadInput: the content is a page of a list, or may have been cut.
    """
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
    if _looks_like_json(content):
        return len(documents) == 1
    last = documents[-1]
    return len(documents) == 1 and isinstance(last, dict) and _has_kind_after_items(last)


def _has_kind_after_items(document: dict[str, Any]) -> bool:
    kind, names = document.get("kind"), list(document)
    listed = isinstance(kind, str) and kind.endswith("List") and "items" in names
    return listed and names[-1] != "items"


def _manifests(documents: Sequence[tuple[Any, int]], source: str) -> Iterator[Manifest]:
    for document, line in documents:
        if document is None:
            continue
        yield from _objects(document, f"{source}:{line}")


def _objects(document: Any, source: str, depth: int = 0) -> Iterator[Manifest]:
    """Manifests of a document: the object itself, or the items of a List."""
    if not isinstance(document, dict):
        raise BadInput(f"{source}: expected a Kubernetes object, found {_described(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        hint = name_hint(source.rpartition(":")[0]) or "is it a Kubernetes manifest?"
        raise BadInput(f"{source}: this object has no `kind`: {hint}")
    if not kind.endswith("List") or "items" not in document:
        yield Manifest(document, source, is_listed=depth > 0)
        return
    items = document["items"]
    if items is None:
        return
    if depth == MAX_NESTED_LISTS:
        raise BadInput(f"{source}: lists within lists, more than {MAX_NESTED_LISTS} deep")
    if not isinstance(items, list):
        raise BadInput(f"{source}: the items of a {kind} must be a list, found {_described(items)}")
    for position, item in enumerate(items):
        yield from _objects(_typed(item, document), f"{source} items[{position}]", depth + 1)


def _weight(begin: bytes) -> int:
    return 1 if _looks_like_json(begin) else YAML_WEIGHT


def _looks_like_json(content: bytes) -> bool:
    return content.lstrip()[:1] in (b"{", b"[")


def _documents(content: bytes, source: str, *, lined: bool = False) -> Iterator[tuple[Any, int]]:
    """Documents, each with the line at which it begins."""
    try:
        yield from _plain_documents(content, source, lined=lined)
    except BadInput as error:
        if hint := template_hint(content):
            raise BadInput(f"{error.message}: {hint}") from error
        raise


def _plain_documents(content: bytes, source: str, *, lined: bool) -> Iterator[tuple[Any, int]]:
    if not _looks_like_json(content):
        yield from yaml_documents(content, source, lined=lined)
        return
    read = 0
    try:
        for document in _json_documents(content, source):
            yield document
            read += 1
    except (ValueError, RecursionError) as error:
        yield from _flow_documents(content, source, read, error)


def _json_documents(content: bytes, source: str) -> Iterator[tuple[Any, int]]:
    """Values of JSON after one another, each with the line at which it begins."""
    text = content.decode("utf-8").rstrip()
    # The mark that ends YAML may end a row of JSON values, too.
    text = text.removesuffix("\n...")
    begin, line = _after_blanks(text, 0), 1
    line += text.count("\n", 0, begin)
    while begin < len(text):
        try:
            document, end = DECODER.raw_decode(text, begin)
        except KeyGivenTwiceError as error:
            raise BadInput(f"{source}:{line}: {error}") from error
        yield document, line
        end = _after_blanks(text, end)
        line += text.count("\n", begin, end)
        begin = end


def _flow_documents(
    content: bytes, source: str, read: int, error: Exception
) -> Iterator[tuple[Any, int]]:
    """Documents, without those that were read already, of YAML that looks like JSON."""
    at, column = "", ""
    if isinstance(error, json.JSONDecodeError):
        at, column = f":{error.lineno}", f" at column {error.colno}"
    not_json = BadInput(f"{source}{at}: not JSON: {json_problem(error)}{column}")
    if len(content) * YAML_WEIGHT > MAX_BYTES:
        raise not_json from error
    try:
        documents = list(yaml_documents(content, source))
    except BadInput:
        raise not_json from error
    yield from documents[read:]


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    names = {list: "a list", str: "a text", bool: "a truth value"}
    return names.get(type(value), "a number")
