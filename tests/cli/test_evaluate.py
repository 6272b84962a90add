"""`topospread evaluate`, against a real server."""

from __future__ import annotations

import json

import pytest

from tests.cli.manifests import CLUSTER, NOWHERE, POD

SKEW = "node(s) didn't match pod topology spread constraints"
BAD = POD.replace("maxSkew: 1", "maxSkew: 0").replace("DoNotSchedule", "Never")


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def test_pod_that_fits_shows_counts_and_nodes(loaded):
    said = loaded("evaluate", "-f", "-", stdin=POD)
    assert said.code == 0
    assert said.lines[0] == "Pod shop/web-2  (standard input:1)"
    assert said.lines[2].split() == [
        *("topology.kubernetes.io/zone", "DoNotSchedule", "1", "1", "2", "0", "yes")
    ]
    assert f"    2  Unschedulable  {SKEW}" in said.lines
    assert "    1  Success        <none>" in said.lines
    title = said.lines.index(
        "Nodes that fit, domains with the fewest pods first; nothing scores them"
    )
    assert said.lines[title + 1 : title + 4] == ["NODE", "b1", ""]
    assert "fits:     1 of 3 nodes" in said.lines
    assert [line.split(":")[0] for line in said.lines[-2:]] == ["revision", "trace"]


def test_a_pod_that_fits_nowhere_ends_with_1(loaded):
    said = loaded("evaluate", "-f", "-", stdin=NOWHERE)
    assert said.code == 1
    assert "fits:     0 of 3 nodes" in said.lines
    assert f"message:  0/3 nodes are available: 3 {SKEW} (missing required label)." in said.lines
    assert not said.err


TAINTED = """\
kind: Node
metadata: {name: b1, labels: {topology.kubernetes.io/zone: b}}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
"""
REFUSED = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 " + SKEW + "."


def test_a_node_that_another_filter_refuses_does_not_fit(loaded):
    loaded("apply", "-f", "-", stdin=TAINTED)
    said = loaded("evaluate", "-f", "-", stdin=POD)
    assert said.code == 1
    assert "    1  UnschedulableAndUnresolvable  node(s) had untolerated taint(s)" in said.lines
    assert "fits:     0 of 3 nodes (spreading alone leaves 1)" in said.lines
    assert f"message:  {REFUSED}" in said.lines
    assert not [line for line in said.lines if line.startswith("b1")]
    assert loaded("evaluate", "-f", "-", "-o", "name", stdin=POD).lines == ["<none>"]
    (item,) = json.loads(loaded("evaluate", "-f", "-", "-o", "json", stdin=POD).out)["items"]
    assert (item["fits"], item["feasibleNodeCount"], item["topNodes"]) == (False, 0, [])
    assert (item["message"], item["reason"]) == (REFUSED, "Unschedulable")
    explained = loaded("explain", "-f", "-", "-o", "json", stdin=POD)
    assert json.loads(explained.out)["items"][0]["explanation"]["message"] == REFUSED


def test_spreading_alone_is_asked_about_and_says_what_it_leaves_out(loaded):
    loaded("apply", "-f", "-", stdin=TAINTED)
    said = loaded("evaluate", "-f", "-", "--fit", "spread-only", stdin=POD)
    assert said.code == 0
    assert "fits:          1 of 3 nodes" in said.lines
    assert "not looked at: cordons, taints, node affinity, resources" in said.lines
    asked = ("evaluate", "-f", "-", "--fit", "node", "-o", "json")
    (item,) = json.loads(loaded(*asked, stdin=POD).out)["items"]
    assert (item["fits"], item["notModelled"]) == (False, ["resources"])


def test_without_constraints_nodes_are_listed_by_name_and_none_is_called_best(loaded):
    plain = "kind: Pod\nmetadata: {name: x, namespace: other}\n"
    said = loaded("evaluate", "-f", "-", stdin=plain)
    assert said.code == 0
    title = said.lines.index("Nodes that fit, by name; nothing scores them")
    assert said.lines[title + 1 : title + 5] == ["NODE", "a1", "a2", "b1"]


def test_several_pods_are_judged_each_on_its_own(loaded):
    said = loaded("evaluate", "-f", "-", "-o", "name", stdin=f"{POD}---\n{NOWHERE}")
    assert (said.code, said.lines) == (1, ["node/b1", "<none>"])


def test_json_has_the_evaluations(loaded, cluster):
    said = loaded("evaluate", "-f", "-", "-o", "json", stdin=f"{POD}---\n{NOWHERE}")
    value = json.loads(said.out)
    fits, waits = value["items"]
    assert value["cluster"] == cluster
    assert fits["pod"] == {"name": "web-2", "namespace": "shop"}
    assert (fits["kind"], fits["source"]) == ("Pod", "standard input:1")
    assert "observed" not in fits
    assert (fits["fits"], fits["topNodes"]) == (True, [{"node": "b1"}]), "nothing scores it"
    assert fits["notModelled"] == []
    assert (fits["nodeCount"], fits["feasibleNodeCount"]) == (3, 1)
    assert fits["verdictCounts"][0] == {
        "verdict": {"code": "Unschedulable", "reasons": [SKEW]},
        "nodeCount": 2,
    }
    assert fits["constraints"][0]["eligibleDomainCount"] == 2
    assert fits["constraints"][0]["constraint"]["labelSelector"]["matchExpressions"]
    assert fits["preFilterVerdict"] == {"code": "Success", "reasons": []}
    assert fits["preScoreVerdict"]["code"] == "Skip"
    assert (waits["fits"], waits["topNodes"], waits["reason"]) == (False, [], "Unschedulable")
    assert waits["message"].startswith("0/3 nodes are available")
    assert len(fits["traceId"]) == 32


