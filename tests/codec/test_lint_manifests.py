"""Manifests of workloads as lint reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topospread.codec.lint_manifests import (
    MOST_CONSTRAINTS,
    MOST_TERMS,
    is_linted,
    is_patch,
)
from topospread.codec.lint_parts import lint_parts
from topospread.kube.rollouts import Rollout, Share

CONTAINERS = [{"name": "web", "image": "web"}]
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}}
SELECTOR = {"matchLabels": {"app": "web"}}
QUARTER = Share(25, is_percentage=True)


def workload_from_manifest(manifest):
    if is_patch(manifest):
        manifest = {**manifest, "spec": {"selector": SELECTOR, **manifest["spec"]}}
    [part] = lint_parts(manifest)
    return part.workload


def malformed(manifest):
    """What cannot be read, by the path in the object."""
    return [
        f"{each.field}: {each.description}" for each in workload_from_manifest(manifest).malformed
    ]


ORDERED = Rollout(Share(0), Share(1), "controller-revision-hash", ordered=True)


def workload(kind, version="apps/v1", template=TEMPLATE, **spec):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"template": template, **spec},
    }


@pytest.mark.parametrize(
    ("manifest", "rollout"),
    [
        (workload("Deployment"), Rollout(QUARTER, QUARTER)),
        (
            workload("Deployment", strategy={"rollingUpdate": {"maxSurge": 2}}),
            Rollout(Share(2), QUARTER),
        ),
        (workload("Deployment", strategy={"type": "Recreate"}), None),
        (workload("StatefulSet"), ORDERED),
        (
            workload("StatefulSet", updateStrategy={"rollingUpdate": {"partition": 2}}),
            replace(ORDERED, partition=2),
        ),
        (workload("StatefulSet", updateStrategy={"type": "OnDelete"}), None),
        (workload("ReplicaSet"), None),
        (
            workload("Rollout", "argoproj.io/v1alpha1", strategy={"canary": {"maxSurge": "50%"}}),
            Rollout(Share(50, is_percentage=True), QUARTER, "rollouts-pod-template-hash"),
        ),
        (
            workload("Rollout", "argoproj.io/v1alpha1", strategy={"blueGreen": {}}),
            Rollout(QUARTER, Share(0), "rollouts-pod-template-hash", doubles=True),
        ),
        (
            workload("CloneSet", "apps.kruise.io/v1alpha1"),
            Rollout(Share(0), Share(20, is_percentage=True), "controller-revision-hash"),
        ),
    ],
    ids=[
        "default",
        "surge",
        "Recreate",
        "sts",
        "partition",
        "on delete",
        "rs",
        "canary",
        "blueGreen",
        "CloneSet",
    ],
)
def test_rollouts_are_those_of_the_kind(manifest, rollout):
    assert workload_from_manifest(manifest).rollout == rollout


def test_a_blue_green_rollout_doubles_the_pods():
    rollout = Rollout(QUARTER, Share(0), doubles=True)
    assert (rollout.surge(3), rollout.unavailable(3)) == (3, 0)


@pytest.mark.parametrize(
    ("manifest", "replicas"),
    [
        (workload("Deployment", replicas=3), 3),
        (workload("Deployment"), None),
        (workload("Deployment", replicas=None), None),
        (workload("Job", "batch/v1", parallelism=2), 2),
        (workload("Job", "batch/v1"), 1),
        (
            {
                "kind": "CronJob",
                "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
            },
            2,
        ),
        (workload("Deployment", replicas=2**31 - 1), 2**31 - 1),
        ({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": CONTAINERS}}, 1),
    ],
)
def test_replicas_are_unknown_where_an_autoscaler_may_set_them(manifest, replicas):
    assert workload_from_manifest(manifest).replicas == replicas


@pytest.mark.parametrize(
    ("manifest", "is_one"),
    [
        (workload("Deployment", selector=SELECTOR), True),
        (workload("SparkApplication", "sparkoperator.k8s.io/v1"), True),
        (workload("Certificate", template={"spec": {"dnsNames": []}}), False),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
            True,
        ),
        ({"kind": "Pod"}, True),
        ({"kind": "ConfigMap"}, False),
        ({"kind": "Deployment", "spec": []}, True),
        ({"apiVersion": "example.com/v1", "kind": "Deployment", "spec": []}, False),
        ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": []}}, False),
        (workload("Rollout", "argoproj.io/v1alpha1", None, workloadRef={"name": "web"}), False),
        ({"kind": ["Deployment"]}, False),
        (workload("Kafka", template=None, pod={"topologySpreadConstraints": []}), True),
    ],
)
def test_linted_is_what_has_a_template_of_pods_or_constraints(manifest, is_one):
    assert is_linted(manifest) == is_one
    assert not is_patch(manifest)


PATCH: dict[str, object] = {"spec": {"topologySpreadConstraints": []}}


@pytest.mark.parametrize(
    "manifest",
    [
        workload("Deployment", template=PATCH),
        workload("Deployment"),
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 5}},
        workload("Rollout", "argoproj.io/v1alpha1", PATCH),
        workload("Job", "batch/v1", PATCH),
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": PATCH}}}},
        {"kind": "CronJob", "spec": {"suspend": True}},
        {"kind": "Job", "status": {"succeeded": 1}},
        {"kind": "Deployment", "metadata": {"name": "d"}, "$patch": "delete"},
    ],
    ids=[
        *("constraints", "no selector", "replicas", "Rollout", "Job", "CronJob"),
        *("no job", "what a test expects", "deletion"),
    ],
)
def test_a_patch_lacks_a_selector_or_containers(manifest):
    assert is_patch(manifest)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"kind": "Deployment", "spec": {}}, "spec.template: required"),
        ({"kind": "Deployment", "spec": 3}, "spec.template: required"),
        ({"kind": "Job", "spec": {"template": None}}, "spec.template: required"),
        (workload("Deployment", template=None, selector=SELECTOR), "spec.template: required"),
        (workload("Deployment", template="foo"), "spec.template: expected object, got string"),
        (workload("Deployment", template={}, selector=SELECTOR), "spec.template.spec: required"),
        ({"kind": "CronJob", "spec": {"jobTemplate": 3}}, "spec.jobTemplate.spec.template: requ"),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {}}}}},
            "spec.jobTemplate.spec.template.spec: required",
        ),
        *(
            (workload("Deployment", replicas=given), "spec.replicas: must be a number of pods")
            for given in ("three", -1, True, 2.5, 2**31, 99999999999999999999)
        ),
        (workload("Job", "batch/v1", parallelism="3"), "spec.parallelism: must be a number"),
        (
            workload("CloneSet", "apps.kruise.io/v1alpha1", replicas="3"),
            "spec.replicas: must be a number",
        ),
    ],
)
def test_a_workload_that_is_broken_is_refused_with_the_path(manifest, said):
    assert is_linted(manifest)
    assert malformed(manifest)[0].startswith(said)


def test_other_kinds_may_have_replicas_of_their_own_form():
    spark = workload("SparkApplication", "sparkoperator.k8s.io/v1", replicas={"min": 1})
    assert workload_from_manifest(spark).replicas is None


NAMES_OF_JOB = {"batch.kubernetes.io/job-name": "web", "job-name": "web"}
GIVEN = NAMES_OF_JOB | {"job-name": "a"}


@pytest.mark.parametrize(
    ("manifest", "labels"),
    [
        (workload("Job", "batch/v1"), {"app": "web", **NAMES_OF_JOB}),
        (workload("Job", "batch/v1", manualSelector=True), {"app": "web"}),
        ({**workload("Job", "batch/v1"), "metadata": {"generateName": "web-"}}, {"app": "web"}),
        (workload("Deployment"), {"app": "web"}),
        (
            workload("Job", "batch/v1", {**TEMPLATE, "metadata": {"labels": GIVEN}}),
            GIVEN,
        ),
    ],
    ids=["Job", "selector of its own", "no name", "Deployment", "given"],
)
def test_the_pod_of_a_job_has_its_name_as_labels(manifest, labels):
    assert workload_from_manifest(manifest).pod.labels == labels


def anti_affinity(**term):
    given = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host", **term}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [given]}
    spec = {"containers": CONTAINERS, "affinity": {"podAntiAffinity": required}}
    return workload("Deployment", template={**TEMPLATE, "spec": spec})


@pytest.mark.parametrize(
    ("term", "keys"),
    [
        ({}, ("host",)),
        ({"namespaces": ["default"]}, ("host",)),
        ({"namespaces": ["other"]}, ()),
        ({"labelSelector": {"matchLabels": {"app": "db"}}}, ()),
        ({"labelSelector": None}, ()),
        ({"namespaces": ["other"], "namespaceSelector": {}}, ("host",)),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, ()),
        ({"mismatchLabelKeys": ["app"]}, ()),
        ({"matchLabelKeys": ["pod-template-hash"]}, ("host of a revision",)),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}}, ()),
    ],
)
def test_pods_repel_one_another_by_terms_that_match_their_own_labels(term, keys):
    found = workload_from_manifest(anti_affinity(**term)).repulsions
    assert tuple(f"{e.topology_key}{' of a revision' * e.is_scoped}" for e in found) == keys


@pytest.mark.parametrize("given", ["many", "-1", "25", -1, True, {}, "25%%"])
def test_a_surge_that_is_no_number_and_no_percentage_is_refused(given):
    strategy = {"rollingUpdate": {"maxSurge": given}}
    assert malformed(workload("Deployment", strategy=strategy)) == [
        "spec.strategy.rollingUpdate.maxSurge: must be a number of pods, or a percentage as in 25%"
    ]


def constrained(constraints):
    spec = {"containers": CONTAINERS, "topologySpreadConstraints": constraints}
    return workload("Deployment", template={**TEMPLATE, "spec": spec})


def test_more_constraints_than_lint_looks_at_are_refused():
    many = constrained([{}] * (MOST_CONSTRAINTS + 1))
    assert malformed(many) == [
        f"spec.template.spec.topologySpreadConstraints: at most {MOST_CONSTRAINTS}"
    ]
    assert not workload_from_manifest(many).pod.constraints


def test_more_expressions_than_lint_looks_at_are_refused():
    expression = {"key": "a", "operator": "In", "values": ["b"] * MOST_TERMS}
    selector = {"matchExpressions": [expression]}
    [said] = malformed(constrained([{"labelSelector": selector}]))
    assert f"more than {MOST_TERMS}" in said


def test_a_longer_selector_than_lint_looks_at_is_refused():
    labels = {f"l{number}": "a" for number in range(MOST_TERMS + 1)}
    assert malformed(workload("Deployment", selector={"matchLabels": labels})) == [
        "spec.selector: at most 10000 expressions"
    ]


def test_of_many_unknown_fields_the_first_are_kept():
    spec = {"containers": CONTAINERS, **{f"field{number}": 1 for number in range(1000)}}
    made = workload_from_manifest(workload("Deployment", template={**TEMPLATE, "spec": spec}))
    assert len(made.unknown_fields) == MOST_CONSTRAINTS
