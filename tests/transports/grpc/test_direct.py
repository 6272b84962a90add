"""Calls that are answered by the threads that take them from gRPC."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import grpc
import pytest

from tests.servers import PATIENCE, Peer, evaluate_request, pod, served, until
from topospread.app import parts
from topospread.config.loading import load_settings
from topospread.service.evaluate import evaluate_batch
from topospread.transports.grpc import direct, pool
from topospread.transports.grpc.direct import DirectCalls
from topospread.transports.grpc.direct_call import DirectCall
from topospread.transports.grpc.executor import BoundedExecutor
from topospread.transports.grpc.pool import lend_place
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.common_pb2 import NodeSelection

CODE = grpc.StatusCode


def questions() -> list[tuple[str, Any]]:
    """One of each method that takes this way, good and bad."""
    incoming = evaluate_request().pod
    return [
        (
            "PreFilter",
            pb.PreFilterRequest(pod=incoming, with_counts=True),
        ),
        ("Filter", pb.FilterRequest(pod=incoming)),
        ("Score", pb.ScoreRequest(pod=incoming)),
        ("EvaluatePod", pb.EvaluatePodRequest(pod=incoming)),
        (
            "BatchEvaluatePods",
            pb.BatchEvaluatePodsRequest(
                pods=[incoming, common_pb2.PodSource(object=pod("web-9", "b1").pod)]
            ),
        ),
        ("EvaluatePod", pb.EvaluatePodRequest()),
        (
            "EvaluatePod",
            pb.EvaluatePodRequest(pod=incoming, cluster="nowhere"),
        ),
        ("Filter", pb.FilterRequest(cycle="unknown")),
        (
            "Score",
            pb.ScoreRequest(
                pod=incoming,
                candidates=NodeSelection(names=common_pb2.NodeNames(names=["nowhere"])),
            ),
        ),
    ]


def answered(running, name: str, request: Any) -> Any:
    """The answer without what differs between any two servers, or the status."""
    try:
        answer = getattr(running.peer.engine, name)(request, timeout=PATIENCE)
    except grpc.RpcError as failed:
        return failed.code(), failed.details()
    for field in ("meta", "cycle", "node_table_id"):
        if field in answer.DESCRIPTOR.fields_by_name:
            answer.ClearField(field)
    return answer


def test_answers_are_those_of_grpcios_own_threads(run):
    straight, handed = run(), run(direct_calls=False)
    assert isinstance(straight.server._pools.decisions, DirectCalls)
    assert isinstance(handed.server._pools.decisions, BoundedExecutor)
    for name, request in questions():
        assert answered(straight, name, request) == answered(handed, name, request)


def test_without_what_it_needs_of_grpcio_calls_are_served_as_everywhere(monkeypatch):
    settings = load_settings({"store": "memory:"}, {})
    monkeypatch.setattr(direct, "_NEEDED", ("NoSuchThing",))
    pools = parts.make_pools(settings)
    try:
        assert isinstance(pools.decisions, BoundedExecutor)
    finally:
        pools.shutdown()


@pytest.fixture
def held(monkeypatch):
    """Batches take until this is set."""
    go_on = threading.Event()

    def patient(*arguments):
        assert go_on.wait(PATIENCE)
        return evaluate_batch(*arguments)

    monkeypatch.setattr("topospread.transports.grpc.decision.evaluate_batch", patient)
    yield go_on
    go_on.set()


def long_call(running) -> grpc.Future:
    """A call that keeps the only thread busy."""
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
    call: grpc.Future = running.peer.engine.BatchEvaluatePods.future(request, timeout=PATIENCE)
    until(lambda: running.server._pools.decisions.busy == 1, "it is carried out")
    return call


def test_a_long_call_holds_up_no_other(run, held):
    running = run(decision_threads=1)
    long = long_call(running)
    for _ in range(3):
        assert running.peer.evaluate().feasible_node_count == 1
    assert not long.done()
    held.set()
    assert len(long.result(PATIENCE).results) == 1
    assert running.peer.evaluate().feasible_node_count == 1


def test_a_call_under_way_is_answered_before_its_server_ends(run, held):
    running = run(grace="10m")
    long = long_call(running)
    stopping = threading.Thread(target=running.server.stop, daemon=True)
    stopping.start()
    until(lambda: running.server.ready() == (False, ("stopping",)), "it stops")
    held.set()
    assert len(long.result(PATIENCE).results) == 1
    stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_of_too_many_callers_that_say_nothing_the_longest_silent_goes(run, monkeypatch):
    monkeypatch.setattr(direct, "MAX_SILENT", 3)
    running = run()
    awaited = running.server._pools.decisions.awaited
    method = "/topospread.v1.DecisionService/EvaluatePod"
    calls = [running.peer.silent_call(method) for _ in range(3)]
    until(lambda: len(awaited) == 3, "they are taken")
    longest = next(iter(awaited))
    calls.append(running.peer.silent_call(method))
    until(lambda: longest not in awaited, "one gives way")
    until(lambda: sum(call.done() for call in calls) == 1, "its caller is told")
    assert [call.code() for call in calls if call.done()] == [CODE.CANCELLED]
    assert running.peer.evaluate().feasible_node_count == 1
    for call in calls:
        call.cancel()


def test_what_goes_wrong_in_one_call_ends_no_thread(run, monkeypatch, caplog):
    running = run(decision_threads=1)
    ended = threading.Event()

    def broken(*_):
        ended.set()
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(DirectCall, "answer", broken)
        call = running.peer.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE)
        assert ended.wait(PATIENCE)
        # Nobody holds the call any more, so gRPC ends it.
        until(call.done, "the caller is told")
    assert running.peer.evaluate().feasible_node_count == 1
    assert "a call was dropped" in caplog.text


def test_calls_whose_messages_come_all_at_once_stand_in_a_bounded_line(run):
    running = run(decision_threads=1, decision_queue=2)
    decisions = running.server._pools.decisions
    said = threading.Event()

    def late() -> Any:
        assert said.wait(PATIENCE)
        yield evaluate_request().SerializeToString()

    method: Any = running.peer.channel.stream_unary("/topospread.v1.DecisionService/EvaluatePod")
    with decisions.paused():
        calls = [method.future(late(), timeout=PATIENCE) for _ in range(5)]
        until(lambda: len(decisions.awaited) == 5, "their headers are there")
        said.set()
        until(lambda: sum(call.done() for call in calls) == 3, "three are refused")
        assert decisions.depth == 2
    codes = sorted(call.code().name for call in calls)
    assert codes == ["OK", "OK", *["RESOURCE_EXHAUSTED"] * 3]


def _awaits(decisions: DirectCalls, calls: int) -> bool:
    return len(decisions.awaited) == calls


def test_a_server_ends_beside_callers_that_say_nothing():
    for _ in range(3):
        with served(grace="0s") as server, Peer(server.address) as peer:
            for _ in range(40):
                peer.silent_call("/topospread.v1.DecisionService/EvaluatePod")
            decisions = server._pools.decisions
            assert isinstance(decisions, DirectCalls)
            until(partial(_awaits, decisions, 40), "all are there")
            server.stop()


def test_a_call_that_outlives_its_server_ends_nothing(run, monkeypatch):
    """What a thread still computes when all is over is sent nowhere."""
    go_on, ended = threading.Event(), threading.Event()

    def patient(*arguments):
        leave = lend_place()
        assert go_on.wait(PATIENCE)
        leave()
        ended.set()
        return evaluate_batch(*arguments)

    monkeypatch.setattr("topospread.transports.grpc.decision.evaluate_batch", patient)
    monkeypatch.setattr(pool, "JOIN_SECONDS", 0.0)
    running = run(grace="0s")
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
    call = running.peer.engine.BatchEvaluatePods.future(request, timeout=PATIENCE)
    decisions = running.server._pools.decisions
    until(lambda: decisions.waiting == 1, "it waits")
    running.server.stop()
    assert call.code() in (CODE.CANCELLED, CODE.UNAVAILABLE)
    go_on.set()
    assert ended.wait(PATIENCE)
    until(lambda: not decisions.busy, "its thread is done")
