"""What clusters cost that nobody asks about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.servers import Peer, ServerProcess, evaluate_request, node
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

CLUSTERS = 100


def test_a_cluster_in_sqlite_costs_no_open_file(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    with (
        ServerProcess("--store", store, "--log-level", "error") as server,
        Peer(server.address) as peer,
    ):
        folder = f"/proc/{server.process.pid}/fd"

        def follow(number: int) -> None:
            name = f"cluster-{number}"
            peer.apply(node("a", "zone-a"), cluster=name)
            peer.engine.EvaluatePod(evaluate_request(cluster=name), timeout=60)

        follow(0)
        before = len(os.listdir(folder))
        for number in range(1, CLUSTERS):
            follow(number)
        assert len(os.listdir(folder)) < before + CLUSTERS // 2


def test_a_cluster_too_many_for_the_open_files_is_refused() -> None:
    """In a process of its own: a hard limit that was lowered stays so."""
    options = ["--clusters", "60", "--store", "redis", "--seconds", "0", "--files", "512"]
    said = subprocess.run(
        [sys.executable, "-m", "bench.campaigns.clusters", *options, "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    ).stdout
    found = json.loads(said)
    (refused,) = (each for each in found["first"] if each.startswith("RESOURCE_EXHAUSTED: "))
    assert "open files" in refused
    assert 20 <= found["first"][refused] < 60
    assert found["broken"] == []
    assert (found["/livez"], found["new connection"]) == ("200", "OK")
