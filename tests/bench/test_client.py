"""The load generator's own HTTP/2: it counts what a server answers, and no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from bench.http2 import BrokenConnectionError, Http2Connection
from bench.load import CallsFailedError, run_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = b"x" * 300_000


def _mirror(raw: bytes, context: grpc.ServicerContext) -> bytes:
    return raw


def _fail(raw: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")


def _receive_all(connection: Http2Connection) -> None:
    while True:
        connection.receive()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Mirror": grpc.unary_unary_rpc_method_handler(_mirror),
        "Fail": grpc.unary_unary_rpc_method_handler(_fail),
    }
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize("concurrency", [1, 2, 20])
def test_every_answer_is_counted_with_its_latency(address: str, concurrency: int) -> None:
    done = run_calls(address, "/a.B/Mirror", lambda: b"question", concurrency, 0.1)
    assert done.calls
    # Calls under way when the time is up are waited for, but not part of the rate.
    assert done.calls <= len(done.latencies) <= done.calls + concurrency
    assert done.latency(0.5) <= done.latency(0.99) <= max(done.latencies)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_failed_calls_are_no_figures(address: str, concurrency: int) -> None:
    with pytest.raises(CallsFailedError, match=r"calls of /a\.B/Fail failed"):
        run_calls(address, "/a.B/Fail", lambda: b"question", concurrency, 0.05)


def test_messages_larger_than_the_windows_go_through(address: str) -> None:
    done = run_calls(address, "/a.B/Mirror", lambda: LARGE[:60_000], 6, 0.2)
    assert done.calls


def test_connection_to_a_stopped_server_is_an_error(address: str) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Http2Connection(f"127.0.0.1:{port}", "/a.B/Mirror") as connection:
        server.stop(None).wait()
        with pytest.raises((BrokenConnectionError, OSError)):
            _receive_all(connection)
