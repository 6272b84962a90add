"""A serving process: starts that fail, and signals."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.app.certificates import Mint
from tests.servers import Peer, ServerProcess, start, two_zones
from tests.waiting import PATIENCE, until
from topospread.app.stop_event import StopEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


def test_signal_during_the_start_ends_at_once(store):
    with start(("--store", store), {}, subprocess.PIPE) as process:
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


def test_second_signal_ends_the_shutdown_delay(store):
    flags = ("--store", store, "--http", "127.0.0.1:0", "--shutdown-delay", "10m")
    with ServerProcess(*flags) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        server.process.terminate()
        until(lambda: server.get("/readyz") == (503, "stopping\n"), "it is not ready any more")
        assert peer.evaluate().feasible_node_count == 1
        assert server.end() == 0


def test_port_is_free_when_its_server_has_ended(store):
    with ServerProcess("--store", store) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        address = server.address
        server.end()
    with ServerProcess("--store", store, "--listen", address) as again:
        assert again.address == address


def test_one_address_of_a_name_that_is_taken_is_refused(store):
    """gRPC alone would listen on the others."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = ("--listen", f"localhost:{taken.getsockname()[1]}")
        with start(("--store", store, *listen), {}, subprocess.PIPE) as process:
            _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert len(said.splitlines()) == 1, said
    assert "it is taken" in said


def bad_certificate(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "no.pem").write_text("no certificate")
    path = str(tmp_path / "no.pem")
    return ("--tls-cert", path, "--tls-key", path)


def foreign_key(tmp_path: Path) -> tuple[str, ...]:
    mint = Mint(tmp_path)
    mint.put("key.pem", mint.client()[0])
    return ("--tls-cert", mint.cert, "--tls-key", mint.key)


def bad_config(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "config.yaml").write_text("kind: Nonsense\n")
    return ("--config", str(tmp_path / "config.yaml"))


def directory(tmp_path: Path) -> tuple[str, ...]:
    return ("--store", f"sqlite://{tmp_path}")


MISTAKES: dict[str, tuple[Callable[[Path], tuple[str, ...]], int, str]] = {
    "certificate": (bad_certificate, 2, "no PEM certificate and key"),
    "key of another": (foreign_key, 2, "that belong together"),
    "configuration": (bad_config, 2, "Nonsense"),
    "shared memory": (
        lambda _: ("--store", "memory:", "--reuse-port", "--listen", "127.0.0.1:7946"),
        2,
        "processes do not share memory",
    ),
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
def test_failed_start_is_explained_in_a_line(make, code, said, tmp_path, store):
    arguments = make(tmp_path)
    if "--store" not in arguments:
        arguments += ("--store", store)
    variables = {"OTEL_TRACES_SAMPLER": "now and then"} if said.startswith("OTEL") else {}
    with start(arguments, variables, subprocess.PIPE) as process:
        out, reported = process.communicate(timeout=PATIENCE)
    assert out == ""
    assert process.returncode == code, reported
    lines = reported.splitlines()
    assert len(lines) == 1, reported
    assert lines[0].startswith("topospread: ")
    assert said in reported


# ------------------------------ the event that signal handlers set


def test_a_signal_may_come_at_any_moment(monkeypatch):
    """In the middle of the wait's own steps, too, where an event's lock is held."""
    # One that comes just before the thread sleeps wakes nobody, and is seen at the next look.
    monkeypatch.setattr("topospread.app.stop_event.POLL_SECONDS", 0.001)
    main = threading.get_ident()
    now: list[StopEvent] = []
    go_on = threading.Semaphore(0)

    def ring() -> None:
        while go_on.acquire() and now:
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: now[-1].set())
    ringer = threading.Thread(target=ring)
    ringer.start()
    try:
        for _ in range(3000):
            now.append(StopEvent())
            go_on.release()
            assert now[-1].wait(PATIENCE)
    finally:
        now.clear()
        go_on.release()
        ringer.join()
        signal.signal(signal.SIGUSR1, before)


def test_waiting_ends_with_its_time_and_what_was_said_stays():
    reported = StopEvent()
    assert not reported
    assert not reported.wait(0.01)
    reported.set()
    reported.set()
    assert reported
    assert reported.wait()
    assert reported.wait(0)
