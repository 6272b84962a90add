"""Files of YAML or JSON → Kubernetes manifests with their positions.

They are read as kubectl prints them and people write them: several documents, List kinds,
directories, and standard input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from topospread.cli import output
from topospread.cli.errors import BadInput, printable
from topospread.cli.input_files import STDIN, LeftOut, files_of, opened
from topospread.cli.value_readers import json_parts, yaml_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.cli.input_files import InputFile
    from topospread.cli.value_readers import Part


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
_ZIP: Final = b"PK\x03\x04"
_TAR: Final = b"ustar"
_TAR_AT: Final = 257
_ITEMS: Final = re.compile(rb'^items:[ \t]*\r?$|"items":\s*\[', re.MULTILINE)

_OF_TEMPLATES: Final = re.compile(
    rb"\{\{-?[ \t]*(?:[.$/]|(?:if|else|end|range|with|include|define|template|toYaml)\b)"
)
"""What a template of Helm has, and what kustomize or a workflow's own templates mostly lack."""

_HELM: Final = "give the output of `helm template`"
_KUSTOMIZE: Final = "give the output of `kustomize build`"


class NotManifest(BadInput):
    """A file of YAML or JSON that has no object of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file.

    Attributes:
        source: file and line, for example ``pods.yaml:12``.
        is_listed: it stands in a List.
        template: path of the pod template that is meant, of an object with several.
    """

    content: dict[str, Any]
    source: str
    is_listed: bool = False
    template: str = ""

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.content.get("kind") or "")

    @property
    def label(self) -> str:
        """Kind and name for a person, for example ``Pod prod/web-0``."""
        metadata = self.content.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        namespace = metadata.get("namespace")
        full_name = f"{namespace}/{name}" if namespace else name
        template = f" {self.template}" if self.template else ""
        return printable(f"{self.kind} {full_name}{template}".strip())

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
    kindless: Callable[[dict[str, Any]], bool] | None = None,
) -> list[Manifest]:
    """Objects of all files, in order; of directories their .yaml, .yml and .json files, sorted.

    `whole` refuses what may be a part of something longer; `lined` keeps the line of each part of
    an object, where the file is YAML; `lists` is as of `stream`; `kindless` says which documents
    without a kind are taken, as values of a chart are. With it JSON patches of others are left out,
    and files of a directory that hold no objects of Kubernetes, which is said on stderr.
    """
    found: list[Manifest] = []
    budget = _ReadBudget()
    for path in paths:
        left_out = LeftOut()
        files = files_of(path, recursive=recursive)
        begun = len(found)
        for name in files:
            with opened(name) as (file, source):
                content = budget.read(file, source)
            _check_begun(content, name)
            parts = _parts(content, source, lined=lined)
            if whole:
                _check_complete(content, source, parts, regular=file.is_regular)
            before = len(found)
            try:
                found.extend(_manifests(parts, source, lists, kindless))
            except NotManifest:
                if kindless is None or files == [path] or len(found) > before:
                    raise
                left_out.add(PurePath(name).name)
        if left_out.text and len(found) == begun:
            raise BadInput(f"{path}: no file in it is a manifest: {left_out.text}")
        if left_out.text:
            output.warn(f"{path}: {left_out.text}")
    return found


def stream(
    path: str, progress: Callable[[str, int, int], None] | None, lists: set[str] | None = None
) -> Iterator[Manifest]:
    """Objects of a file, or of a directory and all below it; of Lists one item after the other.

    `progress` is called with a file's name, the bytes of it that were read, and its size: 0 where
    nothing tells. `lists` gets the kinds that there are whole lists of, such as a
    PersistentVolumeList, be it empty. Files of a directory that hold no objects of Kubernetes, and
    hidden folders, are left out, which is said on stderr; without `progress`, as where all was read
    before, nothing is.
    """
    report = progress or _unsaid
    budget = _ReadBudget()
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
                    item = value if listed is None else _typed(value, listed)
                    at = f"{source}:{line}"
                    yield from _objects(item, at, listed is not None, lists)
                return
            except BadInput:
                if not size or not of_one_file.has(size * weight):
                    raise
            # Flow YAML, or a kind behind the items; or the error is told as of other files.
            file.rewind()
            begin = b""
        parsed = _parts(of_one_file.read(file, source, begin), source)
        yield from _manifests(parsed, source, lists)


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
    parts: Iterable[Part],
    source: str,
    lists: set[str] | None = None,
    kindless: Callable[[dict[str, Any]], bool] | None = None,
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
            items = []
            if kindless and isinstance(value, dict) and "kind" not in value and kindless(value):
                yield Manifest(value, f"{source}:{line}")
                continue
            if kindless and _is_json_patch(value):
                if kindless(patch := {"patch": value}):
                    yield Manifest(patch, f"{source}:{line}")
                continue
            yield from _objects(value, f"{source}:{line}", 0, lists)


def _is_json_patch(value: object) -> bool:
    """Whether it is a list of operations (RFC 6902), as files of kustomize are."""
    if not isinstance(value, list):
        return False
    return all(isinstance(each, dict) and "op" in each and "path" in each for each in value)


def _objects(document: Any, source: str, depth: int, lists: set[str] | None) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        text = (
            f"{source}: expected a Kubernetes object, found {_described(document)}: `kubectl get"
            " -o json` prints them as a List"
        )
        raise NotManifest(text) if depth == 0 else BadInput(text)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        if "apiVersion" in document and "items" in document:
            raise BadInput(
                f"{source}: this list has no `kind`, which kubectl writes behind its items: was it"
                " cut?"
            )
        hint = _name_hint(source.rpartition(":")[0]) or "is it a Kubernetes manifest?"
        text = f"{source}: this object has no `kind`: {hint}"
        raise NotManifest(text) if depth == 0 and "apiVersion" not in document else BadInput(text)
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
                "fewer objects at a time, or sync a whole cluster with `topospread sync`"
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
    if len(documents) != 1 or _looks_like_json(content):
        return len(documents) == 1
    (last,) = documents
    return isinstance(last, dict) and _is_list(last) and list(last)[-1] != "items"


def _weight(begin: bytes) -> int:
    return 1 if _looks_like_json(begin) else YAML_WEIGHT


def _looks_like_json(content: bytes) -> bool:
    return content.lstrip()[:1] in (b"{", b"[")
