"""The files of an open database, and whether they are still those at its path.

SQLite keeps writing into a file that was removed or replaced: the commit succeeds, and it is not
found in the file at the path. So the (device, inode) pairs of what was opened are compared with
those of the path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from topospread.errors import StoreUnavailable

Inode = tuple[int, int] | None
"""Device and inode; None when there is no such file, or it cannot be looked at."""

REMOVED: Final = (
    "the store's file was removed or moved away: put it back, "
    "or restart the server to begin with a new one"
)
PARTED: Final = (
    "the store's -wal or -shm file was removed or replaced while it was in use: restart the server"
)
LEFT_BEHIND: Final = (
    "the store's file was replaced, and the -wal and -shm files beside it are still those of the "
    "old one; retry"
)
EXCHANGED: Final = "the store's file was removed or replaced in the middle of this; retry"


@dataclass(frozen=True, slots=True)
class Files:
    """The files that were opened.

    Attributes:
        path: of the database, as it is configured; maybe a symbolic link.
        real: its path without links when it was opened, which SQLite derives the other two from.
        main, wal, shm: the database, its write-ahead log, and that log's index; None when closed.
    """

    path: str
    real: str
    main: Inode = None
    wal: Inode = None
    shm: Inode = None

    @classmethod
    def at(cls, path: str) -> Files:
        """The files at a path now."""
        real = os.path.realpath(path)
        return cls(path, real, inode(path), inode(f"{real}-wal"), inode(f"{real}-shm"))

    @property
    def complete(self) -> bool:
        """Whether all three are there."""
        return None not in (self.main, self.wal, self.shm)

    def same(self) -> bool:
        """Whether these are still the files at the path; three calls of stat()."""
        return (
            self.main is not None
            and inode(self.path) == self.main
            and inode(f"{self.real}-wal") == self.wal
            and inode(f"{self.real}-shm") == self.shm
        )

    def replaced(self) -> bool:
        """Whether another database is at the path.

        Raises:
            StoreUnavailable: none is there.
        """
        found = inode(self.path)
        if found is None:
            raise StoreUnavailable(REMOVED)
        return found != self.main

    def left_behind(self) -> bool:
        """Whether our log or its index lies beside another database, which would take it up."""
        return (
            self.complete
            and inode(self.real) not in (None, self.main)
            and (inode(f"{self.real}-wal") == self.wal or inode(f"{self.real}-shm") == self.shm)
        )

    def tidy(self) -> None:
        """Remove our log and its index from beside another database; their content is elsewhere."""
        for path, ours in ((f"{self.real}-wal", self.wal), (f"{self.real}-shm", self.shm)):
            if inode(path) == ours:
                os.unlink(path)

    def log_is_lost(self) -> bool:
        """Whether our log has no name any more, and no other one was written to.

        A connection that is opened just then makes an empty one.
        """
        log = f"{self.real}-wal"
        return (
            inode(self.path) == self.main
            and inode(log) != self.wal
            and size_of(log) == 0
            and inode(f"{self.real}-shm") in (None, self.shm)
        )


def size_of(path: str) -> int:
    """Bytes of a file; 0 without one."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def inode(path: str) -> Inode:
    """Device and inode of what a path leads to."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
