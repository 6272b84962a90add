"""What is kept for callers: bounded for each and for all, and for how long."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest

from bench.campaigns import attacker
from tests.servers import Peer, evaluate_request, node, pod, served, two_zones
from tests.waiting import PATIENCE, until
from topospread.calls.memory import (
    GRACE_SECONDS,
    MANY_PENDING,
    MANY_READ,
    PENDING_SECONDS,
    READ_SECONDS,
    WANTED_SECONDS,
    MemoryGuard,
    Sweeper,
)
from topospread.calls.pipeline import LARGE
from topospread.errors import (
    DeadlineExceeded,
    QueueFull,
    ShuttingDown,
    TooLarge,
    TopospreadError,
    Unauthenticated,
)
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

CODE = grpc.StatusCode
EVALUATE = "/topospread.v1.DecisionService/EvaluatePod"
LIST = "/topospread.v1.ClusterStateService/ListObjects"
CHECK = "/grpc.health.v1.Health/Check"

# ------------------------------ bytes


def test_one_owner_has_half_and_all_have_the_whole():
    guard = MemoryGuard(100)
    first = guard.hold("a", 30)
    guard.hold("a", 20)
    with pytest.raises(QueueFull, match="this caller's calls: more than 50 bytes"):
        guard.hold("a", 1)
    guard.hold("b", 40)
    with pytest.raises(QueueFull, match="all calls"):
        guard.hold("c", 11)
    assert guard.total == 90
    first.release()
    first.release()
    assert guard.total == 60
    guard.hold("a", 10)


def test_all_streams_together_have_half():
    guard = MemoryGuard(100)
    first = guard.hold("a", 30, streaming=True)
    guard.hold("b", 20, streaming=True)
    with pytest.raises(QueueFull, match="all streams: more than 50 bytes"):
        guard.hold("c", 1, streaming=True)
    guard.hold("c", 50)
    first.release()
    guard.hold("d", 30, streaming=True)
    assert guard.total == 100


def test_one_call_that_needs_more_than_any_owner_has_is_too_large():
    guard = MemoryGuard(100)
    with guard.hold("a") as held:
        held.add(50)
        with pytest.raises(TooLarge, match="more than 50 bytes in one call"):
            held.add(1)
    assert guard.total == 0


def test_bytes_that_do_not_fit_leave_those_that_are_held():
    guard = MemoryGuard(100)
    with guard.hold("a", 20) as held:
        guard.hold("b", 50)
        guard.hold("c", 25)
        with pytest.raises(QueueFull):
            held.resize(40)
        assert (held.size, guard.total) == (20, 95)
        held.resize(10)
        assert guard.total == 85
    assert guard.total == 75


# ------------------------------ time


class Ended:
    """Calls that were ended, with their errors."""

    def __init__(self) -> None:
        self.errors: dict[object, TopospreadError] = {}

    def of(self, name: object) -> Any:
        return lambda error: self.errors.update({name: error})

    def kinds(self) -> dict[object, type]:
        return {name: type(error) for name, error in self.errors.items()}


def test_late_requests_are_ended_sooner_where_their_thread_is_wanted():
    sweeper, ended = Sweeper(), Ended()
    now = time.monotonic()
    with (
        sweeper.read(ended.of("wanted"), lambda: True),
        sweeper.read(ended.of("other"), lambda: False),
    ):
        sweeper.sweep(now)
        assert not ended.errors
        sweeper.sweep(now + WANTED_SECONDS + 0.1)
        assert ended.kinds() == {"wanted": QueueFull}
        sweeper.sweep(now + READ_SECONDS + 0.1)
        assert ended.kinds() == {"wanted": QueueFull, "other": QueueFull}
    assert not sweeper.reading


def test_of_many_requests_that_are_read_the_older_ones_are_ended():
    sweeper, ended = Sweeper(), Ended()
    now = time.monotonic()
    for number in range(MANY_READ + 3):
        sweeper.reading[number] = now, ended.of(number), lambda: False
    sweeper.sweep(now + WANTED_SECONDS - 0.1)
    assert not ended.errors
    sweeper.sweep(now + WANTED_SECONDS + 0.1)
    assert ended.kinds() == dict.fromkeys(range(3), QueueFull)


def test_a_server_that_stops_waits_no_longer_for_requests():
    sweeper, ended = Sweeper(), Ended()
    sweeper.stopping = True
    now = time.monotonic()
    with sweeper.read(ended.of("late"), lambda: False):
        sweeper.sweep(now)
        assert not ended.errors
        sweeper.sweep(now + WANTED_SECONDS + 0.1)
    assert ended.kinds() == {"late": ShuttingDown}


def test_calls_whose_callers_keep_the_server_waiting_are_ended():
    sweeper, ended = Sweeper(), Ended()
    now = time.monotonic()
    with sweeper.wait(ended.of("first")), sweeper.wait(ended.of("second")):
        sweeper.sweep(now + PENDING_SECONDS - 1)
        assert not ended.errors
        sweeper.sweep(now + PENDING_SECONDS + 1)
        assert ended.kinds() == dict.fromkeys(("first", "second"), DeadlineExceeded)
    assert not sweeper.pending


def test_of_many_answers_that_wait_the_older_ones_are_ended():
    sweeper, ended = Sweeper(), Ended()
    now = time.monotonic()
    for number in range(MANY_PENDING + 3):
        sweeper.pending[number] = now, ended.of(number)
    sweeper.sweep(now + WANTED_SECONDS - 0.1)
    assert not ended.errors
    sweeper.sweep(now + WANTED_SECONDS + 0.1)
    assert ended.kinds() == dict.fromkeys(range(3), DeadlineExceeded)


def test_a_stream_whose_caller_is_not_valid_has_a_moment_to_say_so():
    sweeper, ended = Sweeper(), Ended()
    now = time.monotonic()
    sweeper.streams["invalid"] = lambda: False, ended.of("invalid")
    sweeper.streams["valid"] = lambda: True, ended.of("valid")
    sweeper.sweep(now)
    sweeper.sweep(now + GRACE_SECONDS - 0.1)
    assert not ended.errors
    sweeper.sweep(now + GRACE_SECONDS + 0.1)
    assert ended.kinds() == {"invalid": Unauthenticated}


def test_one_that_fails_keeps_no_other_from_being_ended(caplog):
    sweeper, ended = Sweeper(), Ended()

    def broken(*_: object) -> bool:
        raise RuntimeError("broken")

    now = time.monotonic()
    sweeper.streams["broken"] = lambda: False, broken
    sweeper.streams["stream"] = broken, ended.of("stream")
    with sweeper.wait(broken), sweeper.wait(ended.of("call")):
        sweeper.sweep(now)
        sweeper.sweep(now + PENDING_SECONDS + 1)
    assert ended.kinds() == {"call": DeadlineExceeded, "stream": Unauthenticated}
    assert "broken" in caplog.text


# ------------------------------ over gRPC


@pytest.fixture(params=["grpcio", "grpcio-threads"])
def server(request):
    with served(transport=request.param, max_held_bytes="1MiB") as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones(), *(pod(f"{'x' * 200}-{n}", "a1", "other") for n in range(450)))
        # A response that its client has is counted until the server has seen that.
        until(lambda: not kept(server)[0], "nothing waits")
        yield server


def kept(server: Any) -> tuple[int, int]:
    """Bytes that are held, and calls that callers keep waiting."""
    parts = server.grpc.pipeline.parts
    return parts.guard.total, len(parts.sweeper.pending)


def expire(server: Any) -> None:
    """As if all had been kept waiting for too long."""
    server.grpc.pipeline.parts.sweeper.sweep(time.monotonic() + PENDING_SECONDS + 1)


def test_answers_that_a_caller_does_not_take_are_bounded_and_expire(server):
    request = pb.ListObjectsRequest(kind=common_pb2.KIND_POD).SerializeToString()
    lazy = attacker.Line(server.address, takes=0)
    try:
        for _ in range(40):
            lazy.call(LIST, attacker.short(request))

        def refused() -> int:
            lazy.pump()
            return lazy.ended

        # Each answer has some 100 KiB, and half of a MiB is one caller's.
        until(lambda: refused() >= 34, "all but a few are refused")
        assert LARGE < kept(server)[0] <= 512 << 10
        # Others have room.
        with Peer(server.address) as peer:
            assert peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            ).objects
        expire(server)
        until(lambda: refused() == 40, "the others end")
        until(lambda: kept(server) == (0, 0), "nothing waits")
    finally:
        lazy.close()


@pytest.mark.parametrize("path", [EVALUATE, CHECK])
def test_call_with_an_untaken_answer_ends(server, path):
    lazy = attacker.Line(server.address, takes=0)
    question = evaluate_request().SerializeToString() if path == EVALUATE else b""
    try:
        lazy.call(path, attacker.short(question))
        lazy.pump()
        until(lambda: kept(server)[1] > 0, "it is answered")
        expire(server)

        def ended() -> bool:
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: kept(server) == (0, 0), "nothing waits")
    finally:
        lazy.close()


def test_watch_with_an_untaken_answer_ends(server):
    lazy = attacker.Line(server.address, takes=0)
    try:
        with Peer(server.address) as peer:
            revision = peer.apply(node("late", "a"))
            peer.apply(*(pod(f"{'y' * 200}-{n}", "late", "other") for n in range(450)))
        request = pb.WatchObjectsRequest(revision=revision).SerializeToString()
        lazy.call("/topospread.v1.ClusterStateService/WatchObjects", attacker.short(request))
        lazy.pump()
        until(lambda: kept(server)[0] >= LARGE, "an answer waits")

        def ended() -> bool:
            # An answer may be on its way to the connection just now; then the next one waits.
            expire(server)
            lazy.pump()
            return lazy.ended == 1

        until(ended, "it ends")
        until(lambda: kept(server) == (0, 0), "nothing waits")
    finally:
        lazy.close()


def test_taken_answers_are_not_kept(server):
    with Peer(server.address) as peer:
        for _ in range(20):
            peer.evaluate()
            peer.state.ListObjects(
                pb.ListObjectsRequest(kind=common_pb2.KIND_POD), timeout=PATIENCE
            )
    until(lambda: kept(server) == (0, 0), "nothing is kept")
    assert not server.grpc.pipeline.parts.guard._owners
