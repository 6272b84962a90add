"""`topospread plan-rebalance`, against a real server."""

from __future__ import annotations

import json

import pytest

from tests.redis_server import ROOT

OBJECTS = ROOT / "examples" / "rebalance" / "objects.yaml"


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", OBJECTS).code == 0
    return topospread


def test_the_plan_as_a_table(loaded):
    said = loaded("plan-rebalance")
    assert said.code == 1
    assert "evictions:      2 (proven)" in said.lines
    assert "above maxSkew:  3 of 3 constraints" in said.lines
    assert any(line.startswith("1: impossible: ") for line in said.lines)


def test_the_plan_for_programs(loaded, cluster):
    said = loaded("plan-rebalance", "-n", "shop", "-o", "json")
    assert said.code == 0
    value = json.loads(said.out)
    assert (value["cluster"], value["optimality"]) == (cluster, "Proven")
    assert value["remainingConstraintCount"] == 0
    assert len(value["evictions"]) == 2
    assert {each["pod"]["namespace"] for each in value["evictions"]} == {"shop"}
    assert all(each["node"] != each["targetNode"] for each in value["evictions"])
    (group,) = value["groups"]
    assert (group["outcome"], group["evictionCount"]) == ("Planned", 2)
    assert {each["skewAfter"] for each in group["constraints"]} <= {0, 1}


def test_only_names(loaded):
    lines = loaded("plan-rebalance", "-n", "shop", "-o", "name").lines
    assert len(lines) == 2
    assert all(line.startswith("shop/web-") for line in lines)


def test_a_budget_that_is_not_enough(loaded):
    said = loaded("plan-rebalance", "-n", "shop", "--max-evictions", "1", "-o", "json")
    assert said.code == 1
    value = json.loads(said.out)
    assert value["evictions"] == []
    assert value["groups"][0]["outcome"] == "OverLimit"
    assert value["groups"][0]["evictionCount"] == 2


def test_what_matches_nothing_needs_nothing(loaded):
    said = loaded("plan-rebalance", "-l", "app=nobody")
    assert said.code == 0
    assert "evictions:      0 (proven)" in said.lines
    assert "above maxSkew:  0 of 0 constraints" in said.lines
    note = "no pod that was looked at has a hard constraint: there is nothing to mend"
    assert said.err.splitlines() == [f"note: {note}"]
    value = json.loads(loaded("plan-rebalance", "-l", "app=nobody", "-o", "json").out)
    assert value["notes"] == [note]
    softly = loaded("plan-rebalance", "-l", "app=nobody", "--include-soft", "-o", "name")
    assert "no pod that was looked at has a constraint: " in softly.err


def test_pods_and_namespaces_to_leave_alone(loaded):
    assert loaded("plan-rebalance", "--exclude-namespace", "lab", "-o", "name").code == 0
    kept = loaded("plan-rebalance", "-n", "shop", "--protect-selector", "app=web", "-o", "json")
    assert kept.code == 1
    (stuck,) = json.loads(kept.out)["stuck"]
    assert stuck["podCount"] == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max-evictions", "-1"), "--max-evictions"),
        (("--max-evictions-per-node", "many"), "--max-evictions-per-node"),
        (("--search-timeout", "0"), "--search-timeout"),
        (("-l", "app=web=db"), "--selector"),
        (("-l", "app in (a b)"), "labelSelector"),
        (("--protect-selector", "a b"), "--protect-selector"),
        (("--profile", "nobody"), "settings.profile"),
        (("--cluster", "nobodys"), "nobodys"),
    ],
)
def test_mistakes_are_one_line(loaded, arguments, says):
    said = loaded("plan-rebalance", *arguments)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1
