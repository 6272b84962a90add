"""The files that a command reads: which ones a folder has, and their text as UTF-8."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from topospread.cli import output
from topospread.cli.container_logs import LogFilter
from topospread.cli.errors import BadInput, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

STDIN: Final = "-"
SUFFIXES: Final = (".yaml", ".yml", ".json")

MAX_ENTRIES: Final = 1_000_000
"""Files and folders that are looked at in one folder and all below."""

_ENTRIES_OF_A_LOOK: Final = 10_000

_NAMES: Final = 5
"""Names of files that are left out that a message has."""

_BLOCK: Final = 1 << 20
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class InputFile:
    """The bytes of a file: UTF-8 without a mark, and without logs of `kubectl cluster-info dump`.

    `size` is that of a regular file, 0 of a pipe or terminal.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self._file, self._source = file, source
        try:
            status = os.fstat(file.fileno())
        except OSError:
            status = None
        self.is_regular = status is not None and stat.S_ISREG(status.st_mode)
        self.size = status.st_size if status and self.is_regular else 0
        self._begin()

    def _begin(self) -> None:
        self._logs = LogFilter(self._source)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._left = b""
        self._at_start, self._at_end = True, False

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all; less only at the end."""
        blocks = [self._left]
        count = len(self._left)
        while not self._at_end and (size < 0 or count < size):
            blocks.append(self._more(_BLOCK if size < 0 else size - count))
            count += len(blocks[-1])
        found = b"".join(blocks) if len(blocks) > 1 else blocks[0]
        if size < 0 or count <= size:
            self._left = b""
            return found
        self._left = found[size:]
        return found[:size]

    def rewind(self) -> None:
        """Go back to the beginning of a regular file."""
        self._file.seek(0)
        self._begin()

    def _more(self, size: int) -> bytes:
        block = self._file.read(size)
        self._at_end = not block
        if self._at_start:
            # A mark may come alone only where a file has nothing else.
            self._at_start = False
            if block.startswith(_WIDE_MARKS):
                self._decoder = codecs.getincrementaldecoder("utf-16")()
            block = block.removeprefix(codecs.BOM_UTF8)
        if self._decoder is not None:
            try:
                block = self._decoder.decode(block, self._at_end).encode()
            except UnicodeError as error:
                raise BadInput(
                    f"{self._source}: it begins as UTF-16 and does not go on so: save it as UTF-8"
                ) from error
        return self._logs.filter(block, at_end=self._at_end)


@contextmanager
def opened(path: str) -> Iterator[tuple[InputFile, str]]:
    """A file to read, and its name for error messages."""
    if path == STDIN:
        yield InputFile(sys.stdin.buffer, "standard input"), "standard input"
        return
    try:
        with Path(path).open("rb") as file:
            yield InputFile(file, path), path
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: check the path") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


@dataclass(slots=True)
class LeftOut:
    """What a folder has that is not read, by the names of files."""

    _counts: Counter[str] = field(default_factory=Counter)
    _more: int = 0

    def add(self, name: str) -> None:
        """Count a file, a hidden folder or a link to a folder."""
        if name in self._counts or len(self._counts) < _NAMES:
            self._counts[name] += 1
        else:
            self._more += 1

    @property
    def text(self) -> str:
        """How many there are, and some of their names; empty where there are none."""
        total = self._counts.total() + self._more
        if not total:
            return ""
        names = [
            printable(name) + (f" ({count} times)" if count > 1 else "")
            for name, count in self._counts.items()
        ]
        names += [f"{self._more} more"] if self._more else []
        shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        files = "file that is no manifest" if total == 1 else "files that are no manifests"
        return f"left out: {total} {files}: {shown}"


def files_of(path: str, *, recursive: bool, left_out: LeftOut | None = None) -> list[str]:
    """The file of a path, or of a directory the .yaml, .yml and .json files, sorted.

    With `recursive` also those below, but those of hidden folders and behind links to folders;
    `left_out` gets these, and all files that are no such ones.

    Raises:
        BadInput: something cannot be read, or there are no such files, or too many.
    """

    def fail(error: OSError) -> None:
        raise error  # a directory that cannot be read is no empty one

    files: list[str] = []
    entries = 0
    try:
        if path == STDIN or not Path(path).is_dir():
            return [path]
        for directory, folders, names in os.walk(path, onerror=fail):
            hidden = {each for each in folders if each.startswith(".")}
            folders[:] = sorted({*folders} - hidden)
            entries += len(folders) + len(hidden) + len(names)
            if entries > MAX_ENTRIES:
                raise BadInput(f"{path}: more than {MAX_ENTRIES:,} files and folders are below it")
            found = {name for name in names if _is_manifest(Path(directory, name))}
            files += [str(Path(directory, name)) for name in found]
            if left_out is not None:
                links = {each for each in folders if Path(directory, each).is_symlink()}
                unread = [f"{each}/" for each in sorted(hidden | links)]
                for name in [*sorted({*names} - found), *unread]:
                    left_out.add(name)
            if not recursive:
                break
    except OSError as error:
        raise BadInput(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    hint = "" if recursive or not _has_more(path) else "-R reads those of the folders below it"
    if not files:
        of_these = f"{path}: this directory has no .yaml, .yml or .json file"
        raise BadInput(f"{of_these}: {hint}" if hint else of_these)
    if hint:
        output.warn(f"{path}: {hint}, too")
    return sorted(files)


def _has_more(path: str) -> bool:
    """Whether folders below a directory have manifests, as far as a short look tells."""
    entries = 0
    for directory, folders, names in os.walk(path):
        folders[:] = [each for each in folders if not each.startswith(".")]
        if directory != path and any(_is_manifest(Path(directory, name)) for name in names):
            return True
        entries += len(folders) + len(names)
        if entries > _ENTRIES_OF_A_LOOK:
            break
    return False


def _is_manifest(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()
