"""Files, directories and standard input → the Kubernetes manifests in them.

How much a command reads is bounded; what has no objects of Kubernetes is refused, or left out of a
directory, which is said.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from topospread.cli import output
from topospread.cli.errors import BadInput
from topospread.cli.input_files import STDIN, LeftOut, files_of, opened
from topospread.cli.json_values import json_parts
from topospread.cli.manifest_documents import (
    MAX_BYTES,
    YAML_WEIGHT,
    NotManifest,
    is_list,
    looks_like_json,
    manifests_of,
    objects_of,
    parts_of,
    typed_item,
)
from topospread.cli.yaml_values import yaml_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.cli.input_files import InputFile
    from topospread.cli.json_values import Part
    from topospread.cli.manifest_documents import Manifest

MAX_STREAMED_BYTES: Final = 8 * MAX_BYTES
"""Bytes of JSON, in Lists, that one command reads item by item; those of YAML weigh more here, too,
because they take longer. What it makes of the items is in memory, and is a tenth of them or less.
"""

_BEGIN: Final = 64 << 10
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_TAR: Final = b"ustar"
_TAR_AT: Final = 257
_ITEMS: Final = re.compile(rb'^items:[ \t]*\r?$|"items":\s*\[', re.MULTILINE)


def read(
    paths: Sequence[str],
    *,
    recursive: bool = False,
    whole: bool = False,
    lined: bool = False,
    lists: set[str] | None = None,
    kindless: Callable[[dict[str, Any]], bool] | None = None,
    broken: list[str] | None = None,
) -> list[Manifest]:
    """Objects of all files, in order; of directories their .yaml, .yml and .json files, sorted.

    `whole` refuses what may be a part of something longer; `lined` keeps the line of each part of
    an object, where the file is YAML; `lists` is as of `stream`; `kindless` says which documents
    without a kind are taken, as values of a chart are. With it JSON patches of others are left out,
    and files of a directory that hold no objects of Kubernetes, as templates of a chart, which is
    said on stderr. `broken` gets what is wrong with files that cannot be read, where others can.
    """
    found: list[Manifest] = []
    wrong: list[str] = []
    budget = _ReadBudget()

    def fail(error: BadInput) -> None:
        if broken is None:
            raise error
        wrong.append(error.message)

    for path in paths:
        left_out = LeftOut()
        begun = len(found) + len(wrong)
        try:
            files = files_of(path, recursive=recursive)
        except BadInput as error:
            fail(error)
            continue
        for name in files:
            before, content = len(found), None
            try:
                with opened(name) as (file, source):
                    content = budget.read(file, source)
                _check_begun(content, name)
                parts = parts_of(content, source, lined=lined)
                if whole:
                    _check_complete(content, source, parts, regular=file.is_regular)
                found.extend(manifests_of(parts, source, lists, kindless))
            except BadInput as error:
                is_asked_for = kindless is None or files == [path]
                if is_asked_for or len(found) > before or _is_broken(content, error):
                    fail(error)
                else:
                    left_out.add(PurePath(name).name)
        if left_out.text and len(found) + len(wrong) == begun:
            fail(BadInput(f"{path}: no file in it is a manifest: {left_out.text}"))
        elif left_out.text:
            output.warn(f"{path}: {left_out.text}")
    if wrong and not found:
        raise BadInput(*wrong)
    if broken is not None:
        broken += wrong
    return found


def stream(
    paths: Sequence[str],
    progress: Callable[[str, int, int], None] | None,
    lists: set[str] | None = None,
) -> Iterator[Manifest]:
    """Objects of files, and of directories and all below; of Lists one item after the other.

    `progress` is called with a file's name, the bytes of it that were read, and its size: 0 where
    nothing tells. `lists` gets the kinds that there are whole lists of, such as a
    PersistentVolumeList, be it empty. Files of a directory that hold no objects of Kubernetes, and
    hidden folders, are left out, which is said on stderr; without `progress`, as where all was read
    before, nothing is.
    """
    budget = _ReadBudget()
    for path in paths:
        yield from _streamed_path(path, budget, progress, lists)


def _streamed_path(
    path: str,
    budget: _ReadBudget,
    progress: Callable[[str, int, int], None] | None,
    lists: set[str] | None,
) -> Iterator[Manifest]:
    report = progress or _unsaid
    left_out = LeftOut()
    files = files_of(path, recursive=True, left_out=left_out)
    if files == [path]:
        yield from _streamed(path, budget, report, lists)
        return
    for name in files:
        is_empty = True
        try:
            for manifest in _streamed(name, budget, report, lists):
                is_empty = False
                yield manifest
        except BadInput as error:
            if not is_empty or _may_have_objects(name, error):
                raise
            left_out.add(PurePath(name).name)
        else:
            if is_empty and _is_blank(name):
                left_out.add(PurePath(name).name)
    if left_out.text and progress is not None:
        output.warn(f"{path}: {left_out.text}")


def _is_broken(content: bytes | None, error: BadInput) -> bool:
    """Whether a file that cannot be read is a manifest, and no template nor something else.

    Without content nothing is known of it.
    """
    if content is None:
        return True
    is_manifest = b"apiVersion" in content and b"{{" not in content
    return is_manifest and not isinstance(error, NotManifest)


def _is_blank(path: str) -> bool:
    """Whether a file has nothing in it, as one has that was not written to its end."""
    with opened(path) as (file, _):
        return not file.read(_BEGIN).strip()


def _unsaid(source: str, read: int, size: int) -> None:
    del source, read, size


def _may_have_objects(path: str, error: BadInput) -> bool:
    """Whether a file that cannot be read is a broken manifest, and no file of something else."""
    with opened(path) as (file, _):
        begin = file.read(_BEGIN)
    return not isinstance(error, NotManifest) and (b"apiVersion" in begin or begin[:2] == _GZIP)


def _streamed(
    name: str,
    budget: _ReadBudget,
    progress: Callable[[str, int, int], None],
    lists: set[str] | None,
) -> Iterator[Manifest]:
    with opened(name) as (file, source):
        begin = file.read(_BEGIN)
        _check_begun(begin, name)
        size, weight = file.size, _weight(begin)
        progress(source, 0, size)
        budget.stream(max(size, len(begin)) * weight, source)
        of_one_file = _ReadBudget()
        if _ITEMS.search(begin):
            read = 0

            def count(more: int) -> None:
                nonlocal read
                read += more
                if not size:
                    budget.stream(more * weight, source)
                progress(source, read, size)

            parts = json_parts if weight == 1 else yaml_parts
            try:
                for value, line, listed in parts(_CountedRead(begin, file, count), source):
                    item = value if listed is None else typed_item(value, listed)
                    at = f"{source}:{line}"
                    yield from objects_of(item, at, listed is not None, lists)
                return
            except BadInput:
                if not size or not of_one_file.has(size * weight):
                    raise
            # Flow YAML, or a kind behind the items; or the error is told as of other files.
            file.rewind()
            begin = b""
        parsed = parts_of(of_one_file.read(file, source, begin), source)
        yield from manifests_of(parsed, source, lists)


def _check_begun(begin: bytes, path: str) -> None:
    """Refuse a pipe that nothing came through: a check of it would pass."""
    if path == STDIN and not begin.strip():
        raise BadInput("standard input is empty: did the command before the pipe fail?")


def _refuse_packed(begin: bytes, source: str) -> None:
    if begin.startswith(_GZIP):
        name = PurePath(source).name
        tool = "tar -xzf" if name.endswith((".tar.gz", ".tgz")) else "gunzip"
        raise BadInput(f"{source}: compressed with gzip: unpack it first, with `{tool}`")
    if begin.startswith(_ZIP) or begin[_TAR_AT:].startswith(_TAR):
        raise BadInput(f"{source}: an archive: unpack it first, and name its folder")


class _CountedRead:
    """A file, of which each block that is read is counted."""

    def __init__(self, begin: bytes, file: InputFile, count: Callable[[int], None]) -> None:
        self._begin, self._file, self._count = begin, file, count

    def read(self, size: int = -1) -> bytes:
        """Read a block; the first is what was read before."""
        block, self._begin = self._begin or self._file.read(size), b""
        self._count(len(block))
        return block


def read_value(path: str) -> Any:
    """Read a file of one document that is no Kubernetes object."""
    with opened(path) as (file, source):
        parts = parts_of(_ReadBudget().read(file, source), source)
    documents = [value for value, _, listed in parts if listed is None]
    if len(documents) != 1:
        raise BadInput(f"{source}: expected one document, found {len(documents)}")
    return documents[0]


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
                " together: a cluster of this size is for a server (`topospread serve --sync`)"
            )

    def has(self, count: int) -> bool:
        """Whether so many bytes may still be read at once."""
        return count <= self._left

    def read(self, file: InputFile, source: str, begin: bytes = b"") -> bytes:
        """Read a file of which `begin` was read already; none of it where its size is too much."""
        begin = begin or file.read(_BEGIN)
        _refuse_packed(begin, source)
        weight = _weight(begin)
        most = self._left // weight
        size = file.size
        content = begin if size > most else begin + file.read(max(0, most + 1 - len(begin)))
        if max(size, len(content)) > most:
            raise BadInput(
                f"{source}: too much to read at once: at most {MAX_BYTES >> 20} MiB of JSON, or "
                f"{(MAX_BYTES // YAML_WEIGHT) >> 20} MiB of YAML, in all files together: give "
                "fewer objects at a time, or sync a whole cluster with `topospread serve --sync`"
            )
        self._left -= len(content) * weight
        return content


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
    if len(documents) != 1 or looks_like_json(content):
        return len(documents) == 1
    (last,) = documents
    return isinstance(last, dict) and is_list(last) and list(last)[-1] != "items"


def _weight(begin: bytes) -> int:
    return 1 if looks_like_json(begin) else YAML_WEIGHT
