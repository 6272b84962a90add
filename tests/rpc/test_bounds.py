"""Waiting calls, calls past a bound, expired calls: none blocks another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.servers import Peer, at_least, evaluate_request, expired, pod
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.calls.memory import MemoryGuard
from topospread.calls.pipeline import LARGE
from topospread.replica import replica
from topospread.replica.view import Token
from topospread.store.model import Revision
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.calls.memory import Held
    from topospread_proto.v1.common_pb2 import Consistency

CODE = grpc.StatusCode


def ahead(revision: str, by: int) -> Consistency:
    """The demand for a revision that is still to come."""
    token = Token.decode(revision)
    return at_least(Token(token.identity, Revision(token.revision.number + by, "")).encode())


def code_of(call: grpc.Future) -> grpc.StatusCode:
    """The status that a call ends with."""
    until(call.done, "the call ends")
    assert isinstance(call, grpc.Call)
    code: grpc.StatusCode = call.code()
    return code


def health(peer) -> int:
    stub: Any = health_pb2_grpc.HealthStub(peer.channel)
    status: int = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
    return status


def services(peer) -> int:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(peer.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE)
    return len(next(iter(answers)).list_services_response.service)


def still_answered(peer) -> None:
    """What has pools of its own."""
    assert health(peer) == health_pb2.HealthCheckResponse.SERVING
    assert services(peer) >= 4
    assert peer.state.ListClusters(state_pb.ListClustersRequest(), timeout=PATIENCE).clusters


def test_64_waiting_calls_block_no_other_and_the_next_is_refused(news, run):
    running = run()
    peer = running.peer
    assert peer.evaluate(consistency=at_least(running.revision)).feasible_node_count == 1
    news.clear()
    request = evaluate_request(consistency=at_least(peer.apply(pod("web-3", "b1"))))
    waiting = [peer.engine.EvaluatePod.future(request, timeout=PATIENCE) for _ in range(64)]

    def all_wait() -> bool:
        assert [call.details() for call in waiting if call.done()] == []
        return value(running.metrics(), "topospread_waiting_calls", pool="decisions") == 64

    until(all_wait, "64 calls wait")
    for _ in range(100):
        assert peer.evaluate().feasible_node_count == 1
    with pytest.raises(grpc.RpcError) as refused:
        peer.engine.EvaluatePod(request, timeout=PATIENCE)
    assert refused.value.code() is CODE.RESOURCE_EXHAUSTED
    assert "64 calls wait" in str(refused.value.details())
    still_answered(peer)
    assert not any(call.done() for call in waiting)

    news.set()

    assert [call.result().feasible_node_count for call in waiting] == [3] * 64
    until(
        lambda: value(running.metrics(), "topospread_waiting_calls", pool="decisions") == 0,
        "nobody waits",
    )


def test_wait_ends_with_the_callers_deadline(run):
    running = run()
    request = evaluate_request(consistency=ahead(running.revision, 1))
    with pytest.raises(grpc.RpcError) as late:
        running.peer.engine.EvaluatePod(request, timeout=0.1)
    assert late.value.code() is CODE.DEADLINE_EXCEEDED
    until(
        lambda: value(running.metrics(), "topospread_waiting_calls", pool="decisions") == 0,
        "the wait is over on the server, too",
    )


def test_wait_for_a_future_revision_ends_with_its_cluster(run, monkeypatch):
    # The store is not asked whether the revision will ever come: that would end the wait, too.
    monkeypatch.setattr(replica, "LONG_WAIT", 2 * PATIENCE)
    running = run()
    peer = running.peer
    assert peer.evaluate().feasible_node_count == 1  # loaded: the next one waits for the revision
    request = evaluate_request(consistency=ahead(running.revision, 1))
    call = peer.engine.EvaluatePod.future(request, timeout=2 * PATIENCE)
    until(
        lambda: value(running.metrics(), "topospread_waiting_calls", pool="decisions") == 1,
        "it waits",
    )
    peer.state.DeleteCluster(state_pb.DeleteClusterRequest(cluster="default"), timeout=PATIENCE)
    assert code_of(call) in (CODE.UNAVAILABLE, CODE.OUT_OF_RANGE)


def test_full_queue_refuses_at_once_and_loses_no_call(run):
    running = run(decision_queue=2)
    peer, pools = running.peer, running.server.pools
    with pools.decisions.paused():
        calls = [peer.engine.EvaluatePod.future(evaluate_request(), timeout=PATIENCE) for _ in "ab"]
        until(lambda: pools.decisions.depth == 2, "the line is full")
        for method in (peer.engine.EvaluatePod, peer.engine.PreFilter):
            with pytest.raises(grpc.RpcError) as refused:
                method(evaluate_request(), timeout=PATIENCE)
            assert refused.value.code() is CODE.RESOURCE_EXHAUSTED
            trailers: Any = refused.value.trailing_metadata()
            assert "traceparent" in dict(trailers)
        still_answered(peer)
        assert not any(call.done() for call in calls)
    assert [call.result().feasible_node_count for call in calls] == [1, 1]
    metrics = running.metrics()
    assert value(metrics, "topospread_queue_rejections_total", pool="decisions") == 2
    refused_calls = {"method": "DecisionService/EvaluatePod", "code": "RESOURCE_EXHAUSTED"}
    assert value(metrics, "topospread_calls_total", **refused_calls) == 1


def test_call_expired_in_the_queue_is_not_computed(run):
    running = run()
    peer, pools = running.peer, running.server.pools
    peer.evaluate()
    with pools.decisions.paused():
        for number in range(2, 7):
            call = expired(
                lambda seconds: peer.engine.EvaluatePod.future(evaluate_request(), timeout=seconds),
                lambda number=number: pools.decisions.arrived >= number,  # type: ignore[misc] # of this turn
            )
            assert call.code() is CODE.DEADLINE_EXCEEDED
    assert peer.evaluate().feasible_node_count == 1
    until(lambda: running.expired_calls("DecisionService/EvaluatePod") >= 5, "all are counted")
    attempts = {"result": "scheduled", "profile": "default-scheduler"}
    assert value(running.metrics(), "scheduler_schedule_attempts_total", **attempts) == 2


@pytest.mark.parametrize(
    "method",
    [
        "topospread.v1.DecisionService/EvaluatePod",
        "topospread.v1.ClusterStateService/ReplaceObjects",
    ],
)
def test_calls_without_messages_block_no_other_caller(run, method):
    running = run()
    silent = [running.peer.silent_call(f"/{method}") for _ in range(300)]
    with Peer(running.server.address) as other:
        assert other.evaluate().feasible_node_count == 1
        still_answered(other)
    for call in silent:
        call.cancel()


def test_cancelled_calls_are_counted(run):
    running = run()
    call = running.peer.silent_call("/topospread.v1.DecisionService/Filter")
    until(lambda: running.server.grpc.pipeline.parts.sweeper.reading, "it is taken")
    call.cancel()
    # gRPC may tell that no message comes before it tells why.
    codes = ("CANCELLED", "INVALID_ARGUMENT")
    until(
        lambda: (
            sum(
                value(
                    running.metrics(),
                    "topospread_calls_total",
                    method="DecisionService/Filter",
                    code=code,
                )
                or 0
                for code in codes
            )
            == 1
        ),
        "the server notices",
    )


def test_streams_past_the_bound_are_refused_and_not_queued(run, monkeypatch):
    monkeypatch.setattr("topospread.app.capacity.MAX_STREAMS", 2)
    running = run()
    peer = running.peer
    request = state_pb.WatchObjectsRequest(revision=running.revision)
    open_streams = [peer.state.WatchObjects(request) for _ in range(2)]
    until(lambda: running.server.pools.executors["streams"].busy == 2, "both are open")
    for stream in (peer.state.WatchObjects(request), peer.state.WatchObjects(request)):
        assert stream.code() is CODE.RESOURCE_EXHAUSTED
        assert "streams" in stream.details()
    assert health(peer) == health_pb2.HealthCheckResponse.SERVING
    peer.apply(pod("web-3", "b1"))
    assert [next(stream).events[0].object.pod.metadata.name for stream in open_streams] == [
        "web-3",
        "web-3",
    ]
    open_streams[0].cancel()
    until(lambda: running.server.pools.executors["streams"].busy == 1, "the server lets it go")
    assert next(peer.state.WatchObjects(request)).events[0].object.pod.metadata.name == "web-3"
    open_streams[1].cancel()


def test_a_connection_is_one_owner_of_all_that_is_kept_for_it(run, monkeypatch):
    owners = []
    hold = MemoryGuard.hold

    def noted(guard: MemoryGuard, owner: Hashable, size: int = 0, **how: bool) -> Held:
        owners.append(owner)
        return hold(guard, owner, size, **how)

    monkeypatch.setattr(MemoryGuard, "hold", noted)
    peer = run().peer
    large = evaluate_request()
    large.pod.object.metadata.annotations["large"] = "x" * (2 * LARGE)

    peer.engine.EvaluatePod(large, timeout=PATIENCE)
    peer.state.ListObjects(state_pb.ListObjectsRequest(kind=common_pb2.KIND_NODE), timeout=PATIENCE)

    assert len(owners) >= 2
    assert len(set(owners)) == 1
