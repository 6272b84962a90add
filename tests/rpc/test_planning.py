"""The planner's calls: bounded, ended by deadlines, and never blocking decisions."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import pytest

from tests.servers import incoming
from tests.waiting import PATIENCE
from topospread.checkpoints import checkpoint
from topospread.service.simulation import run as run_module
from topospread_client import pod_from_manifest
from topospread_proto.v1.planner_service_pb2 import SimulateRequest
from topospread_proto.v1.scenario_pb2 import PodsToPlace


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
    monkeypatch.setattr("topospread.app.factories.PLANNER_THREADS", 1)
    monkeypatch.setattr("topospread.app.factories.PLANNER_QUEUE", 1)
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
    running = run(max_simulated_pods="30000")
    simulate = running.peer.planner.Simulate
    late = simulate.future(request(30_000), timeout=0.3)
    assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Others may compute again.
    assert simulate(request(1), timeout=PATIENCE).placed_pod_count == 1
