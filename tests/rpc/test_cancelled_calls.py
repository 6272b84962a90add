"""Calls that were cancelled or have expired are not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from bench.campaigns.abandoned import abandoned
from bench.cluster import Size
from bench.processes import server
from bench.stores import filled_store
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones
from tests.waiting import PATIENCE, until
from topospread.checkpoints import will_take_long
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
