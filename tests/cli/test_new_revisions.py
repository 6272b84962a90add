"""Pods of a workload's manifest are a new revision: those of older ones do not count with it."""

from __future__ import annotations

import json

import pytest
import yaml

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a, labels: {kubernetes.io/hostname: a}}
status: {allocatable: {pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {kubernetes.io/hostname: b}}
status: {allocatable: {pods: 110}}
"""
OLD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: w-NUMBER, namespace: d, labels: {app: w, KEY: old}}
spec: {nodeName: a}
"""
TEMPLATE = """\
metadata: {labels: {app: w}}
spec:
  containers: [{name: c, image: x}]
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: w}}
    matchLabelKeys: [KEY]
"""
KEYS = [
    ("apps/v1", "Deployment", "pod-template-hash"),
    ("apps.kruise.io/v1alpha1", "CloneSet", "controller-revision-hash"),
    ("apps/v1", "StatefulSet", "controller-revision-hash"),
    ("apps/v1", "DaemonSet", "controller-revision-hash"),
    ("batch/v1", "Job", "job-name"),
    ("batch/v1", "Job", "batch.kubernetes.io/controller-uid"),
    ("batch/v1", "CronJob", "batch.kubernetes.io/job-name"),
]


HASH = KEYS[0]
INDEX = ("apps/v1", "StatefulSet", "apps.kubernetes.io/pod-index")


def manifest(version, kind, template):
    spec = {"template": yaml.safe_load(template)}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": "w", "namespace": "d"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def asked(topospread, tmp_path, monkeypatch):
    """A verb about a workload, with two old pods of it on node a."""
    monkeypatch.chdir(tmp_path)

    def ask(verb, kind, *more, template=TEMPLATE, state="", **spec):
        version, name, key = kind
        old = "".join(OLD.replace("NUMBER", number) for number in "12")
        (tmp_path / "state.yaml").write_text((NODES + old + state).replace("KEY", key))
        made = manifest(version, name, template.replace("KEY", key))
        made["spec"] |= spec
        (tmp_path / "w.json").write_text(json.dumps(made))
        return topospread(verb, "--from", "state.yaml", "-f", "w.json", *more)

    return ask


@pytest.mark.parametrize("kind", KEYS)
def test_evaluate_counts_no_old_revision(asked, kind):
    said = asked("evaluate", kind, "-o", "json")
    (item,) = json.loads(said.out)["items"]
    assert (said.code, item["feasibleNodeCount"]) == (0, 2)


@pytest.mark.parametrize("kind", KEYS)
def test_explain_counts_no_old_revision(asked, kind):
    said = asked("explain", kind, "-o", "json")
    (item,) = json.loads(said.out)["items"]
    (constraint,) = item["explanation"]["constraints"]
    assert [each["podCount"] for each in constraint["domains"]] == [0, 0]
    assert (said.code, item["explanation"]["findings"]) == (0, [])


@pytest.mark.parametrize("kind", KEYS)
def test_simulate_spreads_the_new_revision_alone(asked, kind):
    said = asked("simulate", kind, "--replicas", "2", "-o", "json")
    placed = json.loads(said.out)["placements"]
    assert (said.code, sorted(each["node"] for each in placed)) == (0, ["a", "b"])


def test_explain_says_that_the_revision_is_new(asked):
    assert ",pod-template-hash=new_" in asked("explain", HASH).out


def test_a_selector_that_excludes_the_old_revision_counts_the_new_one(asked):
    unlike = "{matchExpressions: [{key: KEY, operator: NotIn, values: [old]}]}"
    template = TEMPLATE.replace("{matchLabels: {app: w}}", unlike).replace("[KEY]", "[]")
    said = asked("simulate", HASH, "--replicas", "2", "-o", "json", template=template)
    assert json.loads(said.out)["placedPodCount"] == 2


def test_a_key_that_the_selector_has_too_is_refused_as_the_pod_would_be(asked):
    template = TEMPLATE.replace("matchLabels: {app: w}", "matchLabels: {app: w, KEY: old}")
    said = asked("evaluate", HASH, template=template)
    assert said.code == 2
    assert "exists in both matchLabelKeys and labelSelector" in said.err


@pytest.mark.parametrize("replicas", [2, 5])
def test_replicas_of_a_stateful_set_have_numbers_of_their_own(asked, replicas):
    said = asked("simulate", INDEX, "--replicas", str(replicas), "-o", "json")
    changes = json.loads(said.out)["spreadChanges"]
    assert said.code == 0
    assert [each["pod"]["name"] for each in changes] == [f"w-{n}" for n in range(replicas)]
    assert {each["skewAfter"] for each in changes} == {1}


def test_pending_replicas_with_numbers_are_reported_together(asked):
    template = TEMPLATE.replace("[KEY]", "[KEY]\n  nodeSelector: {disk: fast}")
    said = asked("simulate", INDEX, "--replicas", "5", "-o", "json", template=template)
    (pending,) = json.loads(said.out)["pendingPods"]
    assert pending["podCount"] == 5


CORDONED = """\
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {kubernetes.io/hostname: b}}
spec: {unschedulable: true}
status: {allocatable: {cpu: 64, memory: 256Gi, pods: 110}}
"""


def test_lint_knows_that_a_cordoned_domain_gets_no_pod_of_the_new_revision(asked):
    old = OLD.replace("NUMBER", "3").replace("nodeName: a", "nodeName: b")
    state, selector = old + CORDONED, {"matchLabels": {"app": "w"}}
    said = asked("lint", HASH, "-o", "json", state=state, replicas=2, selector=selector)
    found = {each["code"]: each["text"] for each in json.loads(said.out)["items"]}
    assert "1 of 2 domains that count has no node for the pod" in found["RolloutDeadlock"]
