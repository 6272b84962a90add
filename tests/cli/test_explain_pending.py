"""`topospread explain --pending`: what waits, by workload and reason."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_explain_workloads import NODES, pod
from topospread.cli.commands import explain
from topospread.cli.errors import BAD_INPUT, DONE, NO_NODE_FITS
from topospread_client import Client

WEB = "".join(
    pod(f"web-8d21-{number}", "ReplicaSet/web-8d21", hash_label="8d21", key="rack")
    for number in range(3)
)
FITS = pod("db-0", "StatefulSet/db").replace("app: web", "app: db")
OTHERS = (
    pod("runs-1", "ReplicaSet/runs", node="a1")
    + pod("goes-1", "ReplicaSet/goes", extra="  deletionTimestamp: '2026-01-01T00:00:09Z'\n")
    + pod("done-1", "Job/done").replace("spec:\n", "status: {phase: Succeeded}\nspec:\n")
)


@pytest.fixture
def loaded(topospread):
    given = NODES + WEB + FITS + OTHERS
    assert topospread("apply", "-f", "-", stdin=given).code == DONE
    return topospread


def test_pending_pods_are_grouped_with_the_worst_first(loaded):
    said = loaded("explain", "--pending", "-A")
    assert said.code == NO_NODE_FITS
    rows = [line.split() for line in said.lines]
    assert rows[0] == ["PENDING", "FITS", "WORKLOAD", "FOR", "EXAMPLE"]
    zero = ["3", "0", "of", "3", "nodes", "deployment/shop/web", "pod/shop/web-8d21-0"]
    assert rows[1] == zero
    assert rows[2][5:] == ["statefulset/shop/db", "pod/shop/db-0"]
    assert any(line.startswith("message: 0/3 nodes are available") for line in said.lines)
    assert any(line.startswith("try:     1 more domain of rack") for line in said.lines)
    assert "pending: 4 pods" in said.lines


def test_rows_may_stand_alone(loaded):
    whole = loaded("explain", "--pending").lines
    assert [line.split() for line in loaded("explain", "--pending", "--no-headers").lines] == [
        line.split() for line in whole[1:3]
    ]
    said = loaded("explain", "shop/web-8d21-0", "--no-headers")
    assert (said.code, "--no-headers goes with --pending" in said.err) == (BAD_INPUT, True)


def test_json_has_counts_and_groups(loaded):
    value = json.loads(loaded("explain", "--pending", "-n", "shop", "-o", "json").out)
    assert (value["kind"], value["podCount"], value["unexplainedPodCount"]) == (
        "PendingPodList",
        4,
        0,
    )
    waits, fits = value["items"]
    assert (waits["name"], waits["podCount"], waits["fits"]) == ("web", 3, False)
    assert waits["pod"] == {"name": "web-8d21-0", "namespace": "shop"}
    assert (fits["kind"], fits["fits"], "message" in fits) == ("StatefulSet", True, False)


def test_pods_without_a_controller_are_counted_with_the_first_of_the_most_alike(topospread):
    alike = pod("a-1", "Custom/x") + pod("a-2", "Custom/x")
    other = pod("z", "Custom/x").replace("app: web", "app: other")
    given = NODES + (alike + other).replace("controller: true", "controller: false")
    assert topospread("apply", "-f", "-", stdin=given).code == DONE
    (found,) = json.loads(topospread("explain", "--pending", "-o", "json").out)["items"]
    assert (found["name"], found["pod"]["name"], found["podCount"]) == ("a-1", "a-1", 3)


def test_names_are_of_all_pending_pods(loaded):
    lines = loaded("explain", "--pending", "-o", "name").lines
    web = [f"pod/shop/web-8d21-{number}" for number in range(3)]
    assert sorted(lines) == ["pod/shop/db-0", *web]


def test_exit_code_is_0_where_all_fit_and_where_none_waits(topospread):
    assert topospread("apply", "-f", "-", stdin=NODES + FITS).code == DONE
    assert topospread("explain", "--pending").code == DONE
    said = topospread("explain", "--pending", "-n", "elsewhere")
    assert (said.code, said.out, said.err) == (DONE, "", "no pending pods found\n")


def test_one_pod_of_a_template_is_explained_and_no_more_than_the_limit(loaded, monkeypatch):
    calls = []
    real = Client.call

    def counted(self, method, request, **options):
        if method == "ExplainPod":
            calls.append(request)
        return real(self, method, request, **options)

    monkeypatch.setattr(Client, "call", counted)
    loaded("explain", "--pending")
    assert len(calls) == 2
    monkeypatch.setattr(explain, "MAX_EXPLAINED", 1)
    said = loaded("explain", "--pending")
    assert len(calls) == 3
    assert "not explained: 1" in said.lines


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pending", "shop/x"),
        ("--pending", "-f", "x"),
        ("-A", "shop/x"),
        ("--pending", "-A", "-n", "x"),
    ],
    ids=" ".join,
)
def test_options_that_contradict_are_refused(loaded, arguments):
    assert loaded("explain", *arguments).code == BAD_INPUT
