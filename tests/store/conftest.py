"""One suite for all backends: SQLite in a file and in memory, each Redis at hand, the toy store."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.redis_server import RedisProcess, redis_binaries
from tests.requirements import without
from tests.store.backends import Backend, RedisBackend, SqliteBackend, ToyBackend
from topospread.store.model import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from redis import Redis

    from topospread.store.api import Store

# No test waits that long; a loaded machine may.
SETTINGS = StoreSettings(timeout=20.0, connect_timeout=20.0)

NAMES = ("sqlite", "memory", "toy", "redis-6.2", "redis-7")

ALONE = frozenset({"memory", "toy"})
"""Backends whose content belongs to one store object."""


@pytest.fixture(scope="package")
def redis_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RedisProcess]]:
    """The oldest supported Redis and a newer one, as far as they are installed."""
    with ExitStack() as running:
        servers: dict[str, RedisProcess] = {}
        for version, binary in redis_binaries().items():
            name = "redis-6.2" if version < (7,) else "redis-7"
            directory = tmp_path_factory.mktemp(name)
            servers[name] = running.enter_context(RedisProcess(directory, binary=binary))
        yield servers


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """The backend of this run of the test, empty."""
    name = request.param
    if name == "memory":
        return SqliteBackend("memory:")
    if name == "toy":
        return ToyBackend()
    if name == "sqlite":
        return SqliteBackend(f"sqlite://{tmp_path}/state/topospread.db")
    return RedisBackend(emptied(request.getfixturevalue("redis_servers"), name).url)


def emptied(servers: Mapping[str, RedisProcess], name: str) -> RedisProcess:
    """A shared server, emptied; see `without` where it is missing."""
    if name not in servers:
        without(name, target="redis")
    with servers[name].client() as client:
        client.flushall()
        client.script_flush()
    return servers[name]


@pytest.fixture(params=["redis-6.2", "redis-7"])
def server(request: pytest.FixtureRequest, redis_servers: dict[str, RedisProcess]) -> RedisProcess:
    """A Redis of each version at hand, emptied."""
    return emptied(redis_servers, request.param)


@pytest.fixture
def client(server: RedisProcess) -> Iterator[Redis]:
    """What looks into the server past the store."""
    with server.client() as opened:
        yield opened


@pytest.fixture
def redis_store(server: RedisProcess) -> Iterator[Store]:
    """A store on the server."""
    opened = RedisBackend(server.url).open(SETTINGS)
    yield opened
    opened.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" not in metafunc.fixturenames:
        return
    shared = "other_store" in metafunc.fixturenames
    names = [name for name in NAMES if not (shared and name in ALONE)]
    metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture
def open_store(backend: Backend) -> Iterator[Callable[..., Store]]:
    """Opens stores on the backend, with settings that differ from SETTINGS by name."""
    opened: list[Store] = []

    def open_one(**changes: float) -> Store:
        values = {
            name: getattr(SETTINGS, name) for name in StoreSettings.__dataclass_fields__
        } | changes
        opened.append(backend.open(StoreSettings(**values)))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    """One store, as most tests need it."""
    return open_store()


@pytest.fixture
def other_store(open_store: Callable[..., Store]) -> Store:
    """A second store on the same place, as another server has it."""
    return open_store()
