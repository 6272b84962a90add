"""Connections to one database: one that writes, and some that read; and the files behind them.

Writers of one process take turns on a lock of ours, and those of several processes ask every few
milliseconds, because SQLite's own waiting sleeps for up to 100 ms between tries. A database in
memory belongs to one connection, which everybody shares under that lock.

SQLite keeps writing into a file that was removed or replaced: the commit succeeds, and it is not
found in the file at the path. So what is open is compared with what is at the path before each
call, and after each commit. Once they differ nothing is read or written until the server is started
again.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from operator import eq
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.sqlite.tables import check_format, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.urls import SqliteURL


_PRAGMAS: Final = (
    # Bounds what a burst leaves behind; the log is checkpointed every 1,000 pages.
    f"PRAGMA journal_size_limit = {64 * 1024 * 1024}",
    # In KiB. There may be as many connections as there are calls; the system caches files as well.
    "PRAGMA cache_size = -2000",
    "PRAGMA temp_store = MEMORY",
)

_WRITER_CACHE: Final = "PRAGMA cache_size = -16000"

_MAX_IDLE: Final = 8
"""Connections for reading that are kept for the next ones: each keeps its cache."""

_LOCK_PAUSE: Final = (0.0005, 0.003)
"""Seconds between tries, at random so that processes do not keep step."""

_EXCHANGED: Final = (
    "the store's file, or its -wal or -shm file, was removed or replaced while it was in use: "
    "nothing is read or written; put the right file there and restart the server"
)

# By primary result code: the low byte of the extended one.
_TEXTS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds the store's write lock; retry",
    sqlite3.SQLITE_LOCKED: "the store is locked; retry",
    sqlite3.SQLITE_FULL: "the disk of the store is full; make room",
    sqlite3.SQLITE_READONLY: "the store's file is read-only; check its owner, mode and mount",
    sqlite3.SQLITE_CANTOPEN: "the store's file cannot be opened; check its path, owner and mode",
    sqlite3.SQLITE_IOERR: "the store's disk refused to read or write; check its space and health",
    sqlite3.SQLITE_CORRUPT: "the store's file is damaged; copy one back, or start with a new one",
    sqlite3.SQLITE_TOOBIG: "SQLite refused a value as too big",
}


class Connections:
    """The connections of one store object; safe for use from several threads, not across a fork."""

    def __init__(self, url: SqliteURL, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._turn = Lock()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = Lock()
        self._exchanged = False
        self.closed = False
        if url.path:
            make_file(Path(url.path))
        before = inode(url.path)
        with as_unavailable():
            self._writer = self._connect("rwc")
            with _closed_on_error(self._writer):
                self._writer.execute(_WRITER_CACHE)
                if url.path:
                    # Of processes that open a new file at once, one changes its mode.
                    deadline = time.monotonic() + timeout
                    _run_unlocked(self._writer, "PRAGMA journal_mode = WAL", deadline)
                    self._writer.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")
                prepare(self._writer)
                # Only now all three are there.
                self._files = OpenFiles(url.path) if url.path else None
                if before not in (None, inode(url.path)):
                    raise StoreUnavailable(_EXCHANGED)

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end, rolled back on any error."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        with self._my_turn(deadline), as_unavailable():
            self._check_in_turn()
            connection = self._writer
            _run_unlocked(connection, "BEGIN IMMEDIATE", deadline)
            try:
                check_format(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            # A commit into a file without a name is lost, so it is not acknowledged.
            self._check_in_turn()

    @contextmanager
    def reading(self, timeout: float | None = None) -> Iterator[sqlite3.Connection]:
        """A connection outside any transaction; ``timeout`` bounds the wait for a shared one."""
        if self.in_memory:
            deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
            with self._my_turn(deadline), as_unavailable():
                yield self._writer
            return
        self.check_files()
        with as_unavailable():
            connection = self._reader()
            with _closed_on_error(connection):
                check_format(connection)
                yield connection
            self._give_back(connection)

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: keep it short, or the log cannot be checkpointed."""
        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def watch(self) -> Iterator[Callable[[], int]]:
        """A number that changes whenever another connection has written to the file."""
        self.check_files()
        with as_unavailable(), closing(self._reader()) as connection:

            def version() -> int:
                self.check_files()
                return int(connection.execute("PRAGMA data_version").fetchone()[0])

            yield version

    def check_files(self) -> None:
        """Refuse to go on when what is open is not what is at the path.

        Raises:
            StoreUnavailable: it is not.
        """
        if not self._are_in_place():
            with self._my_turn(time.monotonic() + self._timeout):
                self._check_in_turn()

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        with self._readers_lock:
            self.closed = True
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        with self._turn:
            self._writer.close()

    @contextmanager
    def _my_turn(self, deadline: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable("other writes of this process hold the store; retry")
        try:
            if self.closed:
                raise StoreUnavailable("the store is closed")
            yield
        finally:
            self._turn.release()

    # ------------------------------ the files

    @property
    def in_memory(self) -> bool:
        """Whether all threads share one connection."""
        return self._files is None

    def _are_in_place(self) -> bool:
        """Whether the files are those that were opened, and always were."""
        if self._files is not None and not self._files.are_those_at_the_path():
            self._exchanged = True
        return not self._exchanged

    def _check_in_turn(self) -> None:
        """As check_files(), in one's turn.

        What was acknowledged is in the database when it raises, even if its log has lost its name.
        """
        if self._are_in_place():
            return
        if self._files is not None and self._files.log_is_ours():
            # It also leaves nothing beside another file that SQLite would take for that one's log.
            with suppress(sqlite3.Error):
                # Others of this file may be about to do the same, or to commit for the last time.
                self._writer.execute(f"PRAGMA busy_timeout = {round(self._timeout * 1000)}")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        raise StoreUnavailable(_EXCHANGED)

    # ------------------------------ connections

    def _reader(self) -> sqlite3.Connection:
        """One for reading alone, that has the files open that the others have."""
        if self.closed:
            raise StoreUnavailable("the store is closed")
        with self._readers_lock:
            if self._readers:
                return self._readers.pop()
        opened = self._connect()
        with _closed_on_error(opened):
            check_format(opened)  # opens the log, too
            self.check_files()
        return opened

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._readers_lock:
            if self.closed or len(self._readers) >= _MAX_IDLE:
                connection.close()
            else:
                self._readers.append(connection)

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """A connection. Only the first makes a file: one that is gone must not come back empty."""
        path = quote(os.fsencode(self._url.path))
        connection = sqlite3.connect(
            f"file:{path}?mode={mode}" if path else ":memory:",
            uri=bool(path),
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        with _closed_on_error(connection):
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            level = "FULL" if self._url.full_sync else "NORMAL"
            connection.execute(f"PRAGMA synchronous = {level}")
        return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection whose preparation fails: its files stay open otherwise."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _run_unlocked(connection: sqlite3.Connection, statement: str, deadline: float) -> None:
    """Run a statement as soon as no other process holds the lock, asking every few milliseconds."""
    connection.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            pause = random.uniform(*_LOCK_PAUSE)
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() + pause >= deadline:
                raise
            time.sleep(pause)
        else:
            return


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Raise StoreUnavailable for whatever SQLite raises, ConfigError for a file of another kind."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise StoreUnavailable("the store is closed") from error
    except UnicodeDecodeError as error:
        # The driver's own, of texts and even of error texts in a damaged file.
        raise StoreUnavailable(_TEXTS[sqlite3.SQLITE_CORRUPT]) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise ConfigError(
                "store: the file is not a SQLite database; name another path, or restore a backup"
            ) from error
        raise StoreUnavailable(_TEXTS.get(code, "SQLite refused to answer; see the log")) from error


# ------------------------------ the files


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
