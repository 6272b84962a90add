"""Real servers on real stores, to be killed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import client_of, zones
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_server import RedisProcess
    from topospread_client import Client

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def durable(start_redis: Callable[..., RedisProcess]) -> RedisProcess:
    """A Redis that keeps every write it has acknowledged."""
    return start_redis(options=DURABLE)


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerProcess]]:
    """Starts servers on a store, with more arguments of `topospread serve`, and ends them."""
    with ExitStack() as running:

        def one(store: str, *arguments: str) -> ServerProcess:
            return running.enter_context(ServerProcess("--store", store, *arguments))

        yield one


@pytest.fixture
def call() -> Iterator[Callable[[ServerProcess], Client]]:
    """Makes clients that try once, and closes them."""
    with ExitStack() as opened:
        yield lambda server: opened.enter_context(client_of(server.address))


@pytest.fixture
def two(
    serve: Callable[..., ServerProcess], durable: RedisProcess, call: Callable[..., Client]
) -> list[ServerProcess]:
    """Two servers on one durable Redis, which both follow a cluster of three zones."""
    servers = [serve(durable.url), serve(durable.url)]
    revision = call(servers[0]).apply_objects(zones()).meta.revision
    for server in servers:
        assert call(server).get_node_table().node_names == ["n-a", "n-b", "n-c"], revision
    return servers


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured; nothing is asserted of it, because machines differ."""
    reports = terminalreporter.stats.get("passed", [])
    for report in (each for each in reports if each.nodeid.startswith("tests/faults/")):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {name} = {value}")
