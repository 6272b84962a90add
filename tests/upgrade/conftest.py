"""Places for a store, empty or as an earlier version left it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import redis

from tests.store.backends import RedisBackend, SqliteBackend
from tests.upgrade import stores

if TYPE_CHECKING:
    from pathlib import Path

    from tests.store.backends import Backend


class Place(Protocol):
    """Where a store is.

    Attributes:
        backend: opens stores there.
        kept: what the earlier version left there, and what it answered.
    """

    backend: Backend
    kept: dict[str, Any]

    def put(self) -> None:
        """Put there what the earlier version left, and nothing else."""

    def content(self, cluster: str) -> tuple[stores.Objects, stores.Log]:
        """Stored values, and the log."""

    def form(self) -> dict[str, object]:
        """Names and kinds of what the store is made of."""


class File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend: Backend = SqliteBackend(f"sqlite://{path}")
        self.kept = stores.kept("sqlite")

    def put(self) -> None:
        for found in self.path.parent.glob(f"{self.path.name}*"):
            found.unlink()
        stores.put_into_file(self.path, self.kept["statements"])

    def content(self, cluster: str) -> tuple[stores.Objects, stores.Log]:
        return stores.file_content(self.path, cluster)

    def form(self) -> dict[str, object]:
        return stores.tables(self.path)


class Redis:
    def __init__(self, url: str) -> None:
        self._url = url
        self.backend: Backend = RedisBackend(url)
        self.kept = stores.kept("redis")

    def put(self) -> None:
        with closing(redis.Redis.from_url(self._url)) as client:
            client.flushall()
            stores.put_into_redis(client, self.kept["keys"])

    def content(self, cluster: str) -> tuple[stores.Objects, stores.Log]:
        with closing(redis.Redis.from_url(self._url)) as client:
            return stores.redis_content(client, cluster)

    def form(self) -> dict[str, object]:
        with closing(redis.Redis.from_url(self._url)) as client:
            return stores.key_kinds(client)


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind."""
    if request.param == "sqlite":
        return File(tmp_path / "state.db")
    return Redis(request.getfixturevalue("redis_url"))


@pytest.fixture
def left(place: Place) -> Place:
    """A place of each kind with what the earlier version left."""
    place.put()
    return place
