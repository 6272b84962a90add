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


TEMPLATE = "spec.template.spec.topologySpreadConstraints[0]"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a value that is refused": ({"maxSkew": 0}, f"{TEMPLATE}.maxSkew: Invalid value"),
    "an unknown value": (
        {"whenUnsatisfiable": "doNotSchedule"},
        f"{TEMPLATE}.whenUnsatisfiable: Unsupported value",
    ),
    "a value of a wrong type": ({"maxSkew": "1"}, f"{TEMPLATE}.maxSkew: expected integer"),
    "a misplaced field": ({"matchLabels": {}}, f"{TEMPLATE}.matchLabels: Unknown field"),
}


@pytest.mark.parametrize("verb", ["evaluate", "explain", "simulate", "rank-deletions"])
@pytest.mark.parametrize(("constraint", "message"), WRONG.values(), ids=WRONG)
def test_errors_of_a_workload_name_its_object_and_path(bare, tmp_path, verb, constraint, message):
    made = odd_pod("", constraint, {})
    template = {"metadata": {"labels": {"app": "odd"}}, "spec": made["spec"]}
    odd = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "odd", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "odd"}}, "template": template},
    }
    state, given = tmp_path / "state.json", tmp_path / "given.json"
    state.write_text(json.dumps({"kind": "List", "items": [node("a"), pod("web-0", "a")]}))
    more = [] if verb == "rank-deletions" else [pod("web-1")]
    given.write_text(json.dumps({"kind": "List", "items": [*more, odd]}))
    found = bare(verb, "--from", state, "-f", given)
    assert found.code == 2
    (line,) = [each for each in found.err.splitlines() if "Deployment" in each]
    assert line.startswith(f"topospread: {given}:1: Deployment shop/odd: {message}")


@pytest.mark.parametrize("replicas", ["three", "3", -1, 1.5, True, [3]])
def test_a_number_of_pods_that_is_none_is_refused(bare, tmp_path, replicas):
    made = odd_pod("", {}, {})
    odd = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "odd"},
        "spec": {"replicas": replicas, "template": {"spec": made["spec"]}},
    }
    state, given = tmp_path / "state.json", tmp_path / "given.json"
    state.write_text(json.dumps({"kind": "List", "items": [node("a"), pod("web-0", "a")]}))
    given.write_text(json.dumps(odd))
    found = bare("simulate", "--from", state, "-f", given)
    assert found.code == 2
    assert "StatefulSet odd: spec.replicas: must be a number of pods" in found.err


def test_deletions_are_ranked_without_a_key_that_no_node_has(bare, tmp_path):
    made = odd_pod("", {"topologyKey": "zone name"}, {})
    template = {"metadata": {"labels": {"app": "odd"}}, "spec": made["spec"]}
    odd = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "odd", "namespace": "odd"},
        "spec": {"selector": {"matchLabels": {"app": "odd"}}, "template": template},
    }
    state, given = tmp_path / "state.json", tmp_path / "given.json"
    items = [node("a"), odd_pod("a", {"topologyKey": "zone name"}, {})]
    state.write_text(json.dumps({"kind": "List", "items": items}))
    given.write_text(json.dumps(odd))
    found = bare("rank-deletions", "--from", state, "-f", given, "-o", "name")
    assert (found.code, found.out) == (0, "pod/odd/odd-0\n")
