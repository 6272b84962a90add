"""Decisions that are answered by the threads that take them from gRPC."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.servers import Peer, evaluate_request, pod, served
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.api.decision import _with_statuses
from topospread.calls import executor
from topospread.calls.executor import Executor
from topospread.checkpoints import waiting, will_take_long
from topospread.codec.fields import delimited
from topospread.rpc import completion_queue
from topospread.rpc.completion_queue import CompletionQueue, IncomingCall
from topospread.service.decisions.batch import evaluate_batch
from topospread.spread.classes import judge
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


def test_both_transports_answer_alike(run):
    straight, handed = run(), run(transport="grpcio-threads")
    assert isinstance(straight.server.pools.decisions, CompletionQueue)
    assert isinstance(handed.server.pools.decisions, Executor)
    for name, request in questions():
        assert answered(straight, name, request) == answered(handed, name, request)


def test_bytes_that_do_not_decide_cost_a_pod_nothing(run, monkeypatch):
    """A Go client's Marshal() has managedFields, often more bytes of them than of all else."""
    judged, handed_over = list[object](), list[object]()

    def counting(*arguments: Any) -> Any:
        judged.append(arguments)
        return judge(*arguments)

    monkeypatch.setattr("topospread.service.decisions.evaluate.judge", counting)
    monkeypatch.setattr("topospread.checkpoints.BRIEF", PATIENCE)
    running = run()
    bare = evaluate_request()
    # In Pod: metadata (1); there: managedFields (17), an entry's manager (1) and fieldsV1 (7).
    entry = delimited(1, b"kubectl") + delimited(7, delimited(1, b"x" * (20 << 10)))
    managed = delimited(1, delimited(17, entry))
    marshalled = bare.pod.object.SerializeToString() + managed
    large = pb.EvaluatePodRequest(pod=common_pb2.PodSource(object_proto=marshalled))
    alone = answered(running, "EvaluatePod", bare)
    monkeypatch.setattr(running.server.pools.decisions.slow, "put", handed_over.append)
    assert [answered(running, "EvaluatePod", large) for _ in range(3)] == [alone] * 3
    assert len(judged) == 1
    assert not handed_over


def test_calls_whose_message_does_not_come_are_bounded(run, monkeypatch):
    monkeypatch.setattr(completion_queue, "MAX_PENDING", 3)
    running = run()
    reading = running.server.grpc.pipeline.parts.sweeper.reading
    method = "/topospread.v1.DecisionService/EvaluatePod"
    calls = [running.peer.silent_call(method) for _ in range(3)]
    until(lambda: len(reading) == 3, "they are taken")
    more = running.peer.silent_call(method)
    until(more.done, "it is refused")
    assert more.code() is CODE.RESOURCE_EXHAUSTED
    for call in calls:
        call.cancel()
    until(lambda: not reading, "they are gone")
    assert running.peer.evaluate().feasible_node_count == 1


def test_failure_of_one_call_ends_no_thread(run, monkeypatch, caplog):
    running = run()
    ended = threading.Event()

    def broken(*_):
        ended.set()
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(IncomingCall, "_answer", broken)
        call = running.peer.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE)
        assert ended.wait(PATIENCE)
        # Nobody holds the call any more, so gRPC ends it.
        until(call.done, "the caller is told")
    assert running.peer.evaluate().feasible_node_count == 1
    assert "a call was dropped" in caplog.text


def test_queue_is_bounded_when_all_messages_come_at_once(run):
    running = run(decision_queue=2)
    decisions = running.server.pools.decisions
    said = threading.Event()

    def late() -> Any:
        assert said.wait(PATIENCE)
        yield evaluate_request().SerializeToString()

    method: Any = running.peer.channel.stream_unary("/topospread.v1.DecisionService/EvaluatePod")
    with decisions.paused():
        calls = [method.future(late(), timeout=PATIENCE) for _ in range(5)]
        until(lambda: len(decisions.sweeper.reading) == 5, "their headers are there")
        said.set()
        until(lambda: sum(call.done() for call in calls) == 3, "three are refused")
        assert decisions.depth == 2
    codes = sorted(call.code().name for call in calls)
    assert codes == ["OK", "OK", *["RESOURCE_EXHAUSTED"] * 3]


