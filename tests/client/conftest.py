"""Clients of both kinds, a real server for them, and one that fails on demand."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.callers import Caller
from tests.client.scripted import Script, scripted
from tests.servers import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread_client import Connection


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    """A server in this process, its state in memory."""
    with served() as server:
        yield server.address


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as script:
        yield script


@pytest.fixture(params=["sync", "aio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Caller]]:
    """Makes clients of either kind, and closes them."""
    with ExitStack() as opened:

        def make(connection: Connection | str, **options: Any) -> Caller:
            caller = Caller(request.param, connection, **options)
            opened.callback(caller.end)
            return caller

        yield make


@pytest.fixture
def client(connect: Callable[..., Caller], address: str) -> Caller:
    """A client with a cluster of the test's own, its `name`, to which nothing was written yet."""
    name = f"test-{secrets.token_hex(6)}"
    made = connect(address, cluster=name)
    made.name = name  # type: ignore[attr-defined] # others leave it to the client
    return made
