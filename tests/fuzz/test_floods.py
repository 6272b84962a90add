"""Much of what is cheap to send: calls that are given up, headers without end, silence."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest

from tests.servers import Peer, evaluate_request, served, two_zones
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as pb

CODE = grpc.StatusCode


@pytest.fixture
def server():
    with served(http="127.0.0.1:0") as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        yield server


def test_calls_that_are_given_up_at_once_leave_nothing_behind(server):
    with Peer(server.address) as flood, Peer(server.address) as peer:
        for _ in range(10):
            calls = [
                flood.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE)
                for _ in range(200)
            ]
            for call in calls:
                call.cancel()
            assert peer.evaluate().feasible_node_count == 1
        pools = server.pools.by_name().values()
        until(lambda: not any(pool.depth or pool.busy for pool in pools), "all are done")


def test_unread_streams_hold_up_no_other_call(server):
    with Peer(server.address) as lazy, Peer(server.address) as peer:
        watches = [
            lazy.state.WatchObjects(pb.WatchObjectsRequest(), timeout=PATIENCE) for _ in range(20)
        ]
        for _ in range(50):
            peer.apply(*two_zones())
        assert peer.evaluate().feasible_node_count == 1
        for watch in watches:
            watch.cancel()


@pytest.mark.parametrize("count", [1, 2000])
def test_headers_without_end_are_refused(server, count):
    flood = tuple((f"x-{number}", "y" * (60_000 // count)) for number in range(count))
    with Peer(server.address) as peer:
        with pytest.raises(grpc.RpcError) as refused:
            peer.engine.EvaluatePod(evaluate_request(), metadata=flood, timeout=PATIENCE)
        assert refused.value.code() in {CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE}
        assert peer.evaluate().feasible_node_count == 1


def test_a_packed_message_is_bounded_by_what_it_unpacks_to(server):
    # An unknown field of bytes, so that it would parse.
    bomb = b"\x82\x7d" + b"\x80\x80\x80\x20" + bytes(64 << 20)
    with (
        grpc.insecure_channel(server.address, compression=grpc.Compression.Gzip) as channel,
        Peer(server.address) as peer,
    ):
        call: Any = channel.unary_unary("/topospread.v1.DecisionService/EvaluatePod")
        with pytest.raises(grpc.RpcError) as refused:
            call(bomb, timeout=PATIENCE)
        assert refused.value.code() is CODE.RESOURCE_EXHAUSTED
        assert peer.evaluate().feasible_node_count == 1


def test_a_token_with_a_nul_is_no_request(server):
    host, _, port = server.http_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
        raw.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\0b\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400 ")
    with Peer(server.address) as peer:
        assert peer.evaluate().feasible_node_count == 1


def test_hundreds_of_silent_connections_hold_up_no_other_call(server):
    with ExitStack() as opened:
        for address in (server.address, server.http_address):
            host, _, port = address.rpartition(":")
            for _ in range(150):
                opened.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        with Peer(server.address) as peer:
            assert peer.evaluate().feasible_node_count == 1


def test_garbage_on_a_connection_ends_that_connection_alone(server):
    host, _, port = server.address.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    frames: list[bytes] = [
        bytes(100),
        b"\xff" * 100,
        preface + bytes(9),
        preface + b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08" * 500,
        preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(1000),
        preface + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 2000,
        preface + b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8),
        # Headers that go on in frames without end.
        preface
        + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83"
        + (
            b"\x00\x40\x00\x09\x00\x00\x00\x00\x01"
            + b"\x00\x01a\x01b\x00" * 2730
            + b"\x00\x01a\x00"
        )
        * 100,
    ]
    with Peer(server.address) as peer:
        for piece in frames * 5:
            with (
                socket.create_connection((host, int(port)), timeout=PATIENCE) as raw,
                suppress(ConnectionError),
            ):
                raw.sendall(piece)
        answer: Any = peer.evaluate()
        assert answer.feasible_node_count == 1
