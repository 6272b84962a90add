"""The campaign that measures a light caller beside a heavy one."""

from __future__ import annotations

import json

from bench.campaigns import campaign, neighbor

SMALL = ("--nodes", "10", "--pods", "20", "--calls", "20", "--rate", "1000", "--under-way", "40")


def test_both_callers_are_answered(capsys):
    assert campaign.run(neighbor.command, [*SMALL, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for when in ("alone", "beside"):
        assert (found[when]["asked"], found[when]["failed"]) == (20, 0)
        assert 0 < found[when]["p50"] <= found[when]["p99"]
    assert found["heavy_answers_per_second"]


def test_an_aim_that_is_missed_ends_it_with_1(capsys, monkeypatch):
    monkeypatch.setattr(neighbor, "AIM", 0.0)
    assert campaign.run(neighbor.command, [*SMALL, "--check"]) == 1
    assert "its p99 beside the heavy caller is" in capsys.readouterr().err
