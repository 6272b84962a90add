"""`topospread lint`: the threads in which users report a mistake that it is to find, and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.allocatable import ROOMY
from topospread.spread.linting.engine import RULES

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: web}}
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: wen}}
"""
"""A warning on the first constraint, an error on the second."""


"""A third zone, whose node takes no pod."""


def test_sarif_has_each_rule_and_each_finding(bare, tmp_path):
    (tmp_path / "my web.yaml").write_text(WEB)
    said = bare("lint", "-f", tmp_path, "-o", "sarif")
    assert said.code == 1
    log = json.loads(said.out)
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in RULES.values()]
    assert {"id", "shortDescription", "help", "helpUri", "defaultConfiguration"} == set(
        driver["rules"][0]
    )
    found = [
        (
            driver["rules"][each["ruleIndex"]]["id"] == each["ruleId"],
            each["ruleId"],
            each["level"],
            each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            each["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for each in run["results"]
    ]
    file = f"{tmp_path}/my%20web.yaml"
    assert found == [
        (True, "RolloutSkew", "warning", file, 12),
        (True, "SelfMismatch", "error", file, 16),
    ]
    assert all(each["message"]["text"] for each in run["results"])


THREADS = yaml.safe_load(Path(__file__).with_name("threads.yaml").read_text(encoding="utf-8"))


def codes(command, manifest: str) -> list[str]:
    said = command("lint", "-f", "-", "-o", "json", "--fail-on", "never", stdin=manifest)
    assert (said.code, said.err) == (0, "")
    return sorted(each["code"] for each in json.loads(said.out)["items"])


@pytest.mark.parametrize("case", THREADS, ids=lambda case: case["thread"])
def test_the_manifest_of_the_thread_gets_these_codes(bare, case):
    assert codes(bare, case["manifest"]) == sorted(case["codes"])


MENDED = [case for case in THREADS if "mended" in case]


@pytest.mark.parametrize("case", MENDED, ids=lambda case: case["thread"])
def test_the_mended_manifest_gets_no_such_codes(bare, case):
    assert codes(bare, case["mended"]) == sorted(case["codes_mended"])


CLUSTERS = [
    pytest.param(case, cluster, id=f"{case['thread']}-{number}")
    for case in THREADS
    for number, cluster in enumerate(case.get("clusters", ()))
]


def node(name: str, *, tainted: bool) -> dict[str, object]:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-of-{name}"}
    taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints} if tainted else {},
        "status": {"allocatable": ROOMY},
    }


@pytest.mark.parametrize(("case", "cluster"), CLUSTERS)
def test_a_cluster_shows_whether_the_rollout_of_the_thread_gets_stuck(
    bare, case, cluster, tmp_path
):
    nodes = [
        *(node(name, tainted=False) for name in cluster["nodes"]),
        *(node(name, tainted=True) for name in cluster.get("tainted", ())),
    ]
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(nodes))
    said = bare(
        *("lint", "-f", "-", "-o", "json", "--from", tmp_path / "nodes.yaml"),
        stdin=case["manifest"],
    )
    found = {each["code"]: each["severity"] for each in json.loads(said.out)["items"]}
    errors = [code for code, severity in found.items() if severity == "Error"]
    assert errors == cluster.get("errors", [])
    assert not found.keys() & {*cluster.get("gone", ())}


@pytest.mark.parametrize("form", ["table", "json", "github", "sarif"])
def test_a_file_that_is_no_yaml_does_not_end_the_lint_of_others(bare, tmp_path, form):
    (tmp_path / "a.yaml").write_text(WEB.replace("maxSkew: 1", "maxSkew: 1: 2"))
    (tmp_path / "b.yaml").write_text(WEB)
    said = bare("lint", "-f", tmp_path, "-o", form)
    assert said.code == 2
    assert "SelfMismatch" in said.out
    assert f"{tmp_path / 'a.yaml'}:12: not YAML" in said.err
    alone = bare("lint", "-f", tmp_path / "a.yaml", "-o", form)
    assert (alone.code, alone.out) == (2, "")


def test_a_path_that_cannot_be_read_does_not_end_the_lint_of_others(bare, tmp_path):
    below = tmp_path / "templates"
    below.mkdir()
    (below / "a.yaml").write_text("{{- if .Values.web }}\n")
    (tmp_path / "b.yaml").write_text(WEB)
    (tmp_path / "c.yaml").write_bytes(b"\x1f\x8b")
    said = bare("lint", "-f", tmp_path / "none", "-f", below, "-f", tmp_path)
    assert said.code == 2
    assert "SelfMismatch" in said.out
    assert [
        line.removeprefix(f"topospread: {tmp_path}/") for line in said.err.splitlines()[-3:]
    ] == [
        "none: no such file: check the path",
        "templates: no file in it is a manifest: left out: 1 file that is no manifest: a.yaml",
        "c.yaml: compressed with gzip: unpack it first, with `gunzip`",
    ]
