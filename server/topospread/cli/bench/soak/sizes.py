"""How much a store of the soak's own holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def redis_megabytes(address: str) -> float:
    """What Redis uses for everything that it holds."""
    import redis

    with redis.Redis.from_url(address, protocol=2) as client:
        return int(client.info("memory")["used_memory"]) / 1e6


def sqlite_megabytes(file: Path) -> float:
    """The pages of a file that are in use: free ones stay in it, and are used again."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size / 1e6
