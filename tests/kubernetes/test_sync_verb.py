"""`topospread sync`: the same sync into a server elsewhere, and what it says when it cannot."""

from __future__ import annotations

import re
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.server import ApiServer
from tests.cli.processes import TOPOSPREAD, environment, run
from tests.kubernetes.syncing import State, kubeconfig, node, pod, small_cluster
from tests.servers import http_get, served
from tests.waiting import until
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def syncing(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The verb as a process, and the URL of its metrics."""
    command = [*TOPOSPREAD, "sync", "--http", "127.0.0.1:0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            said = re.search(r"metrics and health on (\S+)", process.stdout.readline())
            assert said, process.stderr and process.stderr.read()
            yield process, said.group(1)
        finally:
            if process.poll() is None:
                process.kill()


def test_sync_syncs_a_server_until_a_signal(tmp_path: Path) -> None:
    objects = small_cluster()
    with (
        ApiServer(objects) as api,
        served() as server,
        Client(server.address) as client,
        syncing("--address", server.address, "--kubeconfig", kubeconfig(tmp_path, api.url)) as (
            process,
            http,
        ),
    ):
        state = State(client)
        until(lambda: ready(http), "everything listed")
        assert state.pods() == {"web-0": "a1", "web-1": "b1"}
        assert state.names("NODE") == {"a1", "a2", "b1"}
        objects.put(pod("web-2", "a2"), node("b2", "b"))
        objects.remove("Pod", "web-0", "default")
        until(lambda: set(state.pods()) == {"web-1", "web-2"}, "the changes")
        assert 'topospread_sync_active{cluster="default"} 1.0' in text(f"{http}/metrics")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_once_lists_and_ends(tmp_path: Path) -> None:
    with ApiServer(small_cluster()) as api, served() as server, Client(server.address) as client:
        config = kubeconfig(tmp_path, api.url)
        said = run(
            "sync", "--once", "--address", server.address, "--kubeconfig", config,
            "--exclude-namespace", "default",
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert State(client).names("NODE") == {"a1", "a2", "b1"}
        assert State(client).pods() == {}


def test_once_gives_up_when_the_api_server_is_out_of_reach(tmp_path: Path) -> None:
    with served() as server:
        config = kubeconfig(tmp_path, "http://127.0.0.1:1")
        said = run(
            "sync", "--once", "--timeout", "3", "--address", server.address,
            "--kubeconfig", config,
        )  # fmt: skip
    assert said.returncode == 3
    assert "not everything was listed within 3 s" in said.stderr
    assert "out of reach" in said.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file"),
        ("not: [a kubeconfig", "cannot be used"),
        ("apiVersion: v1\nkind: Config\n", "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_bad_input(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "no-such-file"
    if content is not None:
        path.write_text(content)
    said = run("sync", "--once", "--kubeconfig", str(path))
    assert said.returncode == 2
    assert f"kubeconfig {path}" in said.stderr
    assert says in said.stderr
    assert "Traceback" not in said.stderr


def test_without_a_cluster_it_says_what_to_do(tmp_path: Path) -> None:
    said = run("sync", "--once", HOME=str(tmp_path), KUBECONFIG="")
    assert said.returncode == 2
    assert "name one with --kubeconfig (topospread serve: --sync-kubeconfig)" in said.stderr


def text(url: str) -> str:
    return http_get(url)[1]


def ready(http: str) -> bool:
    try:
        return text(f"{http}/readyz") == "ok\n"
    except OSError:
        return False
