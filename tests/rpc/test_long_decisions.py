"""Long decisions run one at a time, and short ones do not wait for them."""

from __future__ import annotations

import threading
import time

import pytest

from tests.servers import evaluate_request
from tests.waiting import PATIENCE, until
from topospread.checkpoints import BRIEF, checkpoint
from topospread.service.decisions.evaluate import evaluate_batch
from topospread_proto.v1 import decision_service_pb2 as pb

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
