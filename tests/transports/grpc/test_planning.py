"""The planner's calls: bounded, ended by deadlines, and never in the way of decisions."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import PATIENCE, incoming
from topospread.transports.grpc import simulating
from topospread_client.client import Client
from topospread_client.errors import DeadlineExceeded, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable


class Brake:
    """Simulations stand still between two pods until they are let go."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self._let_go = threading.Event()

    def __call__(self, call: Any) -> Callable[[], None]:
        del call

        def pause() -> None:
            self.reached.release()
            assert self._let_go.wait(PATIENCE)

        return pause

    def let_go(self) -> None:
        self._let_go.set()


def test_a_long_simulation_holds_up_no_decision(run, monkeypatch: pytest.MonkeyPatch):
    brake = Brake()
    monkeypatch.setattr(simulating, "pause_between", brake)
    running = run(planner_threads="1", planner_queue="1")
    with Client(running.server.address, timeout=PATIENCE) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.simulate, incoming())
        assert brake.reached.acquire(timeout=PATIENCE)
        _until_refused(client)

        assert running.peer.evaluate().feasible == 1
        assert client.place(incoming()).node == "b1"
        brake.let_go()
        assert first.result(PATIENCE).placed == 1


def _until_refused(client: Client) -> None:
    """One call computes: the next stands in line and gives up, and one more finds no room."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            client.simulate(incoming(), timeout=0.2)
        except LimitExceeded:
            return
        except DeadlineExceeded:
            continue
    pytest.fail("the line has no bound")


def test_a_simulation_ends_with_its_deadline(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simulating, "pause_between", lambda _: lambda: time.sleep(0.001))
    running = run(planner_threads="1", max_simulated_pods="100000")
    with Client(running.server.address, timeout=PATIENCE) as client:
        with pytest.raises(DeadlineExceeded):
            client.simulate(incoming(), replicas=100_000, timeout=0.3)
        # The only thread is free for others again.
        assert client.simulate(incoming(), replicas=1).placed == 1
