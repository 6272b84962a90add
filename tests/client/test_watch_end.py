"""A watch that the server ends in good order is not the end of all changes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from topospread_client.aio import AsyncClient
from topospread_client.client import Client
from topospread_client.errors import Unavailable
from topospread_proto.v1 import cluster_state_pb2 as pb


def ending(request, context):
    """A watch with one answer."""
    del request, context
    yield pb.WatchResponse(revision="one").SerializeToString()


@pytest.fixture
def address():
    server = grpc.server(ThreadPoolExecutor(2))
    methods: dict[str, Any] = {"Watch": grpc.unary_stream_rpc_method_handler(ending)}
    service = grpc.method_handlers_generic_handler("topospread.v1.ClusterState", methods)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_watch_that_ends_is_an_error(address):
    seen: list[str] = []

    def watched():
        with Client(address) as client:
            seen.extend(changes.revision for changes in client.watch(timeout=60))

    with pytest.raises(Unavailable, match="open another one"):
        watched()
    assert seen == ["one"]


def test_a_watch_that_ends_is_an_error_for_asyncio_too(address):
    async def watched(seen):
        async with AsyncClient(address) as client:
            async for changes in client.watch(timeout=60):
                seen.append(changes.revision)

    seen: list[str] = []
    with pytest.raises(Unavailable, match="open another one"):
        asyncio.run(watched(seen))
    assert seen == ["one"]
