"""gRPC's channel options, of which gRPC ignores unknown ones silently."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from topospread.rpc import server
from topospread_client import Connection, Tls

OF_SERVER = server.ServerOptions(1, 1, max_connection_age=1.0)
OF_CLIENT = Connection("localhost:1", Tls(server_name="other"))


@pytest.fixture(scope="module")
def library():
    return Path(import_module("grpc._cython.cygrpc").__file__ or "").read_bytes()


@pytest.mark.parametrize(
    "options",
    [server._channel_options(OF_SERVER), OF_CLIENT.channel_options()],
    ids=["server", "client"],
)
def test_grpc_knows_all_options(library, options):
    """With a name that is none, the server would take pings of clients for abuse."""
    assert [name for name, _ in options if f"{name}\0".encode() not in library] == []
