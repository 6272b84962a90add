"""The files of a database: made, and told from those that were put in their place.

SQLite keeps writing into a file that was removed or replaced: the commit succeeds, and it is not
found in the file at the path.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from operator import eq
from typing import TYPE_CHECKING

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


class OpenFiles:
    """The files of an open database: itself, its write-ahead log, and that log's index."""

    def __init__(self, path: str) -> None:
        real = os.path.realpath(path)  # SQLite derives the names of the other two from it
        self._log = f"{real}-wal"
        self._paths = (path, self._log, f"{real}-shm")
        self._opened = self._present()

    def are_those_at_the_path(self) -> bool:
        """Whether what was opened is what is there; three calls of stat()."""
        return self._present() == self._opened

    def log_is_ours(self) -> bool:
        """Whether nobody else can have gone on in the log that is open, or have made it void."""
        _, log, index = map(eq, self._present(), self._opened)
        if log and not index:
            return False  # others may go on in it, by an index that we do not see
        if index and not log:
            return not _size(self._log)  # by the index that we share, another log may have begun
        return True

    def _present(self) -> list[tuple[int, int] | None]:
        return [inode(path) for path in self._paths]


def inode(path: str) -> tuple[int, int] | None:
    """Device and inode of what a path leads to; None when it leads nowhere."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def make_file(path: Path) -> None:
    """Make the file readable by its owner only; SQLite gives its -wal and -shm the same mode.

    A file that is there is not opened: closing it would drop the locks that another connection of
    this process holds on it (POSIX locks belong to the process), and the file would be damaged.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            if not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise ConfigError(
            f"store: {path} cannot be opened for writing ({error.strerror}); "
            "name a file in a directory that this user may write"
        ) from error
