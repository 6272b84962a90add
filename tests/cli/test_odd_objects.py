"""Objects that no API server stores: one of them ends no answer about others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.test_folders import node, pod

ZONE = "topology.kubernetes.io/zone"
ODD: dict[str, dict[str, Any]] = {
    "maxSkew below 0": {"maxSkew": -1},
    "maxSkew 0": {"maxSkew": 0},
    "largest maxSkew": {"maxSkew": 2**31 - 1},
    "no key": {"topologyKey": ""},
    "a key that no label can be": {"topologyKey": "zone name"},
    "a long key": {"topologyKey": "x" * 400},
    "an unknown whenUnsatisfiable": {"whenUnsatisfiable": "Sometimes"},
    "no whenUnsatisfiable": {"whenUnsatisfiable": ""},
    "minDomains below 0": {"minDomains": -1},
    "minDomains 0": {"minDomains": 0},
    "minDomains of a soft one": {"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"},
    "an unknown policy": {"nodeTaintsPolicy": "Perhaps"},
    "no selector": {"labelSelector": None},
    "an unknown operator": {
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    },
    "a selector that is no label": {"labelSelector": {"matchLabels": {"a b": "c d"}}},
    "matchLabelKeys that are no labels": {"matchLabelKeys": ["x y", ""]},
    "a key in selector and matchLabelKeys": {"matchLabelKeys": ["app"]},
}
NOWHERE = {"nodeSelector": {"no": "where"}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    name: (constraint, {}) for name, constraint in ODD.items()
} | {
    "no eligible node": ({}, NOWHERE),
    "no eligible node and maxSkew below 0": ({"maxSkew": -1}, NOWHERE),
}

ASKED: dict[str, tuple[str, ...]] = {
    "report": ("report",),
    "get constraints": ("get", "constraints"),
    "explain pending": ("explain", "--pending"),
    "explain": ("explain", "shop/web-1"),
    "explain itself": ("explain", "odd/odd-0"),
    "evaluate itself": ("evaluate", "odd/odd-0"),
    "plan-rebalance": ("plan-rebalance",),
    "rank-deletions": ("rank-deletions", "-n", "odd", "-l", "app=odd"),
    "simulate": ("simulate", "shop/web-1"),
    "drain": ("simulate", "--drain", "a", "--reschedule"),
}


def odd_pod(on: str, constraint: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    made = pod("odd-0", on)
    made["metadata"].update(namespace="odd", labels={"app": "odd"})
    (given,) = made["spec"]["topologySpreadConstraints"]
    given.update({"labelSelector": {"matchLabels": {"app": "odd"}}, **constraint})
    made["spec"].update(spec)
    return made


@pytest.mark.parametrize("on", ["", "a"], ids=["pending", "bound"])
@pytest.mark.parametrize(("constraint", "spec"), CASES.values(), ids=CASES)
def test_an_odd_object_ends_no_answer_about_others(bare, tmp_path, constraint, spec, on):
    odd = odd_pod(on, constraint, spec)
    items = [node("a"), node("b"), pod("web-0", "a"), pod("web-1"), odd]
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for asked in ASKED.values():
        found = bare(*asked, "--from", state)
        assert found.code in (0, 1), (asked, found.err)
    report = json.loads(bare("report", "--from", state, "-o", "json").out)["items"]
    assert [each["boundPodCount"] for each in report if each["namespace"] == "shop"] == [1]
    pending = json.loads(bare("explain", "--pending", "--from", state, "-o", "json").out)["items"]
    assert [each["fits"] for each in pending if each["namespace"] == "shop"] == [True]


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"maxSkew": -1}, "maxSkew -1 must be greater than zero: the API server refuses it"),
        ({"topologyKey": ""}, "topologyKey is empty: the API server refuses it"),
    ],
)
def test_a_report_says_what_no_api_server_stores(bare, tmp_path, constraint, message):
    state = tmp_path / "state.json"
    items = [node("a"), odd_pod("a", constraint, {})]
    state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = bare("report", "--from", state)
    assert message in found.out
