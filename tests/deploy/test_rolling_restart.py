"""Servers are restarted one after the other behind the balancer as it is shipped: no call fails."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import pytest

from bench.campaigns.load import Load
from tests.deploy.balanced import Balanced
from tests.servers import evaluate_request
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import decision_service_pb2_grpc as engine_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisProcess

pytestmark = pytest.mark.long

CALLERS: Final = 12

PAUSE: Final = 0.01
"""Seconds between two calls of a caller: some hundreds a second of all of them."""


class Callers:
    """Threads that call one address, each call once, from entering to leaving it.

    Attributes:
        answered: calls.
        failed: what calls failed with.
    """

    def __init__(self, address: str) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._address = address
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def until_answered(self, more: int) -> None:
        """Let so many more calls be answered."""
        goal = self.answered + more
        until(lambda: self.answered >= goal, f"{more} more answers")

    def _call(self) -> None:
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self._address, options=options) as channel:
            engine: Any = engine_grpc.DecisionServiceStub(channel)
            while not self._stop.wait(PAUSE):
                try:
                    engine.EvaluatePod(evaluate_request(), timeout=PATIENCE)
                except grpc.RpcError as error:
                    call: Any = error
                    self.failed.append(f"{time.monotonic():.3f} {call.code()}: {call.details()}")
                else:
                    with self._lock:
                        self.answered += 1


@pytest.mark.parametrize("restarts", [2, pytest.param(6, marks=pytest.mark.faults)])
def test_a_rolling_restart_behind_the_balancer_fails_no_call(
    start_redis: Callable[..., RedisProcess], tmp_path: Path, restarts: int
) -> None:
    """Neither of callers that call once, nor of the client, its writes among them."""
    with (
        Balanced(start_redis().url, tmp_path) as servers,
        Callers(servers.address) as callers,
        Load([servers.address], writers=1, readers=2, retries=True) as load,
    ):
        for number in range(restarts):
            callers.until_answered(51)
            load.until_read()
            servers.restart(number % 2)
        load.until_read()
        load.until_written()
    assert callers.failed == []
    assert load.unread == []
    assert load.refused == Counter()


def test_servers_that_are_killed_behind_the_balancer_fail_no_call_that_is_repeated(
    start_redis: Callable[..., RedisProcess], tmp_path: Path
) -> None:
    with (
        Balanced(start_redis().url, tmp_path) as servers,
        Load([servers.address], writers=1, readers=3, retries=True) as load,
    ):
        for number in range(2):
            load.until_read(50)
            servers.restart(number, signal.SIGKILL)
        load.until_read(50)
        load.until_written()
    assert load.unread == []
    assert load.refused == Counter()
