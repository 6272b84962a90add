"""What clusters cost that nobody asks about."""

from __future__ import annotations

import os
import re
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
        [sys.executable, "-m", "tests.costs.clusters", *options],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    ).stdout
    refused = re.search(r"at (\d+) clusters: RESOURCE_EXHAUSTED: .*open files", said)
    assert refused is not None, said
    assert 20 <= int(refused.group(1)) < 60
    assert "/livez: 200" in said
    assert "EvaluatePod on a new connection: OK" in said
