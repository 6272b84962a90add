"""Connections to one database: one that writes, and some that read.

Writers of one process take turns on a lock of ours, and those of several processes ask every few
milliseconds, because SQLite's own waiting sleeps for up to 100 ms between tries. A database in
memory belongs to one connection, which everybody shares under that lock.

When another file is at the path, all connections are opened anew, on that one; what it holds is
judged by callers that name an identity or a revision, as with a Redis that was exchanged.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.sqlite import schema
from topospread.store.sqlite.files import EXCHANGED, LEFT_BEHIND, PARTED, Files, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.urls import SqliteURL


LOG: Final = logging.getLogger(__name__)

_PRAGMAS: Final = (
    # Bounds what a burst leaves behind; the log is checkpointed every 1,000 pages.
    f"PRAGMA journal_size_limit = {64 * 1024 * 1024}",
    # In KiB. There may be as many connections as there are calls; the system caches files as well.
    "PRAGMA cache_size = -2000",
    "PRAGMA temp_store = MEMORY",
)

_WRITER_CACHE: Final = "PRAGMA cache_size = -16000"

LARGE_LOG: Final = 128 * 1024 * 1024
"""Bytes of the -wal file that only something which reads for long can make it have: without one, it
is checkpointed, begun anew and cut long before.
"""

LOOK: Final = 256
"""Commits between two looks at the size of the -wal file."""

_MAX_IDLE: Final = 8
"""Connections for reading that are kept for the next ones: each keeps its cache."""

_LOCK_PAUSE: Final = (0.0005, 0.003)
"""Seconds between tries, at random so that processes do not keep step."""

_OPENINGS: Final = 3
"""Times that a file may be replaced while it is opened, before that is refused."""

# By primary result code: the low byte of the extended one.
_TEXTS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds the store's write lock; retry",
    sqlite3.SQLITE_LOCKED: "the store is locked; retry",
    sqlite3.SQLITE_FULL: "the disk of the store is full; make room",
    sqlite3.SQLITE_READONLY: "the store's file is read-only; check its owner, mode and mount",
    sqlite3.SQLITE_CANTOPEN: "the store's file cannot be opened; check its path, owner and mode",
    sqlite3.SQLITE_IOERR: "the store's disk refused to read or write; check its space and health",
    sqlite3.SQLITE_CORRUPT: "the store's file is damaged; restore it or start with a new one",
    sqlite3.SQLITE_TOOBIG: "SQLite refused a value as too big",
}


class Connection(sqlite3.Connection):
    """A connection that knows which file it has open.

    Attributes:
        opening: a number that is another one for each file.
    """

    opening = 0


class Connections:
    """The connections of one store object; safe for use from several threads, not across a fork."""

    def __init__(self, url: SqliteURL, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._turn = Lock()
        self._readers: list[Connection] = []
        self._readers_lock = Lock()
        self._opening = 0
        self._commits = 0
        self._log_is_large = False
        self.closed = False
        if url.path:
            _make_file(Path(url.path))
        with as_unavailable():
            self._writer, self._files = self._open("rwc")

    @property
    def in_memory(self) -> bool:
        """Whether all threads share one connection."""
        return not self._url.path

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[Connection]:
        """A write transaction: committed at the end, rolled back on any error."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        with self._my_turn(deadline), as_unavailable():
            self._settle()
            connection = self._writer
            _begin(connection, deadline)
            try:
                schema.check_format(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            # A commit into a file without a name is lost, so it is not acknowledged.
            if not self._same():
                raise StoreUnavailable(EXCHANGED)
            self._commits += 1
            if not self._commits % LOOK:
                self._watch_log()

    @contextmanager
    def reading(self, timeout: float | None = None) -> Iterator[Connection]:
        """A connection outside any transaction; ``timeout`` bounds the wait for a shared one."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        if self.in_memory:
            with self._my_turn(deadline), as_unavailable():
                yield self._writer
            return
        with as_unavailable():
            connection = self._reader(deadline)
            try:
                schema.check_format(connection)
                yield connection
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A short read transaction: everything read in it is of one moment."""
        with self.reading() as connection, moment(connection):
            yield connection

    @contextmanager
    def watch(self) -> Iterator[Callable[[], int]]:
        """A number that changes whenever another connection has written to the file.

        It is negative from then on that another file was found at the path, or none.
        """
        if self.in_memory:
            yield lambda: 0
            return
        with self.reading() as connection:
            statement = "PRAGMA data_version"

            def version() -> int:
                if connection.opening != self._opening or not self._same():
                    return -1
                return int(connection.execute(statement).fetchone()[0])

            yield version

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        with self._readers_lock:
            self.closed = True
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        with self._turn:
            with suppress(StoreUnavailable, sqlite3.Error):
                if self._files is not None and self._files.left_behind():
                    self._leave(self._files)
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

    def _same(self) -> bool:
        """Whether what is open is what is at the path."""
        return self._files is None or self._files.same()

    def _watch_log(self) -> None:
        """Warn once when the log grows because it cannot be checkpointed."""
        if self._files is None:
            return
        size = size_of(f"{self._files.path}-wal")
        large = size > LARGE_LOG
        if large and not self._log_is_large:
            LOG.warning(
                "store: %s-wal has %d MiB and grows: something reads the file in one transaction "
                "and keeps it from being checkpointed, such as a backup or a shell that was left",
                self._files.path,
                size >> 20,
            )
        self._log_is_large = large

    def _settle(self) -> None:
        """Reopen the file if another one is at the path; the lock for writing is held.

        Raises:
            StoreUnavailable: nothing is at the path, or it cannot be opened now.
        """
        files = self._files
        if files is None or files.same():
            return
        if not files.replaced():
            if files.log_is_lost():
                # What was acknowledged is in a log without a name: write it into the database.
                self._writer.execute("PRAGMA wal_checkpoint(FULL)")
            raise StoreUnavailable(PARTED)
        if files.left_behind():
            self._leave(files)
        # The old ones are closed first, so that nothing of them is shared if their file comes back.
        with self._readers_lock:
            left = [self._writer, *self._readers]
            self._readers.clear()
            self._files = Files(files.path, files.real)
            self._opening += 1
        for connection in left:
            connection.close()
        try:
            with as_unavailable():
                self._writer, self._files = self._open()
        except ConfigError as wrong:
            raise StoreUnavailable(str(wrong)) from wrong
        LOG.warning("store: another file is at %s now, and is used from now on", files.path)

    def _leave(self, files: Files) -> None:
        """Take our log away from beside another database, once the replaced one has all of it."""
        (busy, _, _) = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreUnavailable(LEFT_BEHIND)
        # Other processes that have the replaced file open, too, do this one at a time.
        _begin(self._writer, time.monotonic() + self._timeout)
        try:
            if files.left_behind():
                files.tidy()
        except OSError as error:
            raise StoreUnavailable(LEFT_BEHIND) from error
        finally:
            self._writer.execute("ROLLBACK")

    def _open(self, mode: str = "rw") -> tuple[Connection, Files | None]:
        """A connection that writes, with the files that it has open."""
        path = self._url.path
        for _ in range(_OPENINGS):
            before = Files.at(path) if path else None
            connection = self._connect(mode)
            with _closed_on_error(connection):
                connection.execute(_WRITER_CACHE)
                if path:
                    self._use_wal(connection)
                schema.prepare(connection)
            if before is None:
                return connection, None
            # Only these are sure to be the ones that were opened.
            found = Files.at(path)
            if found.complete and (found.main, found.real) == (before.main, before.real):
                return connection, found
            connection.close()
        raise StoreUnavailable(EXCHANGED)

    # ------------------------------ connections

    def _reader(self, deadline: float) -> Connection:
        for _ in range(_OPENINGS):
            if not self._same():
                with self._my_turn(deadline):
                    self._settle()
            with self._readers_lock:
                if self.closed:
                    raise StoreUnavailable("the store is closed")
                if self._readers:
                    return self._readers.pop()
            connection = self._connect()
            with _closed_on_error(connection):
                schema.check_format(connection)  # opens all that there is to open
            if connection.opening == self._opening and self._same():
                return connection
            connection.close()
        raise StoreUnavailable(EXCHANGED)

    def _give_back(self, connection: Connection) -> None:
        with self._readers_lock:
            kept = len(self._readers) < _MAX_IDLE
            if self.closed or connection.opening != self._opening or not kept:
                connection.close()
            else:
                self._readers.append(connection)

    def _connect(self, mode: str = "rw") -> Connection:
        """A connection. Only the first makes a file: one that is gone must not come back empty."""
        opening, path = self._opening, quote(os.fsencode(self._url.path))
        connection = sqlite3.connect(
            f"file:{path}?mode={mode}" if path else ":memory:",
            uri=bool(path),
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        connection.opening = opening
        with _closed_on_error(connection):
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            level = "FULL" if self._url.full_sync else "NORMAL"
            connection.execute(f"PRAGMA synchronous = {level}")
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                # Two processes that open a new file at once: SQLite does not wait for this lock by
                # itself.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection whose preparation fails: its files stay open otherwise."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _begin(connection: sqlite3.Connection, deadline: float) -> None:
    """Take the write lock, asking every few milliseconds while another process has it."""
    connection.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            pause = random.uniform(*_LOCK_PAUSE)
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() + pause >= deadline:
                raise
            time.sleep(pause)
        else:
            return


@contextmanager
def moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Read several things of one moment; keep it short, or the WAL cannot be checkpointed."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _make_file(path: Path) -> None:
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
