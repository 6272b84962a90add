"""Calls that were cancelled or have expired are not computed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import grpc
import pytest

from bench.campaigns.abandoned import LONG, abandoned
from bench.cluster import Size
from bench.processes import server
from bench.stores import filled_store
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones
from tests.waiting import PATIENCE, until
from topospread.service.decisions.evaluate import evaluate_batch
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.processes import Running

CALLS = 40
FEW = 8

LITTLE = 0.6
"""Seconds of CPU: at most a tenth of what the calls of these tests cost."""

TRANSPORTS = ("grpcio", "grpcio-threads")


@pytest.fixture(scope="module", params=TRANSPORTS)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server whose calls take long."""
    with (
        filled_store(Size(1000, 4000)) as store,
        server(store, f"--transport={request.param}") as one,
    ):
        yield one


def test_cancelled_calls_cost_no_cpu(running):
    spent = abandoned(running, "DecisionService/BatchEvaluatePods", CALLS, at_first=True)
    # One thread or two answer them one by one, so that most are left when the first is done.
    assert spent.codes["CANCELLED"] >= 1
    assert spent.cpu < LITTLE
    assert spent.answered


@pytest.mark.parametrize("method", ["DecisionService/BatchEvaluatePods", "PlannerService/Simulate"])
def test_expired_calls_cost_no_cpu(running, method):
    assert method in LONG
    spent = abandoned(running, method, FEW, deadline=0.1)
    # Where the server's clock is first, gRPC's core resets the stream, which is CANCELLED.
    assert sum(spent.codes.values()) == FEW
    assert spent.codes.keys() <= {"DEADLINE_EXCEEDED", "CANCELLED"}
    assert spent.cpu < LITTLE


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_server_stops_while_calls_are_cancelled(transport):
    request = pb.BatchEvaluatePodsRequest(pods=[evaluate_request().pod] * 200)
    for number in range(2):
        with (
            ServerProcess(
                "--store", "memory:", "--shutdown-grace-period", "200ms", "--transport", transport
            ) as serving,
            Peer(serving.address) as peer,
        ):
            peer.apply(*two_zones())
            futures = [peer.engine.BatchEvaluatePods.future(request) for _ in range(CALLS)]
            until(futures[0].done, "one is answered")
            for future in futures[number % 2 :: 2]:
                future.cancel()
            # A process that gRPC's core aborts says so with its exit code.
            assert serving.end() == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_call_cancelled_in_the_queue_is_not_begun(run, monkeypatch, transport):
    running = run(decision_threads=1, transport=transport)
    begun, go_on = [], threading.Event()

    def noted(engine, ask, pods, *more):
        begun.append(len(pods))
        assert go_on.wait(PATIENCE)
        return evaluate_batch(engine, ask, pods, *more)

    monkeypatch.setattr("topospread.servicers.decision.evaluate_batch", noted)
    decisions = running.server.pools.decisions
    with decisions.paused():
        question = evaluate_request().pod
        call = running.peer.engine.BatchEvaluatePods
        futures = [
            call.future(pb.BatchEvaluatePodsRequest(pods=[question] * size), timeout=PATIENCE)
            for size in (1, 2, 3)
        ]
        # The thread of a pool takes one to wait with.
        lined_up = len(futures) - (transport == "grpcio-threads")
        until(lambda: decisions.depth == lined_up, "they stand in line")
        futures[1].cancel()
        # The server hears of it before what is sent next on the same connection.
        running.peer.await_revision(running.revision)
    go_on.set()
    for future in (futures[0], futures[2]):
        assert future.result(PATIENCE).results
    assert sorted(begun) == [1, 3]
    assert futures[1].code() is grpc.StatusCode.CANCELLED