def test_large_requests_that_wait_are_bounded(run):
    running = run(max_held_bytes="1MiB")
    decisions, guard = running.server.pools.decisions, running.server.grpc.pipeline.parts.guard
    large = evaluate_request()
    large.pod.object.metadata.annotations["notes"] = "x" * (200 << 10)
    send = running.peer.engine.EvaluatePod.future
    with Peer(running.server.address) as other:
        with decisions.paused():
            calls = [send(large, timeout=PATIENCE) for _ in range(4)]
            until(lambda: sum(call.done() for call in calls) == 2, "half a MiB is one caller's")
            assert 400 << 10 <= guard.total <= 512 << 10
            others = other.engine.EvaluatePod.future(large, timeout=PATIENCE)
            until(lambda: decisions.depth == 3, "another's waits, too")
        codes = sorted(call.code().name for call in calls)
        assert codes == ["OK", "OK", *["RESOURCE_EXHAUSTED"] * 2]
        assert others.result(PATIENCE).feasible_node_count == 1
    until(lambda: guard.total == 0, "nothing is kept")


def test_batch_that_is_begun_again_is_counted_once(run, monkeypatch):
    running = run()
    running.peer.evaluate()  # the first one of a server takes long itself
    began: list[None] = []

    def long(*arguments):
        began.append(None)
        will_take_long()
        return _with_statuses(*arguments)

    monkeypatch.setattr("topospread.api.decision._with_statuses", long)
    running.peer.engine.BatchEvaluatePods(
        pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod]), timeout=PATIENCE
    )
    assert len(began) == 2, "in the fast lane and in the slow one"
    attempts = {"result": "scheduled", "profile": "default-scheduler"}
    assert value(running.metrics(), "scheduler_schedule_attempts_total", **attempts) == 2


def _awaits(decisions: CompletionQueue, calls: int) -> bool:
    return len(decisions.sweeper.reading) == calls


def test_server_stops_beside_idle_calls():
    for _ in range(3):
        with served(shutdown_grace_period="0s") as server, Peer(server.address) as peer:
            for _ in range(40):
                peer.silent_call("/topospread.v1.DecisionService/EvaluatePod")
            decisions = server.pools.decisions
            assert isinstance(decisions, CompletionQueue)
            until(partial(_awaits, decisions, 40), "all are there")
            server.stop()


def test_call_that_outlives_its_server_harms_nothing(run, monkeypatch):
    """What a thread still computes when all is over is sent nowhere."""
    go_on, ended = threading.Event(), threading.Event()

    def patient(*arguments):
        with waiting():
            assert go_on.wait(PATIENCE)
        ended.set()
        return evaluate_batch(*arguments)

    monkeypatch.setattr("topospread.api.decision.evaluate_batch", patient)
    monkeypatch.setattr(executor, "JOIN_SECONDS", 0.0)
    running = run(shutdown_grace_period="0s")
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
    call = running.peer.engine.BatchEvaluatePods.future(request, timeout=PATIENCE)
    decisions = running.server.pools.decisions
    until(lambda: decisions.blocked == 1, "it waits")
    running.server.stop()
    assert call.code() in (CODE.CANCELLED, CODE.UNAVAILABLE)
    go_on.set()
    assert ended.wait(PATIENCE)
    until(lambda: not decisions.busy, "its thread is done")


def test_server_whose_calls_are_brought_no_more_is_not_serving(run, monkeypatch, caplog):
    running = run()
    health: Any = health_pb2_grpc.HealthStub(running.peer.channel)
    request = health_pb2.HealthCheckRequest()
    assert health.Check(request).status == health_pb2.HealthCheckResponse.SERVING

    class Broken:
        """gRPC's server, of which no calls can be requested."""

        def request_registered_call(self, *_: object) -> int:
            return 7

    with monkeypatch.context() as patched:
        patched.setattr(running.server.pools.decisions, "_server", Broken())
        assert running.peer.evaluate().feasible_node_count == 1
        until(
            lambda: health.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING,
            "health says so",
        )
    assert "gRPC brings no more calls of /topospread.v1.DecisionService/EvaluatePod" in caplog.text
    running.server.grpc.health.set_serving()
    assert health.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING
