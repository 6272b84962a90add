"""Several processes on one port: started, missed, replaced, ended."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import httpx
import pytest
import trustme

from tests.processes import gone, stopped
from tests.redis_server import free_port
from tests.servers import Peer, ServerProcess, incoming, pod, served, start, two_zones
from tests.telemetry.expositions import value
from tests.transports.expander.requests import best, sample
from tests.waiting import PATIENCE, until
from topospread_client import Client, Connection, TopospreadClientError
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import server_service_pb2
from topospread_proto.v1.server_service_pb2_grpc import ServerServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TWO = ("--workers", "2", "--http", "127.0.0.1:0")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def server(store: str) -> Iterator[ServerProcess]:
    with ServerProcess("--store", store, *TWO) as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        yield server


def replaced(server: ServerProcess, known: set[int]) -> bool:
    """Whether there are two workers, one of them new, and both are ready."""
    workers = set(server.workers())
    return len(workers) == 2 and workers != known and server.get("/readyz") == (200, "ok\n")


def until_metric(server: ServerProcess, name: str, expected: float, **labels: str) -> None:
    """Until its metrics say so: what a worker does not answer in time is missing once."""
    until(
        lambda: value(server.get("/metrics")[1].encode(), name, **labels) == expected,
        f"{name} is {expected}",
    )


def evaluate(address: str) -> int:
    """Over a connection of its own."""
    with Peer(address) as peer:
        return peer.evaluate().feasible_node_count


def test_a_supervisor_prints_its_addresses_when_all_workers_are_ready(server):
    assert len(server.workers()) == 2
    assert server.get("/readyz") == (200, "ok\n")
    assert server.get("/livez") == (200, "ok\n")
    assert value(server.get("/metrics")[1].encode(), "topospread_workers", state="ready") == 2


def test_all_workers_serve_on_the_one_port(server):
    for _ in range(20):
        assert evaluate(server.address) == 1
    # Each has said how far it follows; the sum of both is what was asked.
    calls = {"method": "DecisionService/EvaluatePod", "code": "OK"}
    until_metric(server, "topospread_calls_total", 20, **calls)


def test_all_workers_serve_the_expander_on_an_address_of_its_own(store):
    own = ("--expander-listen", "127.0.0.1:0")
    with ServerProcess("--store", store, *TWO, *own) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        for _ in range(10):
            with grpc.insecure_channel(server.expander) as channel:
                assert best(channel, sample()).options
        calls = {"method": "Expander/BestOptions", "code": "OK"}
        until_metric(server, "topospread_calls_total", 10, **calls)


def test_all_workers_serve_the_extender_on_an_address_of_its_own(store):
    own = ("--extender-listen", "127.0.0.1:0")
    with ServerProcess("--store", store, *TWO, *own) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        args = {"Pod": incoming(), "NodeNames": ["a1", "a2", "b1"]}
        for _ in range(10):
            answer = httpx.post(
                f"{server.extender}/filter", json=args, trust_env=False, timeout=PATIENCE
            )
            assert answer.json()["NodeNames"] == ["b1"]
        calls = {"method": "Extender/filter", "code": "OK"}
        until_metric(server, "topospread_calls_total", 10, **calls)
        # The supervisor's own address serves no calls.
        assert server.get("/extender/v1/filter")[0] == 404


@pytest.mark.parametrize(
    ("flags", "warned"),
    [((), True), (("--extender", "off"), False), (("--extender-listen", "127.0.0.1:0"), False)],
)
def test_supervisors_warn_when_no_extender_is_served(store, flags, warned):
    with start(("--store", store, *TWO, *flags), {}, subprocess.PIPE) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("store "):
            pass
        process.send_signal(signal.SIGTERM)
        _, reported = process.communicate(timeout=PATIENCE)
    assert ("no extender is served" in reported) is warned
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_ends_is_replaced_while_the_others_serve(server, number):
    known = server.workers()
    os.kill(known[0], number)
    for _ in range(10):
        with Client(server.address, timeout=PATIENCE) as client:
            assert client.evaluate_pod(incoming()).feasible_node_count == 1
    until(partial(replaced, server, set(known)), "it is replaced")
    assert known[1] in server.workers()
    until_metric(server, "topospread_worker_restarts_total", 1)
    assert server.end() == 0


def test_a_worker_that_hangs_is_reported_by_readiness_and_hides_no_metrics(server):
    evaluate(server.address)
    before = server.get("/metrics")[1].encode()
    pid = server.workers()[0]
    os.kill(pid, signal.SIGSTOP)
    until(partial(stopped, pid), "it hangs")
    try:
        status, reasons = server.get("/readyz")
        assert status == 503
        assert reasons in ("worker 1: no answer\n", "worker 2: no answer\n")
        assert server.get("/livez")[0] == 200
        after = server.get("/metrics")[1].encode()
        calls = {"method": "DecisionService/EvaluatePod", "code": "OK"}
        assert value(after, "topospread_calls_total", **calls) == value(
            before, "topospread_calls_total", **calls
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: server.get("/readyz")[0] == 200, "it answers again")


def test_a_rolling_restart_of_the_workers_loses_no_call(server):
    over = threading.Event()
    answered = [0] * 6
    failures: list[str] = []

    def load(number: int) -> None:
        with Client(Connection(server.address), timeout=PATIENCE) as client:
            while not over.is_set():
                try:
                    assert client.evaluate_pod(incoming()).feasible_node_count == 1
                    answered[number] += 1
                except TopospreadClientError as error:
                    failures.append(repr(error))

    callers = [threading.Thread(target=load, args=(n,), daemon=True) for n in range(6)]
    for caller in callers:
        caller.start()
    until(lambda: all(answered), "load is on")
    for pid in server.workers():
        known = set(server.workers())
        os.kill(pid, signal.SIGTERM)
        until(partial(replaced, server, known), "it is replaced")
    so_far = list(answered)
    until(lambda: all(a > b for a, b in zip(answered, so_far, strict=True)), "all go on")
    over.set()
    for caller in callers:
        caller.join(PATIENCE)
    assert failures == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_supervisor_with_its_workers(server, number):
    workers = server.workers()
    assert server.end(number) == 0
    assert all(map(gone, workers))
    host, _, port = server.address.rpartition(":")
    with socket.socket() as free:
        # Connections that were closed a moment ago may be in the system's memory; nobody listens.
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind((host, int(port)))
        free.listen()


def test_ctrl_c_reaches_all_processes_without_errors(store):
    arguments = [sys.executable, "-m", "topospread", "serve", "--store", store, *TWO]
    with subprocess.Popen(
        [*arguments, "--listen", "127.0.0.1:0", "--log-level", "error"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_during_the_start_ends_at_once(store, workers):
    process = start(("--store", store, "--workers", workers, "--http", "off"), {}, subprocess.PIPE)
    with process:
        # Not before it listens to signals: until then they end any program.
        until(lambda: _catches(process.pid, signal.SIGTERM), "it listens to signals")
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "Traceback" not in said


def _catches(pid: int, number: signal.Signals) -> bool:
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_running_calls_end_first_and_a_second_signal_does_not_wait(server, tmp_path):
    writer = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    with Peer(server.address) as peer, closing(writer):
        writer.execute("BEGIN IMMEDIATE")  # a write waits for its end, for seconds
        request = state_pb.ApplyObjectsRequest(objects=[pod("web-9", "a1")])
        call = peer.state.ApplyObjects.future(request, timeout=PATIENCE)
        until_metric(server, "topospread_inflight_calls", 1, pool="state")
        server.process.terminate()
        until(lambda: server.get("/readyz")[0] == 503, "it is not ready any more")
        assert not call.done()
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
        assert call.code() is not None


def test_workers_do_not_outlive_their_supervisor(server):
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    until(lambda: all(map(gone, workers)), "they end")


def test_the_configuration_is_read_again_by_all(tmp_path, store):
    config = tmp_path / "config.yaml"
    header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    config.write_text(header)
    with ServerProcess("--store", store, "--config", str(config), *TWO) as server:
        config.write_text(f"{header}profiles: [{{schedulerName: other}}]\n")
        server.process.send_signal(signal.SIGHUP)
        peers = [Peer(server.address) for _ in range(12)]
        until(lambda: {generation(peer) for peer in peers} == {2}, "all have read it")
        for peer in peers:
            peer.channel.close()


def generation(peer: Peer) -> int:
    server: Any = ServerServiceStub(peer.channel)
    reported = server.GetServerInfo(server_service_pb2.GetServerInfoRequest(), timeout=PATIENCE)
    number: int = reported.config_generation
    return number


def test_a_worker_that_cannot_come_back_is_tried_again_and_the_others_serve(start_redis):
    redis = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    with served(store=redis.url) as before, Peer(before.address) as peer:
        peer.apply(*two_zones())
    # Each worker has loaded it before it is ready.
    with ServerProcess("--store", redis.url, *TWO, "--log-level", "error") as server:
        redis.kill()
        first, second = server.workers()
        os.kill(first, signal.SIGKILL)
        until(lambda: first not in server.workers(), "it is gone")
        restarts = partial(_restarts, server)
        until(lambda: restarts() >= 2, "it is tried again")
        with Client(server.address, timeout=PATIENCE) as client:
            assert client.evaluate_pod(incoming()).feasible_node_count == 1
        assert server.get("/readyz")[0] == 503
        redis.start()
        until(partial(replaced, server, {first, second}), "it comes back")
        assert second in server.workers()


def _restarts(server: ServerProcess) -> float:
    return value(server.get("/metrics")[1].encode(), "topospread_worker_restarts_total") or 0


# ------------------------------ what cannot be started


def bad_certificate(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "no.pem").write_text("no certificate")
    path = str(tmp_path / "no.pem")
    return ("--tls-cert", path, "--tls-key", path)


def foreign_key(tmp_path: Path) -> tuple[str, ...]:
    ca = trustme.CA()
    for name in ("one", "two"):
        issued = ca.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    return ("--tls-cert", str(tmp_path / "one.pem"), "--tls-key", str(tmp_path / "two.key"))


def bad_config(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "config.yaml").write_text("kind: Nonsense\n")
    return ("--config", str(tmp_path / "config.yaml"))


def directory(tmp_path: Path) -> tuple[str, ...]:
    return ("--store", f"sqlite://{tmp_path}")


MISTAKES: dict[str, tuple[Callable[[Path], tuple[str, ...]], int, str]] = {
    "certificate": (bad_certificate, 2, "no PEM certificate and key"),
    "key of another": (foreign_key, 2, "that belong together"),
    "configuration": (bad_config, 2, "Nonsense"),
    "memory": (lambda _: ("--store", "memory:"), 2, "processes do not share memory"),
    "store out of reach": (
        lambda _: ("--store", "redis://127.0.0.1:1"),
        3,
        "redis://127.0.0.1:1/0: ",
    ),
    "store that is none": (directory, 3, "store"),
    "no such address": (lambda _: ("--listen", "192.0.2.1:7946", "--insecure"), 2, "--listen"),
    "no such http": (lambda _: ("--http", "192.0.2.1:7947", "--insecure"), 2, "--http"),
    "tracing": (lambda _: (), 2, "OTEL_TRACES_SAMPLER"),
}


@pytest.mark.parametrize(("make", "code", "said"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_failed_start_is_explained_in_a_line(workers, make, code, said, tmp_path, store):
    arguments = make(tmp_path)
    if workers == "1" and "memory:" in arguments:
        pytest.skip("one process may keep its state in memory")
    if "--store" not in arguments:
        arguments += ("--store", store)
    variables = {"OTEL_TRACES_SAMPLER": "now and then"} if said.startswith("OTEL") else {}
    process = start(("--workers", workers, *arguments), variables, subprocess.PIPE)
    with process:
        out, reported = process.communicate(timeout=PATIENCE)
    assert out == ""
    assert process.returncode == code, reported
    lines = reported.splitlines()
    assert len(lines) == 1, reported
    assert lines[0].startswith("topospread: ")
    assert said in reported


@pytest.mark.parametrize("first", ["1", "2"])
def test_a_port_is_shared_with_no_other_server(first, tmp_path):
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    with ServerProcess(*listen, "--store", stores[0], "--workers", first) as server:
        other = (*listen, "--store", stores[1], "--workers")
        for second in ("1", "2"):
            process = start((*other, second), {}, subprocess.PIPE)
            with process:
                _, reported = process.communicate(timeout=PATIENCE)
            assert process.returncode == 2
            assert f"--listen: cannot listen on {server.address}: it is taken" in reported
            assert len(reported.splitlines()) == 1, reported
        assert evaluate_anything(server.address)
        server.end()
        # A port that was served a moment ago is free.
        with ServerProcess(*other, first) as again:
            assert again.address == server.address


def evaluate_anything(address: str) -> bool:
    with Peer(address) as peer:
        return generation(peer) == 1


def test_a_worker_that_ends_without_a_reason_is_reported(tmp_path, store):
    """Something that no worker survives: what it needs is not what it should be."""
    (tmp_path / "numpy.py").write_text("raise SystemExit(7)\n")
    process = start(
        ("--workers", "2", "--store", store), {"PYTHONPATH": str(tmp_path)}, subprocess.PIPE
    )
    with process:
        _, reported = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "ended before it was ready" in reported.splitlines()[-1]


def test_a_supervisor_loads_nothing_that_only_workers_need():
    code = (
        "import sys, topospread.app.multiprocess.supervisor\n"
        "print([name for name in ('grpc', 'numpy', 'redis') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
