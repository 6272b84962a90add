"""Places for a store that a newer version shares."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

import pytest
import redis

from tests.store.backends import RedisBackend, SqliteBackend

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store.backends import Backend


class Place(Protocol):
    """Where a store is.

    Attributes:
        backend: opens stores there.
    """

    backend: Backend

    def content(self) -> object:
        """Everything that is there, to be compared."""


class File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend: Backend = SqliteBackend(f"sqlite://{path}")

    def content(self) -> object:
        with closing(sqlite3.connect(self.path)) as connection:
            return [*connection.iterdump()]


class Redis:
    def __init__(self, url: str) -> None:
        self._url = url
        self.backend: Backend = RedisBackend(url)

    def content(self) -> object:
        with closing(redis.Redis.from_url(self._url)) as client:
            return {name: client.dump(name) for name in client.scan_iter()}


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind."""
    if request.param == "sqlite":
        return File(tmp_path / "state.db")
    return Redis(request.getfixturevalue("redis_url"))
