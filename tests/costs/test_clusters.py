"""What clusters cost that nobody asks about."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.servers import Peer, ServerProcess, evaluate_request, node

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
            peer.engine.Evaluate(evaluate_request(cluster=name), timeout=60)

        follow(0)
        before = len(os.listdir(folder))
        for number in range(1, CLUSTERS):
            follow(number)
        assert len(os.listdir(folder)) < before + CLUSTERS // 2
