"""Servers without a network: each follows one store by itself and writes to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.replica.servers import Server
from tests.store.backends import Backend, RedisBackend, SqliteBackend
from tests.store.conftest import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A place for the state, empty."""
    if request.param == "sqlite":
        return SqliteBackend(f"sqlite://{tmp_path}/state.db")
    return RedisBackend(request.getfixturevalue("redis_url"))


@pytest.fixture
def start(backend: Backend) -> Iterator[Callable[[], Server]]:
    """Starts servers on the backend, and ends them with the test."""
    with ExitStack() as running:

        def one() -> Server:
            store = backend.open(SETTINGS)
            running.callback(store.close)
            server = Server(store)
            running.callback(server.replicas.close)
            return server

        yield one


@pytest.fixture
def here(start: Callable[[], Server]) -> Server:
    """One server."""
    return start()


@pytest.fixture
def there(start: Callable[[], Server]) -> Server:
    """Another one on the same store."""
    return start()
