"""Answers that callers do not take: bounded in bytes, and their calls end."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.fuzz import attacker
from tests.servers import PATIENCE, Peer, evaluate_request, node, pod, served, two_zones, until
from topospread.errors import LimitExceeded
from topospread.transports.grpc.untaken import LARGE, Untaken
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

CODE = grpc.StatusCode
EVALUATE = "/topospread.v1.DecisionService/EvaluatePod"
LIST = "/topospread.v1.ClusterStateService/ListObjects"
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(params=[True, False], ids=["direct", "grpcio"])
def server(request):
    flags = {"max_response_bytes": "256KiB", "state_threads": 1}
    with served(direct_calls=request.param, **flags) as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones(), *(pod(f"{'x' * 200}-{n}", "a1", "other") for n in range(450)))
        yield server


def untaken(server: Any) -> Untaken:
    """What the server knows of answers that wait."""
    bounds: Untaken = server._grpc._frame.untaken
    return bounds


def test_answers_that_nobody_takes_are_bounded_for_a_connection_and_end(server):
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
        assert LARGE < untaken(server).bytes <= 256 << 10
        # Others have room.
        with Peer(server.address) as peer:
            assert peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            ).objects
        untaken(server).end_late(0.0)
        until(lambda: refused() == 40, "the others end")
        until(lambda: not untaken(server).bytes, "nothing waits")
    finally:
        lazy.close()


@pytest.mark.parametrize(("path", "where"), [(EVALUATE, "_frame"), (CHECK, "_health")])
def test_a_call_whose_answer_nobody_takes_ends(server, path, where):
    lazy = attacker.Line(server.address, takes=0)
    question = evaluate_request().SerializeToString() if path == EVALUATE else b""
    waiting = getattr(server._grpc, where).untaken
    try:
        lazy.call(path, attacker.short(question))
        lazy.pump()
        until(lambda: waiting.bytes > 0, "it is answered")
        waiting.end_late(0.0)

        def ended() -> bool:
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: not waiting.bytes, "nothing waits")
    finally:
        lazy.close()


def test_a_watch_that_nobody_takes_ends(server):
    lazy = attacker.Line(server.address, takes=0)
    try:
        with Peer(server.address) as peer:
            revision = peer.apply(node("late", "a"))
            peer.apply(*(pod(f"{'y' * 200}-{n}", "late", "other") for n in range(450)))
        request = pb.WatchObjectsRequest(revision=revision).SerializeToString()
        lazy.call("/topospread.v1.ClusterStateService/WatchObjects", attacker.short(request))
        lazy.pump()
        until(lambda: untaken(server).bytes >= LARGE, "an answer waits")
        untaken(server).end_late(0.0)

        def ended() -> bool:
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: not untaken(server).bytes, "nothing waits")
    finally:
        lazy.close()


def test_answers_that_are_taken_leave_nothing(server):
    with Peer(server.address) as peer:
        for _ in range(20):
            peer.evaluate()
            peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            )
    until(lambda: not untaken(server).bytes, "nothing waits")
    until(lambda: not untaken(server)._waiting, "no call is kept")
    assert not untaken(server)._connections


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


def test_bytes_are_bounded_in_all():
    bounds: Any = Untaken(most=3 * LARGE, each=2 * LARGE)
    calls = [_Call(f"peer-{number}") for number in range(3)]
    for call in calls:
        bounds.admit(call)
        bounds.note(call, LARGE)
    for refuses in (bounds.admit, lambda call: bounds.note(call, LARGE)):
        with pytest.raises(LimitExceeded, match="too many answers wait"):
            refuses(_Call("another"))
    calls[0].over()
    bounds.admit(_Call("another"))
    assert bounds.bytes == 2 * LARGE


def test_one_answer_alone_may_be_as_large_as_it_likes():
    bounds: Any = Untaken(most=10 * LARGE, each=LARGE)
    bounds.note(_Call("peer"), 9 * LARGE)
    with pytest.raises(LimitExceeded, match="wait to be taken on this connection"):
        bounds.note(_Call("peer"), LARGE)
