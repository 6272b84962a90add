"""A short soak of a small cluster, from its beginning to its verdict."""

from __future__ import annotations

import json

from click.testing import CliRunner

from topospread.cli.main import root

SHORT = ("--nodes", "30", "--pods", "200", "--hours", "0.5", "--callers", "3", "--seed", "7")


def test_a_store_that_others_cannot_open_is_refused() -> None:
    said = CliRunner().invoke(root, ["bench", "soak", "--store", "memory:"], standalone_mode=False)
    assert "--store" in str(said.exception)


def test_half_an_hour_of_a_small_cluster_leaves_nothing_behind(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    said = CliRunner().invoke(root, ["bench", "soak", *SHORT, "-o", "json"], standalone_mode=False)
    assert said.exception is None, said.output
    found = json.loads(said.stdout)
    assert found["broken"] == []
    assert said.return_value == 0
    assert found["changes"] > 100
    assert found["recordedChanges"] >= found["changesBefore"] + found["changes"]
    assert len(found["comparedIndexes"]) == 4
    assert all(each["groups"] for each in found["comparedIndexes"])
    assert found["comparedAnswers"] > 0
    assert found["calls"]["evaluate"]["count"] > 0
    assert found["labelSetsAtEnd"] == found["labelSetsOfFreshServer"] > 0
    assert len(found["parts"]) == 12
