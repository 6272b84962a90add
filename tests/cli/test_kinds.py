"""Verbs that take manifests take whatever has a pod template."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.allocatable import ROOMY

NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{zone}1",
            "labels": {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": f"{zone}1"},
        },
        "status": {"allocatable": ROOMY},
    }
    for zone in "abc"
]
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "web"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ],
    },
}
SELECTOR = {"matchLabels": {"app": "web"}}


def custom(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


KINDS = [
    (
        custom("Rollout", "argoproj.io/v1alpha1", replicas=3, selector=SELECTOR, template=TEMPLATE),
        [3],
    ),
    (custom("Service", "serving.knative.dev/v1", template=TEMPLATE), [1]),
    (custom("DeploymentConfig", "apps.openshift.io/v1", replicas=2, template=TEMPLATE), [2]),
    (custom("Search", "example.com/v1", nodeSets=[{"count": 3, "podTemplate": TEMPLATE}]), [3]),
    (
        custom(
            "Cluster",
            "example.com/v1",
            head={"template": TEMPLATE},
            workers=[{"replicas": 2, "template": TEMPLATE}],
        ),
        [1, 2],
    ),
    (
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "web"},
            "template": TEMPLATE,
        },
        [1],
    ),
    (
        custom(
            "CronJob", "batch/v1", jobTemplate={"spec": {"parallelism": 2, "template": TEMPLATE}}
        ),
        [2],
    ),
]


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump_all(NODES))
    return path


@pytest.mark.parametrize(("manifest", "replicas"), KINDS, ids=[each[0]["kind"] for each in KINDS])
def test_each_pod_template_is_taken(bare, nodes, manifest, replicas):
    given = ("-f", "-", "--from", nodes, "-o", "json")
    for verb in ("evaluate", "explain"):
        said = bare(verb, *given, stdin=json.dumps(manifest))
        items = json.loads(said.out)["items"]
        assert (said.code, len(items)) == (0, len(replicas))
        assert len({each["source"] for each in items}) == len(items)
        assert all(each["fits"] for each in items)
    said = bare("simulate", *given, stdin=json.dumps(manifest))
    assert (said.code, json.loads(said.out)["placedPodCount"]) == (0, sum(replicas))


def test_the_only_workload_with_a_selector_is_ranked(bare, nodes, tmp_path):
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"web-{zone}", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": f"{zone}1", "containers": [{"name": "web"}]},
        }
        for zone in "ab"
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*NODES, *pods]))
    said = bare(
        *("rank-deletions", "-f", "-", "--from", tmp_path / "all.yaml", "-o", "json"),
        stdin=json.dumps(KINDS[0][0]),
    )
    assert (said.code, len(json.loads(said.out)["pods"])) == (0, 2)


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (
            custom(
                "Rollout", "argoproj.io/v1alpha1", workloadRef={"kind": "Deployment", "name": "web"}
            ),
            "its template is that of Deployment web: give that, or rollout/shop/web for its pods",
        ),
        (
            custom("Broker", "example.com/v1", pod=TEMPLATE["spec"]),
            "has constraints at spec.pod.topologySpreadConstraints and no pod template",
        ),
        (custom("Certificate", "example.com/v1"), "no pod to evaluate in the input"),
    ],
    ids=lambda each: each if isinstance(each, str) else each["kind"],
)
@pytest.mark.parametrize("verb", ["evaluate", "explain", "simulate"])
def test_an_object_without_a_pod_template_is_refused_with_the_reason(
    bare, nodes, verb, manifest, why
):
    said = bare(verb, "-f", "-", "--from", nodes, stdin=json.dumps(manifest))
    assert said.code == 2
    assert why in said.err


@pytest.mark.parametrize("first", ["Rollout", "Deployment"])
def test_a_template_that_a_rollout_takes_is_placed_as_its_own(bare, nodes, first):
    refers = custom(
        "Rollout",
        "argoproj.io/v1alpha1",
        replicas=2,
        workloadRef={"kind": "Deployment", "name": "web"},
    )
    refers["metadata"] = {**refers["metadata"], "name": "ro"}
    taken = custom("Deployment", "apps/v1", template=TEMPLATE, replicas=0)
    given = [refers, taken] if first == "Rollout" else [taken, refers]
    said = bare("simulate", "-f", "-", "--from", nodes, stdin=yaml.safe_dump_all(given))
    assert said.lines[0] == "Rollout shop/ro"
    assert "placed:   2 of 2" in said.lines
    assert "skipped" not in said.err


def test_an_object_that_is_skipped_beside_a_pod_is_named_with_the_reason(bare, nodes):
    given = [
        custom("Deployment", "apps/v1", template=TEMPLATE, replicas=1),
        custom("Broker", "example.com/v1", pod=TEMPLATE["spec"]),
    ]
    said = bare("simulate", "-f", "-", "--from", nodes, stdin=yaml.safe_dump_all(given))
    text = "has constraints at spec.pod.topologySpreadConstraints and no pod template"
    assert said.code == 0
    assert text in said.err
    assert "nothing that makes pods" not in said.err


def test_labels_that_a_controller_may_add_are_named(bare, nodes):
    manifest = custom("Runner", "example.com/v1", template={"spec": TEMPLATE["spec"]})
    said = bare("evaluate", "-f", "-", "--from", nodes, stdin=json.dumps(manifest))
    assert said.code == 0
    assert (
        "Runner shop/web: constraint 0 counts pods with app=web, which the template lacks"
        in said.err
    )