def test_workloads_stand_for_the_pod_they_would_make(loaded):
    spec = POD.partition("spec:\n")[2].replace("\n  ", "\n      ")
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n"
        f"spec:\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      {spec[2:]}"
    )
    said = loaded("evaluate", "-f", "-", "-o", "json", stdin=deployment)
    (item,) = json.loads(said.out)["items"]
    assert (item["kind"], item["pod"]["name"]) == ("Deployment", "web")
    assert item["topNodes"][0]["node"] == "b1"


def test_pods_of_the_state_are_named(loaded):
    loaded("apply", "-f", "-", stdin=POD)
    said = loaded("evaluate", "shop/web-2", "-o", "name")
    assert (said.code, said.lines) == (0, ["node/b1"])
    assert loaded("evaluate", "web-2", "-n", "shop", "-o", "name").lines == ["node/b1"]
    missing = loaded("evaluate", "web-2")
    assert missing.code == 2
    assert "default/web-2" in missing.err


def test_soft_constraints_are_scored(loaded):
    soft = POD.replace("DoNotSchedule", "ScheduleAnyway")
    said = loaded("evaluate", "-f", "-", "--top", "1", stdin=soft)
    assert said.code == 0
    assert "topology.kubernetes.io/zone  ScheduleAnyway         1" in said.out
    assert said.lines[said.lines.index("NODE  SCORE  RAW") - 1] == "Best nodes"
    header = said.lines.index("NODE  SCORE  RAW")
    node, score, _ = said.lines[header + 1].split()
    assert (node, score) == ("b1", "100")
    assert said.lines[header + 2] == ""


def test_violations_of_validation_are_listed(loaded):
    said = loaded("evaluate", "-f", "-", stdin=f"{POD}---\n{BAD}")
    assert said.code == 2
    where = "topospread: standard input:11: Pod shop/web-2: "
    field = "spec.topologySpreadConstraints[0]"
    assert said.err.splitlines() == [
        f"{where}{field}.maxSkew: Invalid value: must be greater than zero",
        (
            f"{where}{field}.whenUnsatisfiable: Unsupported value: "
            'supported values: "DoNotSchedule", "ScheduleAnyway"'
        ),
    ]
    assert "fits:     1 of 3 nodes" in said.lines, "the other pod is judged all the same"


def test_validation_may_be_switched_off(loaded):
    said = loaded("evaluate", "-f", "-", "--validate=ignore", "-o", "name", stdin=BAD)
    assert said.code == 0


def test_rules_of_options_are_used(loaded, tmp_path):
    plain = "kind: Pod\nmetadata: {name: x, namespace: shop, labels: {app: web}}\n"
    args = tmp_path / "args.yaml"
    args.write_text(
        "defaultingType: List\n"
        "defaultConstraints:\n"
        "- {maxSkew: 1, topologyKey: topology.kubernetes.io/zone,"
        " whenUnsatisfiable: DoNotSchedule}\n"
    )
    assert len(json.loads(loaded("evaluate", "-f", "-", "-o", "json", stdin=plain).out)["items"])
    judged = loaded("evaluate", "-f", "-", "--args", args, "-o", "json", stdin=plain)
    assert json.loads(judged.out)["items"][0]["feasibleNodeCount"] == 1
    gate = ("--gate", "DefaultPodTopologySpread=false")
    off = loaded("evaluate", "-f", "-", "--args", args, *gate, "-o", "json", stdin=plain)
    assert json.loads(off.out)["items"][0]["feasibleNodeCount"] == 3


def test_refused_rules_are_bad_input(loaded, tmp_path):
    args = tmp_path / "args.yaml"
    args.write_text("defaultingType: Listing\n")
    said = loaded("evaluate", "-f", "-", "--args", args, stdin=POD)
    assert said.code == 2
    assert 'defaultingType: Unsupported value: supported values: "System", "List"' in said.err
    args.write_text("defaultType: List\n")
    typo = loaded("evaluate", "-f", "-", "--args", args, stdin=POD)
    assert typo.code == 2
    assert "defaultType" in typo.err
    unknown = loaded("evaluate", "-f", "-", "--profile", "missing", stdin=POD)
    assert unknown.code == 2
    assert "missing" in unknown.err or "no such profile" in unknown.err


def test_other_kinds_are_named_as_skipped(loaded):
    said = loaded("evaluate", "-f", "-", "-o", "name", stdin=CLUSTER + "---\n" + POD)
    assert (
        "skipped: 1 ConfigMap, 3 Node, 1 Service (no pod, and nothing that makes pods)" in said.err
    )
