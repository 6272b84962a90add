"""A short soak of a small cluster, from its beginning to its verdict; how full a store is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.cluster import Size, fill
from bench.soak.command import redis_megabytes, sqlite_megabytes
from topospread.app.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path

SHORT = ("--nodes", "30", "--pods", "200", "--hours", "0.5", "--callers", "3", "--seed", "7")


def test_soak_refuses_a_store_that_other_processes_cannot_open(bench) -> None:
    completed = bench("soak", "--store", "memory:")
    assert completed.code == 2
    assert "--store" in completed.err


def test_half_an_hour_of_a_small_cluster_leaves_nothing_behind(bench, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    completed = bench("soak", *SHORT, "-o", "json")
    found = json.loads(completed.out)
    assert found["broken"] == []
    assert completed.code == 0
    assert found["changes"] > 100
    assert found["recordedChanges"] >= found["changesBefore"] + found["changes"]
    assert len(found["comparedIndexes"]) == 4
    assert all(each["groups"] for each in found["comparedIndexes"])
    assert found["comparedAnswers"] > 0
    assert found["calls"]["evaluate"]["count"] > 0
    assert found["labelSetsAtEnd"] == found["labelSetsOfFreshServer"] > 0
    assert len(found["parts"]) == 12


def test_redis_size_grows_with_its_content(redis_url: str) -> None:
    before = redis_megabytes(redis_url)
    _fill(redis_url, drop=False)
    assert redis_megabytes(redis_url) > before + 0.1


def test_pages_of_a_file_that_are_free_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    _fill(f"sqlite://{file}", drop=False)
    full = sqlite_megabytes(file)
    _fill(f"sqlite://{file}", drop=True)
    assert sqlite_megabytes(file) < full / 2
    assert full <= file.stat().st_size / 1e6


def _fill(address: str, *, drop: bool) -> None:
    store = open_store(address, {})
    try:
        if drop:
            store.drop("some")
        else:
            fill(store, "some", Size(nodes=200, pods=1000))
    finally:
        store.close()
