"""Campaigns about many callers and many clusters, small: what they ask is carried out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bench.campaigns import campaign, crowd, neighbor, products
from bench.campaigns.measured import HOSTNAME, ZONE
from tests.servers import Peer, ServerProcess, evaluate_request, node
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# ------------------------------ a crowd

SMALL = ("--nodes", "100", "--pods", "500", "--callers", "2", "--settle", "0", "-o", "json")


def figures(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> dict[str, Any]:
    assert campaign.run(crowd.command, [*SMALL, *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_kind_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--requests", "10", "--planners", "--deadline", "5"]
    found = figures(capsys, [*asked, "--server-flag=--log-level=error"])
    # What plans may last for as long as its deadline.
    for kind in crowd.PLANS:
        (ended,) = found["outcomes"].pop(kind)
        assert ended in ("OK", "DEADLINE_EXCEEDED")
    assert found["outcomes"] == {kind: {"OK": 1} for kind in crowd.DECISIONS}
    assert found["another"]["beside"]["failed"] == 0
    assert found["error_lines"] == 0
    assert found["ratios"].keys() >= crowd.AIMS.keys()


def test_an_aim_that_is_missed_ends_it_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "AIMS", {"RSS": 0.1})
    asked = ["--requests", "2", "--only", "EvaluatePod", "--check"]
    assert campaign.run(crowd.command, [*SMALL, *asked]) == 1
    (broken,) = json.loads(capsys.readouterr().out)["broken"]
    assert broken.startswith("RSS x ")


def test_half_of_the_selectors_match_pods_that_are_there() -> None:
    pod = crowd._wide(7)
    matching = [
        constraint.topology_key
        for constraint in pod.spec.topology_spread_constraints
        if constraint.label_selector.match_expressions
    ]
    assert len(matching) == crowd.CONSTRAINTS // 2
    assert matching.count(HOSTNAME) == matching.count(ZONE)


# ------------------------------ a light caller beside a heavy one

FEW = ("--nodes", "10", "--pods", "20", "--calls", "20", "--rate", "1000", "--under-way", "40")


def test_light_and_heavy_callers_are_answered(capsys):
    assert campaign.run(neighbor.command, [*FEW, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for when in ("alone", "beside"):
        assert (found[when]["asked"], found[when]["failed"]) == (20, 0)
        assert 0 < found[when]["p50"] <= found[when]["p99"]
    assert found["heavy_answers_per_second"]


def test_a_missed_aim_of_a_neighbor_ends_it_with_1(capsys, monkeypatch):
    monkeypatch.setattr(neighbor, "AIM", 0.0)
    assert campaign.run(neighbor.command, [*FEW, "--check"]) == 1
    assert "its p99 beside the heavy caller is" in capsys.readouterr().err


# ------------------------------ lists that meet

LITTLE = ("--nodes", "100", "--pods", "500", "--seconds", "1", "--settle", "0", "-o", "json")


@pytest.mark.parametrize("name", ["namespaces and values of stored pods", "expressions and pods"])
def test_lists_that_meet_are_asked_about(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert campaign.run(products.command, [*LITTLE, "--only", name]) == 0
    found = json.loads(capsys.readouterr().out)[name]
    assert found["answered"] > 0
    assert found["refused"] == 0


def test_memory_past_its_bound_ends_it_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "RSS", 0.1)
    asked = [*LITTLE, "--only", "expressions and pods", "--check"]
    assert campaign.run(products.command, asked) == 1
    broken = json.loads(capsys.readouterr().out)["broken"]
    assert any("memory (peak) is" in each for each in broken)


# ------------------------------ clusters

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
