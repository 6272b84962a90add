"""Connections to one database: one that writes, and some that read.

Writers of one process take turns on a lock of ours, and those of several processes ask every few
milliseconds, because SQLite's own waiting sleeps for up to 100 ms between tries. A database in
memory belongs to one connection, which everybody shares under that lock.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.sqlite import schema
from topospread.store.sqlite.failures import as_unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.urls import SqliteURL

_PRAGMAS: Final = (
    # Bounds what a burst leaves behind; the log is checkpointed every 1,000 pages.
    f"PRAGMA journal_size_limit = {64 * 1024 * 1024}",
    "PRAGMA cache_size = -16000",
    "PRAGMA temp_store = MEMORY",
)

_LOCK_PAUSE: Final = (0.0005, 0.003)
"""Seconds between tries, at random so that processes do not keep step."""


class Connections:
    """The connections of one store object; safe for use from several threads, not across a fork."""

    def __init__(self, url: SqliteURL, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._turn = Lock()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = Lock()
        self.closed = False
        if url.path:
            _make_file(Path(url.path))
        with as_unavailable():
            self._writer = self._connect()
            try:
                if url.path:
                    self._use_wal(self._writer)
                schema.prepare(self._writer)
            except BaseException:
                self._writer.close()
                raise

    @property
    def in_memory(self) -> bool:
        """Whether all threads share one connection."""
        return not self._url.path

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed at the end, rolled back on any error."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        with self._my_turn(deadline) as connection, as_unavailable():
            _begin(connection, deadline)
            try:
                schema.check_format(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def reading(self, timeout: float | None = None) -> Iterator[sqlite3.Connection]:
        """A connection outside any transaction; ``timeout`` bounds the wait for a shared one."""
        if self.in_memory:
            deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
            with self._my_turn(deadline) as connection, as_unavailable():
                yield connection
            return
        with as_unavailable():
            connection = self._reader()
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
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A short read transaction: everything read in it is of one moment."""
        with self.reading() as connection, moment(connection):
            yield connection

    @contextmanager
    def watch(self) -> Iterator[Callable[[], int]]:
        """A number that changes whenever another connection has written to the file."""
        if self.in_memory:
            yield lambda: 0
            return
        with self.reading() as connection:
            statement = "PRAGMA data_version"
            yield lambda: int(connection.execute(statement).fetchone()[0])

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
    def _my_turn(self, deadline: float) -> Iterator[sqlite3.Connection]:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable("other writes of this process hold the store; retry")
        try:
            if self.closed:
                raise StoreUnavailable("the store is closed")
            yield self._writer
        finally:
            self._turn.release()

    def _reader(self) -> sqlite3.Connection:
        with self._readers_lock:
            if self.closed:
                raise StoreUnavailable("the store is closed")
            if self._readers:
                return self._readers.pop()
        return self._connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._readers_lock:
            if self.closed:
                connection.close()
            else:
                self._readers.append(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._url.path or ":memory:",
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._url.full_sync else 'NORMAL'}")
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
