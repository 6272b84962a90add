"""Calls while their server stops, and streams whose callers say nothing."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.redis_server import free_port
from tests.servers import (
    Peer,
    at_least,
    evaluate_request,
    incoming,
    pod,
    served,
    threads_end,
    two_zones,
)
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread_client import Client, Connection, TopospreadClientError
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rpc.conftest import Running
    from topospread.app.server import Server

CODE = grpc.StatusCode
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def in_thread(work) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_running_and_queued_calls_are_answered():
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        with server.pools.decisions.paused():
            calls = [peer.engine.EvaluatePod.future(evaluate_request()) for _ in range(30)]
            until(lambda: server.pools.decisions.arrived == 30, "they stand in line")
            stopping = in_thread(server.stop)
            until(lambda: server.ready() == (False, ("stopping",)), "it stops")
        stopping.join(PATIENCE)
        assert [call.result(PATIENCE).feasible_node_count for call in calls] == [1] * 30
        with pytest.raises(grpc.RpcError) as refused:
            peer.evaluate()
        assert refused.value.code() is CODE.UNAVAILABLE


def test_calls_are_taken_until_the_shutdown_delay_is_over():
    with served(shutdown_delay="10m") as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        health: Any = health_pb2_grpc.HealthStub(peer.channel)
        stopping = in_thread(server.stop)
        until(
            lambda: health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING,
            "balancers can tell that it stops",
        )
        assert server.ready() == (False, ("stopping",))
        assert peer.evaluate().feasible_node_count == 1
        # A second signal ends the wait.
        server.force_stop()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


@contextmanager
def waiting_call(news: threading.Event, grace: str) -> Iterator[tuple[Server, Any]]:
    """A server, and a call of it that waits for news."""
    with served(shutdown_grace_period=grace) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        assert peer.evaluate().feasible_node_count == 1
        news.clear()
        later = at_least(peer.apply(pod("web-3", "b1")))
        call = peer.engine.EvaluatePod.future(evaluate_request(consistency=later), timeout=PATIENCE)
        until(lambda: server.pools.decisions.blocked == 1, "it waits")
        yield server, call


@pytest.mark.parametrize("again", [False, True])
def test_waiting_call_may_use_the_grace_period(news, again):
    with waiting_call(news, "10m") as (server, call):
        stopping = in_thread(server.stop)
        until(lambda: server.ready() == (False, ("stopping",)), "it stops")
        if again:  # a second signal ends the wait
            server.force_stop()
        else:
            news.set()
            assert call.result(PATIENCE).feasible_node_count == 3
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert call.code() in ((CODE.CANCELLED, CODE.UNAVAILABLE) if again else (CODE.OK,))


def test_call_that_waits_beyond_the_grace_period_is_cancelled(news):
    with waiting_call(news, "0s") as (server, call):
        server.stop()
        assert call.code() in (CODE.CANCELLED, CODE.UNAVAILABLE)


def test_health_reports_not_serving_first_and_its_watches_delay_nothing():
    with served(shutdown_grace_period="10m") as server, Peer(server.address) as peer:
        stub: Any = health_pb2_grpc.HealthStub(peer.channel)
        seen: list[list[int]] = [[] for _ in range(20)]

        def watch(statuses):
            # All the while: gRPC drops what was not asked for when a call ends.
            with suppress(grpc.RpcError):
                for answer in stub.Watch(health_pb2.HealthCheckRequest()):
                    statuses.append(answer.status)

        watches = [in_thread(partial(watch, statuses)) for statuses in seen]
        until(lambda: all(seen), "they watch")
        for thread in (in_thread(server.stop), *watches):
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert seen == [[SERVING, NOT_SERVING]] * 20


def test_clients_retry_policy_loses_no_call(tmp_path):
    """Two servers, of which one stops under load, and then comes back and the other stops."""
    store = f"sqlite:///{tmp_path}/state.db"
    ended: Counter[str] = Counter()
    over = threading.Event()

    def load(address: str) -> None:
        with Client(Connection(address, insecure=True), timeout=PATIENCE) as client:
            while not over.is_set():
                try:
                    assert client.evaluate_pod(incoming()).feasible_node_count == 1
                    ended["answered"] += 1
                except TopospreadClientError as error:
                    ended[repr(error)] += 1

    with ExitStack() as running:
        # The one that comes back finds its port free.
        listen = f"127.0.0.1:{free_port()}"
        first = running.enter_context(served(store=store, listen=listen))
        second = running.enter_context(served(store=store))
        with Peer(first.address) as peer:
            peer.apply(*two_zones())
        callers = [
            in_thread(lambda a=a, b=b: load(f"ipv4:{a.address},{b.address}"))
            for a, b in [(first, second), (second, first)] * 4
        ]
        until(lambda: ended["answered"] > 100, "load is on")
        first.stop()
        so_far = ended["answered"]
        until(lambda: ended["answered"] > so_far + 100, "the other one takes over")
        running.enter_context(served(store=store, listen=listen))
        second.stop()
        so_far = ended["answered"]
        until(lambda: ended["answered"] > so_far + 100, "the first one takes over")
        over.set()
        for caller in callers:
            caller.join(PATIENCE)
    assert ended.keys() == {"answered"}


def test_stopped_server_leaves_no_thread_or_file(tmp_path):
    with threads_end():
        for number in range(3):
            store = f"sqlite:///{tmp_path}/{number}.db"
            with served(store=store, http="127.0.0.1:0") as server, Peer(server.address) as peer:
                peer.apply(*two_zones())
                peer.evaluate()


# ------------------------------ streams that say nothing

WATCH = "/topospread.v1.ClusterStateService/WatchObjects"


@pytest.fixture
def running(monkeypatch, run) -> Running:
    # A stream that has not said anything is late at once.
    monkeypatch.setattr("topospread.calls.memory.READ_SECONDS", 0.0)
    monkeypatch.setattr("topospread.app.capacity.MAX_STREAMS", 2)
    made: Running = run(shutdown_grace_period="10m")
    return made


def test_silent_stream_is_ended_for_others(running):
    streams, peer = running.server.pools.executors["streams"], running.peer
    request = pb.WatchObjectsRequest(send_initial=True)
    watch = peer.state.WatchObjects(request)
    next(watch)
    silent = peer.silent_call(WATCH)
    until(silent.done, "it is ended")
    assert silent.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    labels = {"method": "ClusterStateService/WatchObjects", "code": "RESOURCE_EXHAUSTED"}
    until(lambda: value(running.metrics(), "topospread_calls_total", **labels), "it is counted so")
    until(lambda: streams.busy == 1, "there is room")
    other = peer.state.WatchObjects(request)
    next(other)
    assert watch.is_active()
    other.cancel()
    watch.cancel()


def test_silent_stream_does_not_delay_the_servers_stop(running):
    silent = running.peer.silent_call(WATCH)
    running.server.stop()
    assert silent.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_stream_that_idles_between_questions_does_not_delay_the_servers_stop(run):
    running = run(shutdown_grace_period="10m")
    asked = threading.Event()
    question = reflection_pb2.ServerReflectionRequest(list_services="")

    def questions():
        yield question
        asked.wait(PATIENCE)

    stub: Any = reflection_pb2_grpc.ServerReflectionStub(running.peer.channel)
    answers = stub.ServerReflectionInfo(questions())
    next(answers)
    running.server.stop()
    assert answers.code() is grpc.StatusCode.UNAVAILABLE
    asked.set()


def test_watch_outlives_the_default_deadline_of_a_call(running, monkeypatch):
    monkeypatch.setattr("topospread.calls.pipeline.DEFAULT_DEADLINE", 0.0)
    watch = running.peer.state.WatchObjects(pb.WatchObjectsRequest(send_initial=True))
    next(watch)
    watch.cancel()
