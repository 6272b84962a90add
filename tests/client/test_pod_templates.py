"""Where objects of any kind have pod templates, and constraints outside of them."""

from __future__ import annotations

from typing import Any

import pytest

from topospread_client import (
    ManifestError,
    pod_from_manifest,
    pod_templates,
    spread_parts,
    template_reference,
)

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
CONSTRAINED: dict[str, Any] = {"spec": {"topologySpreadConstraints": []}}


def custom(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Custom",
        "metadata": {"name": "x", "namespace": "n"},
        "spec": spec,
    }


def nested(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"template": TEMPLATE}
    for _ in range(depth):
        made = {"a": made}
    return custom(**made)


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        (custom(template=TEMPLATE), {"spec.template": None}),
        (custom(replicas=3, template=TEMPLATE), {"spec.template": 3}),
        (custom(replicas="3", template=TEMPLATE), {"spec.template": None}),
        (
            custom(nodeSets=[{"count": 2, "podTemplate": CONSTRAINED}]),
            {"spec.nodeSets[0].podTemplate": 2},
        ),
        (
            custom(head={"template": TEMPLATE}, workers=[{"replicas": 3, "template": TEMPLATE}]),
            {"spec.head.template": None, "spec.workers[0].template": 3},
        ),
        (
            custom(
                jobs=[
                    {"replicas": 2, "template": {"spec": {"parallelism": 4, "template": TEMPLATE}}}
                ]
            ),
            {"spec.jobs[0].template.spec.template": 8},
        ),
        (custom(executor={"instances": 5, "template": TEMPLATE}), {"spec.executor.template": 5}),
        (
            custom(jobTargetRef={"parallelism": 0, "template": TEMPLATE}),
            {"spec.jobTargetRef.template": 0},
        ),
        (
            custom(replicas=2, leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE}),
            {"spec.leaderWorkerTemplate.workerTemplate": 6},
        ),
        (
            custom(
                replicas=2,
                leaderWorkerTemplate={
                    "leaderTemplate": TEMPLATE,
                    "size": 3,
                    "workerTemplate": TEMPLATE,
                },
            ),
            {
                "spec.leaderWorkerTemplate.leaderTemplate": 2,
                "spec.leaderWorkerTemplate.workerTemplate": 4,
            },
        ),
        (custom(containers=[{"name": "c"}], topologySpreadConstraints=[]), {}),
        (custom(template={"spec": {"dnsNames": []}}), {}),
        ({"apiVersion": "v1", "kind": "PodTemplate", "template": TEMPLATE}, {"template": None}),
        (
            {
                "kind": "CronJob",
                "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
            },
            {"spec.jobTemplate.spec.template": 2},
        ),
        ({"kind": "Pod", **TEMPLATE}, {}),
        (
            custom(
                manifests=[
                    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": TEMPLATE}}
                ]
            ),
            {"spec.manifests[0].spec.template": None},
        ),
        (
            custom(manifests=[{"apiVersion": "v1", "kind": "Pod", **TEMPLATE}]),
            {"spec.manifests[0]": None},
        ),
        (
            custom(replicas=3, podTemplate={"apiVersion": "v1", "kind": "Pod", **TEMPLATE}),
            {"spec.podTemplate": 3},
        ),
        (custom(componentSpecs=[TEMPLATE]), {"spec.componentSpecs[0]": None}),
        ({**custom(), "status": {"template": TEMPLATE}}, {}),
        (
            {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"template": TEMPLATE}},
            {},
        ),
        (nested(50), {f"spec{'.a' * 50}.template": None}),
        (nested(100), {}),
    ],
)
def test_templates_are_found_wherever_a_kind_has_them(manifest, found):
    assert {each.text: each.replicas for each in pod_templates(manifest)} == found


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        (custom(topologySpreadConstraints=[]), ["spec.topologySpreadConstraints"]),
        (
            custom(a={"template": {"pod": CONSTRAINED["spec"]}}),
            ["spec.a.template.pod.topologySpreadConstraints"],
        ),
        (custom(template=CONSTRAINED), []),
        ({"controller": CONSTRAINED["spec"]}, ["controller.topologySpreadConstraints"]),
        (
            custom(
                patches=[{"op": "add", "path": "/spec/topologySpreadConstraints/-", "value": {}}]
            ),
            ["spec.patches[0].value"],
        ),
        (
            custom(overlays=[{"path": "spec.topologySpreadConstraints", "value": []}]),
            ["spec.overlays[0].value"],
        ),
        (
            custom(
                rules=[
                    {"path": "/topologySpreadConstraints/0/maxSkew", "value": 0},
                    {"path": "/topologySpreadConstraints/0/minDomains", "value": 0},
                ]
            ),
            ["spec.rules[0]"],
        ),
        (
            custom(parameters=[{"name": "a.topologySpreadConstraints[0].maxSkew", "value": "0"}]),
            ["spec.parameters[0]"],
        ),
        (custom(parameters=[{"name": "topologySpreadConstraintsEnabled", "value": "x"}]), []),
        (
            custom(pattern={"+(topologySpreadConstraints)": []}),
            ["spec.pattern.+(topologySpreadConstraints)"],
        ),
        (custom(location="spec.topologySpreadConstraints[topologyKey:a]"), ["spec.location"]),
        (custom(**{"a.topologySpreadConstraints": []}), ["spec.a.topologySpreadConstraints"]),
        (
            custom(**{"a.topologySpreadConstraints[0].maxSkew": 1}),
            ["spec.a.topologySpreadConstraints[0].maxSkew"],
        ),
        (custom(labels={"a/topologySpreadConstraints": "b"}), []),
        (custom(data={"topologySpreadConstraints.yaml": "a"}), []),
        (
            custom(template={"spec": {"containers": [], "topologySpreadConstraint": []}}),
            ["spec.template.spec.topologySpreadConstraint"],
        ),
    ],
)
def test_constraints_outside_of_templates_are_found(manifest, found):
    assert [each.text for each in spread_parts(manifest).lists] == found


