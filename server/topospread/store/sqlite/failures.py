"""SQLite's errors as ours. The driver's text stays in ``__cause__`` for the log."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

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
                "store: the file is not a SQLite database; name another path"
            ) from error
        raise StoreUnavailable(_TEXTS.get(code, "SQLite refused to answer; see the log")) from error
