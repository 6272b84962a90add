"""Responses that clients do not take: bounded in bytes, and their calls end."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from bench.campaigns import attacker
from tests.servers import Peer, evaluate_request, node, pod, served, two_zones
from tests.waiting import PATIENCE, until
from topospread.errors import LimitExceeded
from topospread.transports.grpc.pending_responses import LARGE_RESPONSE, PendingResponses
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

CODE = grpc.StatusCode
EVALUATE = "/topospread.v1.DecisionService/EvaluatePod"
LIST = "/topospread.v1.ClusterStateService/ListObjects"
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(params=["grpcio", "grpcio-threads"])
def server(request):
    flags = {"max_response_bytes": "256KiB", "state_threads": 1}
    with served(transport=request.param, **flags) as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones(), *(pod(f"{'x' * 200}-{n}", "a1", "other") for n in range(450)))
        # A response that its client has is counted until the server has seen that.
        until(lambda: not pending(server).bytes, "nothing waits")
        yield server


def pending(server: Any) -> PendingResponses:
    """What the server knows of answers that wait."""
    bounds: PendingResponses = server.grpc.pipeline.pending_responses
    return bounds


def test_pending_responses_of_a_connection_are_bounded_and_expire(server):
    request = pb.ListObjectsRequest(kind=common_pb2.KIND_POD).SerializeToString()
    lazy = attacker.Line(server.address, takes=0)
    try:
        for _ in range(40):
            lazy.call(LIST, attacker.short(request))

        def refused() -> int:
            lazy.pump()
            return lazy.ended

        # Each answer has some 100 KiB.
        until(lambda: refused() >= 38, "all but two are refused")
        assert LARGE_RESPONSE < pending(server).bytes <= 256 << 10
        # Others have room.
        with Peer(server.address) as peer:
            assert peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            ).objects
        pending(server).cancel_expired(0.0)
        until(lambda: refused() == 40, "the others end")
        until(lambda: not pending(server).bytes, "nothing waits")
    finally:
        lazy.close()


@pytest.mark.parametrize(("path", "where"), [(EVALUATE, "pipeline"), (CHECK, "health")])
def test_call_with_an_expired_response_ends(server, path, where):
    lazy = attacker.Line(server.address, takes=0)
    question = evaluate_request().SerializeToString() if path == EVALUATE else b""
    waiting = getattr(server.grpc, where).pending_responses
    try:
        lazy.call(path, attacker.short(question))
        lazy.pump()
        until(lambda: waiting.bytes > 0, "it is answered")
        waiting.cancel_expired(0.0)

        def ended() -> bool:
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: not waiting.bytes, "nothing waits")
    finally:
        lazy.close()


def test_watch_with_an_expired_response_ends(server):
    lazy = attacker.Line(server.address, takes=0)
    try:
        with Peer(server.address) as peer:
            revision = peer.apply(node("late", "a"))
            peer.apply(*(pod(f"{'y' * 200}-{n}", "late", "other") for n in range(450)))
        request = pb.WatchObjectsRequest(revision=revision).SerializeToString()
        lazy.call("/topospread.v1.ClusterStateService/WatchObjects", attacker.short(request))
        lazy.pump()
        until(lambda: pending(server).bytes >= LARGE_RESPONSE, "an answer waits")

        def ended() -> bool:
            # An answer may be on its way to the connection just now; then the next one waits.
            pending(server).cancel_expired(0.0)
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: not pending(server).bytes, "nothing waits")
    finally:
        lazy.close()


def test_taken_responses_are_not_kept(server):
    with Peer(server.address) as peer:
        for _ in range(20):
            peer.evaluate()
            peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            )
    until(lambda: not pending(server).bytes, "nothing waits")
    until(lambda: not pending(server)._pending, "no call is kept")
    assert not pending(server)._connections


class _Call:
    """Of one connection."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.over: Any = None

    def peer(self) -> str:
        return self._peer

    def add_callback(self, callback: Any) -> bool:
        self.over = callback
        return True


def test_pending_bytes_are_bounded_in_all():
    bounds: Any = PendingResponses(
        max_bytes=3 * LARGE_RESPONSE, connection_bytes=2 * LARGE_RESPONSE
    )
    calls = [_Call(f"peer-{number}") for number in range(3)]
    for call in calls:
        bounds.admit(call)
        bounds.track(call, LARGE_RESPONSE)
    for refuses in (bounds.admit, lambda call: bounds.track(call, LARGE_RESPONSE)):
        with pytest.raises(LimitExceeded, match="too many answers wait"):
            refuses(_Call("another"))
    calls[0].over()
    bounds.admit(_Call("another"))
    assert bounds.bytes == 2 * LARGE_RESPONSE


def test_single_response_may_exceed_the_bound_of_a_connection():
    bounds: Any = PendingResponses(max_bytes=10 * LARGE_RESPONSE, connection_bytes=LARGE_RESPONSE)
    bounds.track(_Call("peer"), 9 * LARGE_RESPONSE)
    with pytest.raises(LimitExceeded, match="wait to be taken on this connection"):
        bounds.track(_Call("peer"), LARGE_RESPONSE)