def test_a_pod_is_made_of_the_template_that_is_named():
    several = custom(a={"template": TEMPLATE}, b={"template": CONSTRAINED})
    with pytest.raises(
        ManifestError, match=r"has 2 pod templates.*spec\.a\.template, spec\.b\.template"
    ):
        pod_from_manifest(several)
    pod = pod_from_manifest(several, template="spec.a.template")
    assert (pod.metadata.generate_name, pod.metadata.namespace) == ("x-", "n")
    assert dict(pod.metadata.labels) == {"a": "b"}
    with pytest.raises(ManifestError, match=r"spec\.c: required"):
        pod_from_manifest(several, template="spec.c")


@pytest.mark.parametrize(
    "spec",
    [
        {"componentSpecs": [TEMPLATE]},
        {"a": [[TEMPLATE]]},
        {"podTemplate": {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}},
    ],
    ids=["element", "element of an element", "a Pod"],
)
def test_templates_at_any_place_make_pods_of_their_object(spec):
    pod = pod_from_manifest(custom(**spec))
    assert (pod.metadata.generate_name, pod.metadata.namespace) == ("x-", "n")
    assert dict(pod.metadata.labels) == {"a": "b"}


NAMED = {
    ("ray.io/v1", "RayCluster"): {"ray.io/cluster": "x"},
    ("ray.io/v1", "RayService"): {},
    ("serving.knative.dev/v1", "Service"): {"serving.knative.dev/service": "x"},
    ("example.com/v1", "Service"): {},
    ("batch.volcano.sh/v1alpha1", "Job"): {"volcano.sh/job-name": "x"},
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): {"leaderworkerset.sigs.k8s.io/name": "x"},
}
"""Kinds, and the labels that their controllers give all pods."""


@pytest.mark.parametrize("kind", NAMED, ids="/".join)
@pytest.mark.parametrize("known_only", [True, False])
def test_pods_have_the_name_that_their_controller_gives_them(kind, known_only):
    version, called = kind
    manifest = custom(a={"template": TEMPLATE}) | {"apiVersion": version, "kind": called}
    pod = pod_from_manifest(manifest, known_labels_only=known_only)
    assert dict(pod.metadata.labels) == {"a": "b", **NAMED[kind]}


def test_errors_have_the_path_of_the_template():
    wrong = custom(sets=[{"template": {"spec": {"containers": [], "nodeName": 5}}}])
    with pytest.raises(
        ManifestError, match=r"spec\.sets\[0\]\.template\.spec\.nodeName: expected string"
    ):
        pod_from_manifest(wrong)


def test_a_workload_may_have_the_template_of_another():
    rollout = {"kind": "Rollout", "spec": {"workloadRef": {"kind": "Deployment", "name": "web"}}}
    assert template_reference(rollout) == "Deployment web"
    assert template_reference(custom(workloadRef={"kind": 3})) == ""
