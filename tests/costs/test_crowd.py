"""The campaign that lets a crowd ask: every request is one that the server carries out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.campaigns import campaign, crowd
from bench.campaigns.measured import HOSTNAME, ZONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

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
