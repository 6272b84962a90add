"""The port of gRPC: its channel options, and how many connections it has."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import http_get, served
from tests.telemetry.expositions import samples
from tests.waiting import until
from topospread.rpc import connections
from topospread.rpc import server as rpc_server
from topospread_client import Connection, Tls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.app.server import Server

OF_SERVER = rpc_server.ServerOptions(1, max_connection_age=1.0)
OF_CLIENT = Connection("localhost:1", Tls(server_name="other"))


@pytest.fixture(scope="module")
def library():
    return Path(import_module("grpc._cython.cygrpc").__file__ or "").read_bytes()


@pytest.mark.parametrize(
    "options",
    [rpc_server._channel_options(OF_SERVER), OF_CLIENT.channel_options()],
    ids=["server", "client"],
)
def test_grpc_knows_all_options(library, options):
    """With a name that is none, the server would take pings of clients for abuse."""
    assert [name for name, _ in options if f"{name}\0".encode() not in library] == []


counted = pytest.mark.skipif(
    not os.path.isdir(connections.DESCRIPTORS), reason="counted on Linux alone"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(connections, "COUNT_SECONDS", 0.0)
    monkeypatch.setattr(rpc_server, "HANDSHAKE_MS", 60_000)  # they say nothing
    with served(http="127.0.0.1:0", max_connections=20) as server:
        yield server


def counts(server: Server) -> dict[str, float]:
    _, page = http_get(f"http://{server.http_address}/metrics")
    return {
        dict(labels)["port"]: count
        for (name, labels), count in samples(page.encode()).items()
        if name == "topospread_connections"
    }


def connected(address: str, many: int, opened: ExitStack) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(many):
        opened.enter_context(socket.create_connection((host, int(port))))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == connections.LOG.name]


@counted
def test_connections_are_counted_until_they_close(server: Server) -> None:
    assert counts(server)["grpc"] == 0
    with ExitStack() as opened:
        connected(server.address, 5, opened)
        connected(server.http_address, 3, opened)
        # The scrape has a connection, too.
        until(lambda: counts(server) == {"grpc": 5, "http": 4}, "they are counted")
    until(lambda: counts(server) == {"grpc": 0, "http": 1}, "they are gone")


@counted
def test_limit_that_is_near_is_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as opened, caplog.at_level(logging.WARNING, connections.LOG.name):
        connected(server.address, 18, opened)
        until(lambda: counts(server)["grpc"] == 18, "they are counted")
        assert not warnings(caplog)
        connected(server.address, 1, opened)
        until(lambda: counts(server)["grpc"] == 19, "they are counted")
        connected(server.address, 1, opened)
        until(lambda: counts(server)["grpc"] == 20, "they are counted")
    port = server.address.rpartition(":")[2]
    expected = f"port {port} has 19 of at most 20 connections: more are closed"
    assert warnings(caplog) == [expected]
