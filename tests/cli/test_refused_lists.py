"""A kind whose list or write is refused is named on stderr, and is never exit code 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apiserver.server import ApiServer, Fault
from tests.cli.processes import run
from tests.kubernetes.syncing import kubeconfig, small_cluster
from tests.servers import served
from topospread_client import Client

if TYPE_CHECKING:
    from pathlib import Path

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web-9, labels: {app: web}}
spec:
  containers: [{name: c, image: c}]
"""
BAD = POD.replace("name: web-9", "name: a/b")
READING = {
    "get": ("get", "pods"),
    "dump": ("dump",),
    "report": ("report",),
    "evaluate": ("evaluate", "-f", "-"),
    "explain": ("explain", "--pending"),
    "simulate": ("simulate", "-f", "-"),
    "plan-rebalance": ("plan-rebalance",),
    "rank-deletions": ("rank-deletions", "-l", "app=web"),
    "lint": ("lint", "-f", "-", "--live"),
}


@pytest.mark.parametrize("arguments", READING.values(), ids=READING)
@pytest.mark.parametrize(("status", "code"), [(403, 2), (500, 3)])
def test_needed_kind_that_an_api_server_refuses_is_named(
    tmp_path: Path, arguments: tuple[str, ...], status: int, code: int
) -> None:
    with ApiServer(small_cluster()) as api:
        api.faults += [Fault(lambda asked: asked.path.endswith("/pods"), status) for _ in range(9)]
        config = kubeconfig(tmp_path, api.url)
        said = run(*arguments, "--from", "kubeconfig", "--kubeconfig", config, stdin=POD)
    assert said.returncode == code, (said.stdout, said.stderr)
    assert "pods" in said.stderr


def test_optional_kind_that_an_api_server_fails_to_list_is_named(tmp_path: Path) -> None:
    """Only a missing right or a missing kind is done without."""
    with ApiServer(small_cluster()) as api:
        api.faults += [Fault(lambda asked: asked.path.endswith("/csinodes"), 500) for _ in range(9)]
        config = kubeconfig(tmp_path, api.url)
        said = run("report", "--from", "kubeconfig", "--kubeconfig", config)
    assert said.returncode == 3, said.stderr
    assert "csinodes" in said.stderr


@pytest.mark.parametrize("more", [(), ("--replace",)], ids=["apply", "apply --replace"])
def test_kind_that_a_server_refuses_is_named(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "objects.yaml").write_text(BAD)
    with served() as server, Client(server.address) as client:
        file = str(tmp_path / "objects.yaml")
        said = run("apply", *more, "-f", file, "--address", server.address)
        assert said.returncode == 2, said.stderr
        assert "objects[0].pod.metadata.name" in said.stderr
        assert not list(client.list_clusters())
