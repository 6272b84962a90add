"""Each bench measures its figures, here on clusters far too small for them to mean anything."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from bench.__main__ import BENCHES, run
from bench.cluster import Size, objects
from bench.figures import TARGETS, Figures, Target
from bench.options import BenchOptions
from bench.planner import CALLS
from bench.report import GLANCE, TITLES, Answer, write
from topospread.store.model import Kind

if TYPE_CHECKING:
    from pathlib import Path

SMALL = BenchOptions(Size(nodes=12, pods=60), seconds=0.2, rounds=1)
PROMISED = {
    "echo_rps",
    "evaluate_rps",
    "evaluate_ratio",
    "evaluate_cpu_us",
    "evaluate_memo_ratio",
    "evaluate_p50_ms_c1",
    "prefilter_cpu_us",
    "filter_cpu_us",
    "score_cpu_us",
}
ENVIRONMENT = {
    "date": "2026-01-02 03:04 UTC",
    "commit": "abc",
    "machine": "a machine",
    "cores": 2,
    "memory_gb": 8.0,
    "kernel": "Linux 6",
    "python": "3.11",
    "versions": {"grpcio": "1"},
    "load": [0.1, 0.2, 0.3],
}


def measurable(target: Target) -> bool:
    """Without a Redis, and without a Go that builds kube-scheduler's plugin."""
    return not target.figure.endswith("_redis") and target.bench != "scheduler"


def measured_without_redis(each: Answer) -> bool:
    return "_redis}" not in each.answer and "{scheduler." not in each.answer


@pytest.fixture(scope="module")
def found() -> dict[str, Figures]:
    return {name: run(name, SMALL) for name in BENCHES}


@pytest.mark.bench
def test_every_target_without_redis_is_measured(found: dict[str, Figures]) -> None:
    known = {(name, f) for name, figures in found.items() for f in figures.samples}
    needed = {(t.bench, t.figure) for t in TARGETS if measurable(t)}
    assert needed - known == set()


@pytest.mark.bench
def test_unmeasured_figures_have_a_reason(found: dict[str, Figures]) -> None:
    lacking = {(name, f) for name, figures in found.items() for f in figures.missing}
    needed = {(t.bench, t.figure) for t in TARGETS if not measurable(t)}
    assert needed <= lacking
    assert ("decide", "ghz_echo_rps") in lacking


@pytest.mark.bench
def test_decide_has_the_promised_figures(found: dict[str, Figures]) -> None:
    assert found["decide"].plain().keys() >= PROMISED


@pytest.mark.bench
def test_each_verb_of_the_planner_has_its_time(found: dict[str, Figures]) -> None:
    for verb in CALLS:
        assert found["planner"].plain()[f"{verb}_p50_ms"] > 0


@pytest.mark.bench
def test_the_extender_has_its_rates(found: dict[str, Figures]) -> None:
    for name in ("filter", "filter_c1", "filter_gzip", "prioritize", "place_c1"):
        assert found["extender"].plain()[f"{name}_rps"] > 0


@pytest.mark.bench
def test_the_sync_has_its_rates(found: dict[str, Figures]) -> None:
    for name in ("listed_per_s", "changes_per_s", "heartbeats_per_s"):
        assert found["sync"].plain()[name] > 0


@pytest.mark.bench
def test_the_planner_can_be_asked_about_a_recorded_cluster(tmp_path: Path) -> None:
    node = {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    recorded = tmp_path / "cluster.json"
    content = {"cluster": {"nodes": [node]}, "incoming": [{"name": "one", "pod": pod}]}
    recorded.write_text(json.dumps(content), "utf-8")
    figures = run("planner", replace(SMALL, recorded=str(recorded)))
    assert figures.samples["explain_p50_ms"]


@pytest.mark.bench
def test_figures_are_printed_as_json(bench) -> None:
    size = ["--nodes", "12", "--pods", "60", "--seconds", "0.05", "--rounds", "1"]
    completed = bench("cold", *size, "-o", "json")
    assert completed.code == 0, completed.err
    figures = json.loads(completed.out)
    low, high = figures["spread"]["cold_p50_ms"]
    assert 0 < low <= figures["cold_p50_ms"] <= high
    assert figures["environment"]["cores"] >= 1


@pytest.mark.bench
def test_the_report_names_every_target_and_shows_its_plots(
    found: dict[str, Figures], tmp_path: Path
) -> None:
    contributing = tmp_path / "CONTRIBUTING.md"
    contributing.write_text("before\n<!-- figures wanted -->\nold\n<!-- end -->\nafter\n")

    write(tmp_path, found, SMALL, ENVIRONMENT, ENVIRONMENT)

    table = contributing.read_text("utf-8")
    assert all(f"| {target.text} | {target.bound} |" in table for target in TARGETS)
    assert (table.startswith("before\n"), "old" in table, table.endswith("after\n")) == (
        True,
        False,
        True,
    )
    page = (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")
    assert all(f"## {title}" in page for title in TITLES.values())
    assert all(f"| {each.question} |" in page for each in GLANCE if measured_without_redis(each))
    pictures = list((tmp_path / "docs" / "benchmarks").iterdir())
    assert pictures
    for picture in pictures:
        assert f"(benchmarks/{picture.name})" in page
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_busy_machine_makes_the_absolute_figures_worthless(tmp_path: Path) -> None:
    busy = Figures()
    busy.add("others_cores", 0.5)
    write(tmp_path, {"decide": busy}, SMALL, ENVIRONMENT, ENVIRONMENT)
    page = (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")
    assert "other programs took 0.5 cores" in page


def test_a_cluster_is_the_same_each_time() -> None:
    size = Size(nodes=30, pods=200)
    made = list(objects(size))
    assert made == list(objects(size))
    kinds = [each.key.kind for each in made]
    assert (kinds.count(Kind.NODE), kinds.count(Kind.POD)) == (30, 200)
    assert len({each.key for each in made}) == len(made)


def test_sizes_are_of_what_was_written(bench, redis_binary):
    size = ("--nodes", "12", "--pods", "60", "--changes", "200", "-o", "json")
    completed = bench("sizes", "--redis-server", redis_binary, *size)
    assert completed.code == 0, completed.err
    figures = json.loads(completed.out)
    assert figures["nodes"] == 12
    # 20 apps have a Service and a ReplicaSet each; no pod goes so soon.
    assert figures["objects"] == figures["logChanges"] == 2 * 20 + 12 + 60 + 200
    assert 50 < figures["redisBytesAnObject"] < 5000
    assert figures["redisBytes"] > figures["redisLogBytes"] > 200 * 50
    assert figures["sqliteBytes"] > 4096


def test_sizes_are_not_measured_without_a_redis_server(bench, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    completed = bench("sizes")
    assert completed.code == 2
    assert "--redis-server" in completed.err
