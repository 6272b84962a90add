"""Opens SQLite stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.store.settings import StoreSettings
from topospread.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from topospread.store.urls import SqliteURL

DEFAULTS = StoreSettings()


def open_store(url: SqliteURL, settings: StoreSettings = DEFAULTS) -> SqliteStore:
    """Open a store, making its file and directories when they are not there.

    Raises:
        ConfigError: the file cannot be written, is another program's, or has another format.
        StoreUnavailable: it cannot be opened now.
    """
    return SqliteStore(url, settings)
