"""Long calls delay no short one, are bounded, and end with their callers and deadlines."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench.campaigns.abandoned import abandoned
from bench.cluster import Size
from bench.processes import server
from bench.stores import filled_store
from tests.servers import Peer, ServerProcess, evaluate_request, incoming, two_zones
from tests.waiting import PATIENCE, until
from topospread.checkpoints import BRIEF, checkpoint, will_take_long
from topospread.service.decisions.batch import evaluate_batch
from topospread.service.simulation import run as run_module
from topospread_client import pod_from_manifest
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.planner_service_pb2 import SimulateRequest
from topospread_proto.v1.scenario_pb2 import PodsToPlace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.processes import Running

# ------------------------------ decisions

MANY = 12


@pytest.mark.parametrize("transport", ["grpcio", "grpcio-threads"])
def test_a_short_decision_waits_for_no_long_one(run, monkeypatch, transport):
    running = run(transport=transport)
    running.peer.evaluate()  # the first one of a server takes long itself
    long = set[int]()
    end = threading.Event()

    def slow(engine, ask, pods, *more):
        until_long = time.thread_time() + 5 * BRIEF
        while time.thread_time() < until_long:
            checkpoint()
        long.add(threading.get_ident())
        while not end.is_set():
            checkpoint()
            time.sleep(0.001)
        return evaluate_batch(engine, ask, pods, *more)

    monkeypatch.setattr("topospread.api.decision.evaluate_batch", slow)
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
    futures = [
        running.peer.engine.BatchEvaluatePods.future(request, timeout=PATIENCE) for _ in range(MANY)
    ]
    try:
        until(lambda: len(long) == 1, "one takes long")
        assert running.peer.evaluate().node_count
        assert len(long) == 1
    finally:
        end.set()
    assert all(future.result(PATIENCE).results for future in futures)


# ------------------------------ plans


class Brake:
    """Simulations stand still between two pods until they are let go."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._let_go = threading.Event()

    def __call__(self) -> None:
        self.reached.release()
        assert self._let_go.wait(PATIENCE)

    def let_go(self) -> None:
        self._let_go.set()


def request(replicas: int | None = None) -> SimulateRequest:
    pods = PodsToPlace(replicas=replicas)
    pods.pod.object.CopyFrom(pod_from_manifest(incoming()))
    return SimulateRequest(pods=[pods])


def test_long_simulation_blocks_no_decision(run, monkeypatch: pytest.MonkeyPatch):
    brake = Brake()
    monkeypatch.setattr(run_module, "checkpoint", brake)
    monkeypatch.setattr("topospread.app.capacity.PLANNER_THREADS", 1)
    monkeypatch.setattr("topospread.app.capacity.PLANNER_QUEUE", 1)
    running = run()
    simulate = running.peer.planner.Simulate
    first = simulate.future(request(), timeout=PATIENCE)
    assert brake.reached.acquire(timeout=PATIENCE)
    _until_refused(simulate)

    assert running.peer.evaluate().feasible_node_count == 1
    brake.let_go()
    assert first.result(PATIENCE).placed_pod_count == 1


def _until_refused(simulate: Any) -> None:
    """One call computes: the next stands in line and gives up, and one more finds no room."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        code = simulate.future(request(), timeout=0.2).code()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    pytest.fail("the line has no bound")


def test_simulation_ends_with_its_deadline(run, monkeypatch: pytest.MonkeyPatch):

    def slow() -> None:
        time.sleep(0.001)
        checkpoint()

    monkeypatch.setattr(run_module, "checkpoint", slow)
    running = run()
    simulate = running.peer.planner.Simulate
    late = simulate.future(request(10_000), timeout=0.3)
    assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Others may compute again.
    assert simulate(request(1), timeout=PATIENCE).placed_pod_count == 1


# ------------------------------ callers that are gone

CALLS = 40
FEW = 8

LITTLE = 0.6
"""Seconds of CPU: at most a tenth of what the calls of these tests cost."""

TRANSPORTS = ("grpcio", "grpcio-threads")


@pytest.fixture
def running() -> Iterator[Running]:
    """A server whose calls take long."""
    with filled_store(Size(1000, 4000)) as store, server(store) as one:
        yield one


def test_expired_plans_cost_no_cpu(running):
    """Of batches the same is tried in tests/overload/test_gone_callers.py."""
    spent = abandoned(running, "PlannerService/Simulate", FEW, deadline=0.1)
    # Where the server's clock is first, gRPC's core resets the stream, which is CANCELLED.
    assert sum(spent.codes.values()) == FEW
    assert spent.codes.keys() <= {"DEADLINE_EXCEEDED", "CANCELLED"}
    assert spent.cpu < LITTLE


def test_server_stops_while_calls_are_cancelled():
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod] * 200)
    with (
        ServerProcess("--store", "memory:", "--shutdown-grace-period", "200ms") as serving,
        Peer(serving.address) as peer,
    ):
        peer.apply(*two_zones())
        futures = [peer.engine.BatchEvaluatePods.future(request) for _ in range(CALLS)]
        until(futures[0].done, "one is answered")
        for future in futures[::2]:
            future.cancel()
        # A process that gRPC's core aborts says so with its exit code.
        assert serving.end() == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_call_cancelled_in_the_queue_is_not_begun(run, monkeypatch, transport):
    running = run(transport=transport)
    begun = list[int]()

    def noted(engine, ask, pods, *more):
        will_take_long()
        begun.append(len(pods))
        return evaluate_batch(engine, ask, pods, *more)

    monkeypatch.setattr("topospread.api.decision.evaluate_batch", noted)
    turn = running.server.pools.turn
    turn.acquire()
    question = evaluate_request().pod
    call = running.peer.engine.BatchEvaluatePods
    futures = [
        call.future(pb.BatchEvaluatePodsRequest(pods=[question] * size), timeout=PATIENCE)
        for size in (1, 2, 3)
    ]
    try:
        decisions = running.server.pools.decisions
        until(lambda: decisions.depth + turn.waiting >= len(futures), "they stand in line")
        futures[1].cancel()
        # The server hears of it before what is sent next on the same connection.
        running.peer.await_revision(running.revision)
    finally:
        turn.release()
    for future in (futures[0], futures[2]):
        assert future.result(PATIENCE).results
    assert sorted(begun) == [1, 3]
    assert futures[1].code() is grpc.StatusCode.CANCELLED
