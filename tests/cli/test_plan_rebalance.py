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


def test_json_has_the_plan(loaded, cluster):
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


def test_name_output_has_the_evicted_pods(loaded):
    lines = loaded("plan-rebalance", "-n", "shop", "-o", "name").lines
    assert len(lines) == 2
    assert all(line.startswith("pod/shop/web-") for line in lines)


def test_plan_over_the_limit_is_reported(loaded):
    said = loaded("plan-rebalance", "-n", "shop", "--max-evictions", "1", "-o", "json")
    assert said.code == 1
    value = json.loads(said.out)
    assert value["evictions"] == []
    assert value["groups"][0]["outcome"] == "OverLimit"
    assert value["groups"][0]["evictionCount"] == 2


def test_plan_without_matching_pods_is_empty(loaded):
    said = loaded("plan-rebalance", "-l", "app=missing")
    assert said.code == 0
    assert "evictions:      0 (proven)" in said.lines
    assert "above maxSkew:  0 of 0 constraints" in said.lines
    note = "no pod that was looked at has a hard constraint: there is nothing to mend"
    assert said.err.splitlines() == [f"note: {note}"]
    value = json.loads(loaded("plan-rebalance", "-l", "app=missing", "-o", "json").out)
    assert value["notes"] == [note]
    softly = loaded("plan-rebalance", "-l", "app=missing", "--include-soft", "-o", "name")
    assert "no pod that was looked at has a constraint: " in softly.err


def test_protected_pods_and_namespaces_are_left_alone(loaded):
    assert loaded("plan-rebalance", "--exclude-namespace", "lab", "-o", "name").code == 0
    kept = loaded("plan-rebalance", "-n", "shop", "--protect-selector", "app=web", "-o", "json")
    assert kept.code == 1
    (stuck,) = json.loads(kept.out)["stuck"]
    assert stuck["podCount"] == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max-evictions", "-1"), "--max-evictions"),
        (("--max-evictions", "99999999999"), "--max-evictions"),
        (("-n", "\udcff"), "is not UTF-8"),
        (("--max-evictions-per-node", "many"), "--max-evictions-per-node"),
        (("--search-timeout", "0"), "--search-timeout"),
        (("--search-timeout", "nan"), "--search-timeout"),
        (("-l", "app=web=db"), "--selector"),
        (("-l", "app in (a b)"), "labelSelector"),
        (("--protect-selector", "a b"), "--protect-selector"),
        (("--profile", "missing"), "settings.profile"),
        (("--cluster", "missing"), "missing"),
    ],
)
def test_errors_are_one_line(loaded, arguments, says):
    said = loaded("plan-rebalance", *arguments)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


TAINTED = """\
kind: Node
metadata: {name: far, labels: {rack: r2}}
spec: {taints: [{key: dedicated, value: gpu, effect: NoSchedule}]}
"""
RACKED = """\
---
kind: Pod
metadata:
  name: NAME
  namespace: shop
  uid: NAME
  labels: {app: racked}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r, controller: true}]
spec:
  nodeName: WHERE
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: rack
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: racked}}
"""


def test_impossible_group_points_to_explain_and_pending_pods_are_counted(topospread):
    near = "---\nkind: Node\nmetadata: {name: near, labels: {rack: r1}}\n"
    pods = "".join(RACKED.replace("NAME", f"p{n}").replace("WHERE", "near") for n in range(2))
    waiting = RACKED.replace("NAME", "waits").replace("WHERE", '""')
    assert topospread("apply", "-f", "-", stdin=TAINTED + near + pods + waiting).code == 0
    said = topospread("plan-rebalance")
    assert said.code == 1
    assert (
        "1: impossible: no evictions that are allowed bring its constraints within maxSkew"
        " together: explain one of its pods (topospread explain)"
        "; 1 pending pod counts for it once the scheduler finds a node: plan again then"
    ) in said.lines
    explained = topospread("explain", "p0", "-n", "shop")
    assert "dedicated=gpu:NoSchedule" in explained.out
    (group,) = json.loads(topospread("plan-rebalance", "-o", "json").out)["groups"]
    assert group["pendingPodCount"] == 1
