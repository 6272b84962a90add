"""A short soak of a small cluster, from its beginning to its verdict."""

from __future__ import annotations

import json

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
