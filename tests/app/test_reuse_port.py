"""Several processes on one address, shared by --reuse-port."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import grpc
import httpx
import pytest

from tests.expander.requests import best, sample
from tests.servers import Peer, ServerProcess, incoming, shared_address, start, two_zones
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread_client import Client, Connection, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HTTP = ("--http", "127.0.0.1:0")
EVALUATE = "DecisionService/EvaluatePod"


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/state.db"
    with ServerProcess("--store", url) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
    return url


@pytest.fixture
def address() -> Iterator[str]:
    with shared_address() as reserved:
        yield reserved


@pytest.fixture
def run(store: str, address: str) -> Iterator[Callable[..., ServerProcess]]:
    """Starts processes that share the address."""
    with ExitStack() as running:

        def one(*more: str) -> ServerProcess:
            flags = ("--store", store, "--listen", address, "--reuse-port", *HTTP, *more)
            return running.enter_context(ServerProcess(*flags))

        yield one


def answered(server: ServerProcess, method: str = EVALUATE) -> float:
    """Calls that this process has answered."""
    exposition = server.get("/metrics")[1].encode()
    return value(exposition, "topospread_calls_total", method=method, code="OK") or 0


class Callers:
    """Callers that decide over connections of their own, one call after the other."""

    def __init__(self, address: str) -> None:
        self.failures: list[str] = []
        self._address = address
        self._ended: Counter[int] = Counter()
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def add(self) -> None:
        """Start another one."""
        thread = threading.Thread(target=self._call, args=(len(self._threads),), daemon=True)
        self._threads.append(thread)
        thread.start()

    def go_on(self) -> None:
        """Wait until each of them has ended more calls than now."""
        so_far = self._ended.copy()
        numbers = range(len(self._threads))
        until(lambda: all(self._ended[n] > so_far[n] + 1 for n in numbers), "all go on")

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _call(self, number: int) -> None:
        with Client(Connection(self._address), timeout=PATIENCE) as client:
            while not self._over.is_set():
                try:
                    assert client.evaluate_pod(incoming()).feasible_node_count == 1
                except TopospreadClientError as error:
                    self.failures.append(repr(error))
                self._ended[number] += 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_process_that_ends_fails_no_call(run, address, number):
    """Each of two is ended under load, and comes back; the client repeats what it lost."""
    callers = Callers(address)
    servers = [run(), run()]
    try:
        # The kernel deals out connections: as many as bring each process some.
        while not all(map(answered, servers)):
            callers.add()
            callers.go_on()
        for at in (0, 1):
            servers[at].process.send_signal(number)
            servers[at].process.wait(PATIENCE)
            callers.go_on()
            servers[at] = run()
            callers.go_on()
    finally:
        callers.end()
    assert callers.failures == []


def test_processes_share_the_extender_and_the_expander(run):
    with shared_address() as extender, shared_address() as expander:
        own = ("--extender-listen", extender, "--expander-listen", expander)
        servers = [run(*own), run(*own)]
        args = {"Pod": incoming(), "NodeNames": ["a1", "a2", "b1"]}

        def filtered() -> bool:
            url = f"{servers[0].extender}/filter"
            answer = httpx.post(url, json=args, trust_env=False, timeout=PATIENCE)
            assert answer.json()["NodeNames"] == ["b1"]
            return all(answered(server, "Extender/filter") for server in servers)

        def expanded() -> bool:
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(expander, options=options) as channel:
                assert best(channel, sample()).options
            return all(answered(server, "Expander/BestOptions") for server in servers)

        until(filtered, "each process serves the extender")
        until(expanded, "each process serves the expander")


@pytest.mark.parametrize(("first", "second"), [(False, False), (True, False), (False, True)])
def test_address_is_shared_only_if_both_say_so(store, address, first, second):
    flags = ("--listen", address, "--reuse-port") if first else ("--listen", "127.0.0.1:0")
    with ServerProcess("--store", store, *flags) as server:
        again = ("--listen", server.address, *(("--reuse-port",) if second else ()))
        with start(("--store", store, *again), {}, subprocess.PIPE) as process:
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2
        (line,) = said.splitlines()
        assert f"--listen: cannot listen on {server.address}: it is taken" in line
        with Peer(server.address) as peer:
            assert peer.evaluate().feasible_node_count == 1


def test_processes_with_other_hash_seeds_answer_alike(store: str) -> None:
    answers = []
    for seed in ("1", "2"):
        with (
            ServerProcess("--store", store, PYTHONHASHSEED=seed) as server,
            Client(Connection(server.address)) as client,
        ):
            answer = client.evaluate_pod(incoming(), top_k=10)
            answer.ClearField("meta")
            answers.append((answer, client.get_server_info().settings_digest))

    assert answers[0] == answers[1]
