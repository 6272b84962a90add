"""Servers are restarted one after the other behind the balancer as it is shipped: no call fails."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import pytest

from tests.deploy.files import FOLDER, services
from tests.redis_server import free_port
from tests.requirements import need
from tests.servers import Peer, ServerProcess, evaluate_request, http_get, two_zones
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import decision_service_pb2_grpc as engine_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisProcess

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


def configured(ports: list[tuple[int, int]], front: int, stats: int) -> str:
    """The balancer's file, with addresses of this machine in place of compose's names."""
    text = (FOLDER / "haproxy.cfg").read_text()
    text = re.sub(r"(?m)^resolvers docker\n(  .*\n)+", "", text)
    changes = [
        (" resolvers docker init-addr last,libc,none resolve-prefer ipv4", " init-addr none"),
        ("bind :7946", f"bind 127.0.0.1:{front}"),
        ("bind :8404", f"bind 127.0.0.1:{stats}"),
    ]
    for number, (port, http) in enumerate(ports, 1):
        line = f"server topospread-{number} topospread-{number}:7946"
        changes.append((line, f"server topospread-{number} 127.0.0.1:{port} port {http}"))
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("restarts", [2, pytest.param(6, marks=pytest.mark.faults)])
def test_a_rolling_restart_behind_the_balancer_fails_no_call(
    start_redis: Callable[..., RedisProcess], tmp_path: Path, restarts: int
) -> None:
    haproxy = need("haproxy")
    flags = services()["topospread-1"]["command"]
    (delay,) = [flag for flag in flags if flag.startswith("--shutdown-delay")]
    store = start_redis().url
    ports = [(free_port(), free_port()) for _ in range(2)]
    front, stats = free_port(), free_port()
    file = tmp_path / "haproxy.cfg"
    file.write_text(configured(ports, front, stats))

    def run(port: int, http: int) -> ServerProcess:
        listen = ("--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http}")
        return ServerProcess("--store", store, delay, *listen)

    def in_turn() -> int:
        """How many servers the balancer gives calls to."""
        rows = http_get(f"http://127.0.0.1:{stats}/;csv")[1].splitlines()
        servers = [row.split(",") for row in rows if row.startswith("topospread,topospread-")]
        return sum(row[17] == "UP" for row in servers)

    with ExitStack() as ending:
        servers: list[ServerProcess] = []
        # Before they are started: the second may fail to.
        ending.callback(lambda: [server.end() for server in servers])
        servers.extend(run(*each) for each in ports)
        with Peer(servers[0].address) as peer:
            peer.apply(*two_zones())
        balancer = subprocess.Popen([haproxy, "-db", "-f", str(file)], stdout=subprocess.DEVNULL)
        ending.callback(balancer.wait)
        ending.callback(balancer.kill)
        until(lambda: reached(in_turn) == 2, "both servers are in turn")
        with Callers(f"127.0.0.1:{front}") as callers:
            for number in range(restarts):
                which = number % 2
                before = callers.answered
                until(lambda at=before: callers.answered > at + 50, "calls go on")  # type: ignore[misc]
                assert servers[which].end() == 0
                servers[which] = run(*ports[which])
                until(lambda: in_turn() == 2, "it is in turn again")
    assert callers.failed == []
    assert callers.answered > 50 * restarts


def reached(ask: Callable[[], int]) -> int:
    """What is answered; -1 while there is no answer yet."""
    try:
        return ask()
    except OSError:
        return -1
