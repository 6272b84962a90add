"""`topospread simulate`, against a real server."""

from __future__ import annotations

import json

import pytest

NODES = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}}
- {apiVersion: v1, kind: Node, metadata: {name: n2, labels: {kubernetes.io/hostname: n2}}}
- {apiVersion: v1, kind: Node, metadata: {name: n3, labels: {kubernetes.io/hostname: n3}}}
"""
TEMPLATE = """\
apiVersion: v1
kind: Node
metadata: {name: pool, labels: {kubernetes.io/hostname: pool}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 2
        minDomains: 5
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
"""


@pytest.fixture
def simulate(topospread, tmp_path, monkeypatch):
    """The verb with -f deployment.yaml, on three nodes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    (tmp_path / "odd.yaml").write_text(TEMPLATE + "status: {allocatable: {cpu: banana}}\n")
    assert topospread("apply", "-f", "-", stdin=NODES).code == 0
    return lambda *more: topospread("simulate", "-f", "deployment.yaml", *more)


def test_pods_without_a_node_stay_pending(simulate):
    said = simulate("--replicas", "10")
    assert said.code == 1
    assert said.lines[0] == "Deployment shop/web"
    assert said.lines[1].split() == ["NODE", "JOINS", "FROM", "PODS"]
    assert "pending: 4 (web-6 … web-9)" in said.lines
    assert any("with 2 more domains of kubernetes.io/hostname" in line for line in said.lines)
    assert "it takes: 2 more nodes like n1: all 10 pods fit then" in said.lines
    assert any(line.split() == ["placed:", "6", "of", "10"] for line in said.lines)


def test_json_has_the_simulation(simulate, cluster):
    said = simulate("--replicas", "10", "-o", "json")
    value = json.loads(said.out)
    assert (said.code, value["placedPodCount"], value["pendingPodCount"]) == (1, 6, 4)
    assert value["cluster"] == cluster
    (asked,) = value["pods"]
    assert (asked["pod"], asked["kind"]) == ({"name": "web", "namespace": "shop"}, "Deployment")
    assert asked["source"].endswith(":1")
    assert value["placements"][0].keys() == {"pod", "node"}
    assert len(value["placements"]) == 6
    (pending,) = value["pendingPods"]
    assert pending["pods"][0] == {"namespace": "shop", "name": "web-6"}
    (spread,) = value["spreadChanges"]
    assert (spread["skewBefore"], spread["skewAfter"]) == (0, 2)


def test_pods_fit_with_two_more_nodes(simulate):
    said = simulate("--replicas", "10", "--add-nodes", "template.yaml=2", "-o", "json")
    value = json.loads(said.out)
    assert (said.code, value["placedPodCount"], value["pendingPodCount"]) == (0, 10, 0)
    assert value["joined"] == [
        {"nodeGroup": "pool", "nodeCount": 2, "nodeNames": ["pool-0", "pool-1"]}
    ]
    assert {p["node"] for p in value["placements"]} == {"n1", "n2", "n3", "pool-0", "pool-1"}
    assert simulate("--add-nodes", "template.yaml=2").lines.count("joined:   2 of pool") == 1


def test_nodes_that_join_need_no_name_of_their_own(simulate, tmp_path):
    (tmp_path / "nameless.yaml").write_text("kind: Node\nmetadata: {labels: {pool: new}}\n")
    said = simulate("--add-nodes", "nameless.yaml=1", "-o", "json")
    assert [each["nodeNames"] for each in json.loads(said.out)["joined"]] == [["group-0-0"]]


def test_fewest_nodes_are_found(simulate):
    asked = ("--add-nodes", "template.yaml", "--fewest-nodes")
    said = simulate("--replicas", "10", *asked)
    assert said.code == 0
    assert "fewest nodes: 2 more nodes (2 of pool; proven)" in said.lines
    assert "fewest nodes: none, all fit without" in simulate("--replicas", "2", *asked).lines
    few = simulate("--replicas", "10", "--add-nodes", "template.yaml=1", "--fewest-nodes")
    assert few.code == 1
    assert "fewest nodes: no number up to 1 of pool makes all fit" in few.lines
    value = json.loads(simulate("--replicas", "10", *asked, "-o", "json").out)
    assert (value["fewestNodes"]["optimality"], value["joined"][0]["nodeCount"]) == ("Proven", 2)


def test_workload_gives_the_number_of_replicas(simulate):
    said = simulate("-o", "name")
    assert (said.code, len(said.lines)) == (0, 4)
    assert simulate("--replicas", "7", "-o", "name").lines[-1] == "<none>"


def test_drained_node_is_gone_or_tainted(simulate):
    gone = json.loads(simulate("--drain", "n1", "-o", "json").out)
    assert (gone["placedPodCount"], gone["spreadChanges"][0]["domainCountAfter"]) == (4, 2)
    tainted = json.loads(simulate("--drain", "n1=tainted", "-o", "json").out)
    assert (tainted["placedPodCount"], tainted["spreadChanges"][0]["domainCountAfter"]) == (4, 3)


def test_pods_of_a_drained_node_are_rescheduled(simulate, topospread):
    running = (
        "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {nodeName: n1}}"
    )
    assert topospread("apply", "-f", "-", stdin=running).code == 0
    said = topospread("simulate", "--drain", "n1", "--reschedule", "-o", "json")
    value = json.loads(said.out)
    assert (said.code, value["placedPodCount"]) == (0, 1)
    assert (value["rescheduledPodCount"], value["evictedPodCount"]) == (1, 1)
    assert value["placements"][0]["pod"]["name"] == "p"
    assert topospread("simulate", "--drain", "n1").code == 2


def test_constraint_values_are_changed(simulate):
    said = simulate("--replicas", "10", "--constraint", "kubernetes.io/hostname:minDomains=0")
    assert said.code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--drain", "x"),
            "changes.drainNodes[0].node: Not found: no such node in the state",
        ),
        (("--replicas", "-1"), "'--replicas': -1 is not in the range"),
        (("--replicas", "99999999999"), "'--replicas': 99999999999 is not in the range"),
        (("--add-nodes", "template.yaml=99999999999"), "99999999999 nodes cannot join"),
        (("--constraint", "zone:maxSkew=99999999999"), "'maxSkew=99999999999': write NAME=VALUE"),
        (("--delete-pod", "\udcff"), "'\\udcff' is not UTF-8"),
        (("--replicas", "1000000"), "pods: Invalid value: at most 10000 pods are placed"),
        (("--add-nodes", "template.yaml=-2"), "-2 nodes cannot join: write 0 or more"),
        (("--add-nodes", "template.yaml=two"), "write PATH=N, where N is a whole number"),
        (("--add-nodes", "deployment.yaml=2"), "no Node in it"),
        (("--add-nodes", "nothing.yaml"), "nothing.yaml: no such file"),
        (("--add-nodes", "odd.yaml=2"), "status.allocatable[cpu]"),
        (("--zones", "a,b"), "give these, too"),
        (
            ("--fewest-nodes",),
            "changes.addNodeGroups: Required value: say which nodes may join",
        ),
        (("--constraint", "zone"), "write KEY:NAME=VALUE"),
        (("--constraint", "zone:skew=2"), "'skew=2': write NAME=VALUE with one of maxSkew"),
        (("--constraint", "zone:maxSkew=2"), "none of the pods has such a constraint"),
        (("--delete-pod", "shop/x"), "scenario.changes.deletePods[0]: Not found"),
        (("--drain", "n1=gone"), "write NODE, or NODE=tainted"),
    ],
)
def test_invalid_options_are_refused(simulate, arguments, complaint):
    said = simulate(*arguments)
    assert (said.code, said.out) == (2, "")
    assert complaint in said.err


def test_control_characters_of_a_manifest_are_escaped(simulate, tmp_path):
    odd = DEPLOYMENT.replace("topologyKey: kubernetes.io/hostname", 'topologyKey: "\\x1b[2J\\0"')
    (tmp_path / "deployment.yaml").write_text(odd)
    said = simulate("--validate=ignore")
    assert "\\x1b[2J\\x00" in said.out
    assert "\x1b" not in said.out + said.err
    assert "\0" not in said.out + said.err


def test_replicas_of_a_workload_may_be_too_many(simulate, tmp_path):
    (tmp_path / "deployment.yaml").write_text(
        DEPLOYMENT.replace("replicas: 4", "replicas: 9999999999")
    )
    said = simulate("--validate=ignore")
    assert (said.code, "9999999999 replicas are more than 2147483647" in said.err) == (2, True)
