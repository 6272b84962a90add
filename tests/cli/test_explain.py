"""`topospread explain`, against a real server."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.manifests import CLUSTER, NOWHERE, POD

BAD = POD.replace("maxSkew: 1", "maxSkew: 0")
SOFT = POD.replace("DoNotSchedule", "ScheduleAnyway")


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def test_pod_that_fits_shows_its_domains(loaded):
    said = loaded("explain", "-f", "-", stdin=POD)
    assert said.code == 0, said.err
    assert said.lines[0] == "Pod shop/web-2  (standard input:1)"
    assert "constraint 0: topology.kubernetes.io/zone (DoNotSchedule, maxSkew 1)" in said.lines
    rows = [line.split() for line in said.lines]
    assert ["b", "0", "1", "1", "1", "1", "open", "holds", "the", "minimum"] in rows
    assert ["a", "2", "2", "2", "2", "3", "closed", "skew", "3", ">", "maxSkew", "1"] in rows
    assert "fits:     1 of 3 nodes" in said.lines
    assert "What would let it in" not in said.out


def test_a_pod_that_fits_nowhere_ends_with_1_and_advice(loaded):
    said = loaded("explain", "-f", "-", stdin=NOWHERE)
    assert said.code == 1
    assert (
        "  - constraint 0: KeyOnNoNode: no node has the label example.com/rack: "
        "no node can take the pod" in said.lines
    )
    advice = said.lines[said.lines.index("What would let it in (each was tried out)") + 1 :]
    assert advice[0].startswith("  - 1 more domain of example.com/rack")
    assert any(line.startswith("message:  0/3 nodes are available") for line in said.lines)


def test_soft_constraints_show_scores(loaded):
    said = loaded("explain", "-f", "-", stdin=SOFT)
    assert said.code == 0
    header = next(line.split() for line in said.lines if line.startswith("DOMAIN"))
    assert header[-2:] == ["SCORE", "WHY"]
    (row,) = [line.split() for line in said.lines if line.startswith("b ")]
    assert row[header.index("SCORE")] == "100"


def test_json_has_the_explanations(loaded, cluster):
    said = loaded("explain", "-f", "-", "-o", "json", stdin=f"{POD}---\n{NOWHERE}")
    assert said.code == 1
    value = json.loads(said.out)
    fits, waits = value["items"]
    assert value["cluster"] == cluster
    assert (fits["pod"], fits["fits"]) == ({"name": "web-2", "namespace": "shop"}, True)
    assert fits["explanation"]["fittingNodeCount"] == 1
    (constraint,) = fits["explanation"]["constraints"]
    assert constraint["minimum"]["value"] == 0
    assert [domain["allowed"] for domain in constraint["domains"]] == [True, False]
    assert waits["fits"] is False
    assert waits["explanation"]["verdict"] == {"code": "Success", "reasons": []}
    suggested = waits["explanation"]["suggestions"]
    changes = {name for each in suggested for change in each["changes"] for name in change}
    assert changes >= {"addDomains", "labelNodes"}
    assert yaml.safe_load(loaded("explain", "-f", "-", "-o", "yaml", stdin=POD).out)["items"]


def test_domains_in_the_middle_are_counted(loaded):
    nodes = "".join(
        f"---\nkind: Node\nmetadata: {{name: n{i:02}, labels: {{rack: r{i:02}}}}}\n"
        for i in range(30)
    )
    loaded("apply", "-f", "-", stdin=nodes)
    pod = POD.replace("topology.kubernetes.io/zone", "rack")
    said = loaded("explain", "-f", "-", "--domains", "4", stdin=pod)
    assert "… and 26 more" in said.lines
    assert sum(line.startswith("r") and " open " in line for line in said.lines) == 4


def test_pod_of_the_state_is_reported_as_bound(loaded):
    said = loaded("explain", "shop/web-0")
    assert said.code == 0
    assert said.lines[0] == "Pod shop/web-0"
    assert "the pod runs on a1 already" in said.out
    assert loaded("explain", "shop/missing").code == 2


def test_bad_input_is_reported_with_advice(loaded):
    said = loaded("explain", "-f", "-", stdin=BAD)
    assert said.code == 2
    assert "spec.topologySpreadConstraints[0].maxSkew: Invalid value" in said.err
    assert loaded("explain", "-f", "-", "-o", "name", stdin=POD).code == 2
    assert loaded("explain").code == 2
    assert loaded("explain", "-f", "-", "--domains", "0", stdin=POD).code == 2


def test_fit_option_chooses_the_other_filters(loaded):
    pod = POD + "  nodeSelector: {disk: fast}\n"
    assert loaded("explain", "-f", "-", stdin=pod).code == 1
    said = loaded("explain", "-f", "-", "--fit", "spread-only", stdin=pod)
    assert said.code == 0


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
        matchLabelKeys: [pod-template-hash, revision]
"""


def test_labels_that_a_controller_adds_are_not_missed(loaded):
    said = loaded("explain", "-f", "-", stdin=DEPLOYMENT)
    assert "LabelKeyMissing: matchLabelKeys: the pod has no label revision" in said.out
    assert "no label pod-template-hash" not in said.out


def test_a_selector_of_labels_that_a_controller_adds_may_match(loaded):
    keyless = DEPLOYMENT.replace("pod-template-hash, ", "")
    by_hash = keyless.replace("matchLabels: {app: web}", "matchLabels: {pod-template-hash: a}")
    assert by_hash != keyless != DEPLOYMENT
    assert "SelfMismatch" not in loaded("explain", "-f", "-", stdin=by_hash).out
    wrong = by_hash.replace("pod-template-hash: a", "pod-template-hash: a, app: db")
    assert "SelfMismatch" in loaded("explain", "-f", "-", stdin=wrong).out
