"""Manifests to messages and back: what the API server's decoder takes, and what it refuses."""

import json
import re
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given

from tests.reference import strategies
from topospread_client import (
    ManifestError,
    args_from_manifest,
    manifest_from_object,
    object_from_manifest,
    pod_from_manifest,
)
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

FIRST = "spec.topologySpreadConstraints[0]"
DELETION = "metadata.deletionTimestamp"

FULL_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "annotations": {"note": "x"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:04:06Z",
        "labels": {"app": "a", "rev": ""},
        "name": "p",
        "namespace": "team",
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": "ReplicaSet",
                "name": "own",
                "uid": "u-1",
            }
        ],
        "resourceVersion": "12",
        "uid": "u-2",
    },
    "spec": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "disk", "operator": "In", "values": ["ssd"]}
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
                            ],
                        }
                    ]
                }
            },
        },
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "250m"}},
            }
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "nodeName": "n1",
        "nodeSelector": {"zone": "a"},
        "priority": -3,
        "tolerations": [{"effect": "NoExecute", "key": "k", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "labelSelector": {"matchLabels": {"app": "a"}},
                "matchLabelKeys": ["rev"],
                "maxSkew": 1,
                "minDomains": 2,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "",
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
            },
            {"labelSelector": {}, "maxSkew": 2},
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
    },
    "status": {
        "conditions": [{"status": "True", "type": "Ready"}],
        "containerStatuses": [{"name": "c", "ready": True, "restartCount": 4}],
        "phase": "Running",
    },
}


def made(manifest) -> ClusterObject:
    message = object_from_manifest(manifest)
    assert message is not None
    return message


def pod_with(**spec) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def constraint(**fields) -> dict:
    return pod_with(topologySpreadConstraints=[fields])


def test_all_stored_fields_come_back():
    assert manifest_from_object(made(FULL_POD)) == FULL_POD


def test_manifests_are_json_with_sorted_keys():
    text = json.dumps(manifest_from_object(made(FULL_POD)))
    assert text == json.dumps(FULL_POD, sort_keys=True)


@pytest.mark.parametrize(
    ("kind", "version", "spec", "field"),
    [
        ("Node", "v1", {"providerID": "aws:///x", "unschedulable": True}, "node"),
        ("Service", "v1", {"selector": {"app": "a"}}, "service"),
        ("ReplicationController", "v1", {"selector": {"app": "a"}}, "replication_controller"),
        ("ReplicaSet", "apps/v1", {"replicas": 0, "selector": {}}, "replica_set"),
        ("StatefulSet", "apps/v1", {"replicas": 3, "selector": {}}, "stateful_set"),
    ],
)
def test_every_kind_that_is_kept(kind, version, spec, field):
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    message = made(manifest)
    assert message.WhichOneof("content") == field
    assert manifest_from_object(message) == manifest


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("serving.knative.dev/v1", "Service"),
        ("metrics.k8s.io/v1beta1", "Pod"),
        ("v1", "pod"),
    ],
)
def test_other_kinds_are_not_read(version, kind):
    assert object_from_manifest({"apiVersion": version, "kind": kind, "spec": []}) is None


def test_an_item_of_a_list_may_lack_its_api_version():
    assert made({"kind": "ReplicaSet"}).WhichOneof("content") == "replica_set"


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (constraint(maxSkew="x"), f'{FIRST}.maxSkew: expected integer, got string "x"'),
        (constraint(maxSkew=1.5), f"{FIRST}.maxSkew: expected integer, got number 1.5"),
        (constraint(maxSkew=True), f"{FIRST}.maxSkew: expected integer, got boolean true"),
        (
            constraint(maxSkew=2**31),
            f"{FIRST}.maxSkew: expected integer of 32 bits, got 2147483648",
        ),
        (constraint(labelSelector=[]), f"{FIRST}.labelSelector: expected object, got array"),
        (
            constraint(matchLabelKeys=["a", 1]),
            f"{FIRST}.matchLabelKeys[1]: expected string, got number 1",
        ),
        (
            constraint(labelSelector={"matchLabels": {"a": 1}}),
            f"{FIRST}.labelSelector.matchLabels[a]: expected string, got number 1",
        ),
        (
            constraint(labelSelector={"matchLabels": {None: "a"}}),
            f"{FIRST}.labelSelector.matchLabels[None]: expected string as key, got null",
        ),
        (pod_with(nodeName=False), "spec.nodeName: expected string, got boolean false"),
        (pod_with(nodeSelector=["a"]), "spec.nodeSelector: expected object, got array"),
        (pod_with(tolerations={}), "spec.tolerations: expected array, got object"),
        (pod_with(containers=["c"]), 'spec.containers[0]: expected object, got string "c"'),
        ({"kind": "Pod", "spec": "s"}, 'spec: expected object, got string "s"'),
        ({"kind": "Pod", "metadata": 3}, "metadata: expected object, got number 3"),
        ({"kind": 3}, "kind: expected string, got number 3"),
        ({"kind": "Pod", "apiVersion": 1}, "apiVersion: expected string, got number 1"),
        ({"metadata": {}}, "kind: required: this is no Kubernetes object"),
        (
            {"kind": "Pod", "metadata": {"deletionTimestamp": "yesterday"}},
            f'{DELETION}: expected time in RFC 3339, got string "yesterday"',
        ),
        (
            {"kind": "Pod", "metadata": {"deletionTimestamp": "2026-02-30T00:00:00Z"}},
            f'{DELETION}: expected time in RFC 3339, got string "2026-02-30T00:00:00Z"',
        ),
        (
            pod_with(nodeName="n" * 100 + '"', schedulerName=["x"]),
            "spec.schedulerName: expected string, got array",
        ),
    ],
)
def test_wrong_types_are_refused_with_their_path(manifest, text):
    with pytest.raises(ManifestError) as caught:
        object_from_manifest(manifest)
    assert str(caught.value) == text
    assert f"{caught.value.path}: {caught.value.message}" == text


def test_non_object_is_refused_without_a_path():
    with pytest.raises(ManifestError, match=r"^expected object, got array$"):
        object_from_manifest([])  # type: ignore[arg-type]


def test_null_is_like_absent():
    nulls = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": None, "creationTimestamp": None, "uid": None},
        "spec": {"affinity": None, "containers": None, "priority": None, "nodeSelector": None},
        "status": None,
    }
    message = made(nulls)
    assert manifest_from_object(message) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {},
    }
    assert not message.pod.HasField("status")


def test_null_among_elements_is_an_empty_element():
    pod = made(
        pod_with(
            containers=[None],
            nodeSelector={"a": None},
            topologySpreadConstraints=[None, {"matchLabelKeys": [None]}],
        )
    ).pod
    assert len(pod.spec.containers) == 1
    assert dict(pod.spec.node_selector) == {"a": ""}
    assert list(pod.spec.topology_spread_constraints[1].match_label_keys) == [""]


def test_an_empty_selector_is_there_and_null_is_not():
    pod = made(pod_with(topologySpreadConstraints=[{"labelSelector": {}}, {"labelSelector": None}]))
    there, absent = pod.pod.spec.topology_spread_constraints
    assert there.HasField("label_selector")
    assert not absent.HasField("label_selector")


def test_an_empty_policy_is_there():
    message = made(constraint(nodeAffinityPolicy="")).pod.spec.topology_spread_constraints[0]
    assert message.HasField("node_affinity_policy")
    assert not message.HasField("node_taints_policy")


def test_fields_that_spreading_does_not_look_at_are_passed_over_whatever_they_hold():
    manifest = pod_with(
        ephemeralContainers="whatever",
        containers=[{"env": 3, "image": ["x"]}],
        volumes=[{"name": "v", "configMap": False}],
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": "x"}},
    )
    assert made(manifest | {"secret": object()}).pod.metadata.name == "p"


def test_required_pod_affinity_is_noted():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    affinity = made(pod_with(affinity={"podAntiAffinity": rule})).pod.spec.affinity
    assert len(affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution) == 1
    with pytest.raises(ManifestError, match=r"podAffinity.*: expected object, got string"):
        made(pod_with(affinity={"podAffinity": {**rule, next(iter(rule)): ["x"]}}))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("250m", "250m"),
        (" 1 ", "1"),
        (2, "2"),
        (0.5, "0.5"),
        (1e3, "1000"),
        ("1e3", "1e3"),
        ("1.5Gi", "1.5Gi"),
        ("-1", "-1"),
        (".5", ".5"),
        ("5.", "5."),
        (None, "0"),
        (0, "0"),
    ],
)
def test_quantities(written, kept):
    resources = {"requests": {"cpu": written}}
    message = made(pod_with(containers=[{"resources": resources}]))
    assert message.pod.spec.containers[0].resources.requests["cpu"].string == kept


@pytest.mark.parametrize(
    "written", ["", "1 m", "1mi", "1Zi", "one", "1e", True, [], {}, float("inf"), float("nan")]
)
def test_invalid_quantities_are_refused(written):
    with pytest.raises(ManifestError) as caught:
        made(pod_with(containers=[{"resources": {"limits": {"cpu": written}}}]))
    assert caught.value.path == "spec.containers[0].resources.limits[cpu]"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.987654321Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
    ],
)
def test_times_have_a_precision_of_a_second(written, shown):
    manifest = {"kind": "Pod", "metadata": {"creationTimestamp": written}}
    metadata = manifest_from_object(made(manifest))["metadata"]
    assert metadata == {"creationTimestamp": shown}


@pytest.mark.parametrize(
    "written",
    ["", "2026-01-02", "2026-01-02 03:04:05Z", "2026-01-02T03:04:05", "20260102T030405Z", 3],
)
def test_invalid_times_are_refused(written):
    with pytest.raises(ManifestError, match="expected time in RFC 3339"):
        made({"kind": "Pod", "metadata": {"creationTimestamp": written}})


def test_yaml_as_people_write_it():
    manifest = yaml.safe_load(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, creationTimestamp: 2026-01-02T03:04:05Z, labels: {2: a, true: b}}
        spec: {topologySpreadConstraints: [{maxSkew: 1.0}]}
        """
    )
    pod = made(manifest).pod
    assert dict(pod.metadata.labels) == {"2": "a", "true": "b"}
    assert pod.metadata.creation_timestamp.seconds == 1767323045
    assert pod.spec.topology_spread_constraints[0].max_skew == 1


def test_half_a_surrogate_pair_is_replaced():
    assert made({"kind": "Pod", "metadata": {"name": "\ud800x"}}).pod.metadata.name == "\ufffdx"


TEMPLATE = {"metadata": {"labels": {"app": "a"}, "name": "x"}, "spec": {"nodeName": "n"}}


def workload(kind, version="apps/v1", **spec) -> dict:
    metadata = {"name": "web", "namespace": "team", "uid": "u-1"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "SparkApplication"])
def test_a_workload_makes_a_pod_without_a_name(kind):
    pod = pod_from_manifest(workload(kind, template=TEMPLATE))
    assert (pod.metadata.name, pod.metadata.generate_name) == ("", "web-")
    assert pod.metadata.namespace == "team"
    assert dict(pod.metadata.labels) == {"app": "a"}
    assert pod.spec.node_name == "n"


def test_claims_of_templates_take_the_place_of_volumes_of_their_names():
    spec = {"volumes": [{"name": "data", "awsElasticBlockStore": {"volumeID": "v"}}]}
    templates = [{"metadata": {"name": "data"}}]
    pod = pod_from_manifest(
        workload("StatefulSet", template={"spec": spec}, volumeClaimTemplates=templates)
    )
    (volume,) = pod.spec.volumes
    assert volume.name == "data"
    assert volume.volume_source.HasField("persistent_volume_claim")
    assert not volume.volume_source.HasField("aws_elastic_block_store")


NAMES_OF_JOB = {"batch.kubernetes.io/job-name": "web", "job-name": "web"}
NO_NAMES = dict.fromkeys(NAMES_OF_JOB, "new")
UIDS = {"batch.kubernetes.io/controller-uid": "new", "controller-uid": "new"}
COMPLETION_INDEX = {"batch.kubernetes.io/job-completion-index": "0"}
ORDINALS = {"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}
FROM_FIVE = {"statefulset.kubernetes.io/pod-name": "web-5", "apps.kubernetes.io/pod-index": "5"}
GIVEN = {"metadata": {"labels": {"app": "a", "pod-template-hash": "5d9f"}}}


@pytest.mark.parametrize(
    ("kind", "spec", "added"),
    [
        ("Deployment", {}, {"pod-template-hash": "new"}),
        ("Deployment", {"template": GIVEN}, {"pod-template-hash": "5d9f"}),
        ("Rollout", {}, {"rollouts-pod-template-hash": "new"}),
        ("CloneSet", {}, {"controller-revision-hash": "new", "pod-template-hash": "new"}),
        ("DaemonSet", {}, {"controller-revision-hash": "new", "pod-template-generation": "new"}),
        ("StatefulSet", {}, {"controller-revision-hash": "new", **ORDINALS}),
        (
            "StatefulSet",
            {"ordinals": {"start": 5}},
            {"controller-revision-hash": "new", **FROM_FIVE},
        ),
        (
            "StatefulSet",
            {"ordinals": {"start": "5"}},
            {"controller-revision-hash": "new", **ORDINALS},
        ),
        ("Job", {}, NAMES_OF_JOB | UIDS),
        ("Job", {"completionMode": "Indexed"}, NAMES_OF_JOB | UIDS | COMPLETION_INDEX),
        ("Job", {"manualSelector": True}, {}),
        ("Job", {"manualSelector": True, "completionMode": "Indexed"}, COMPLETION_INDEX),
        ("CronJob", {}, NO_NAMES | UIDS),
        ("CronJob", {"completionMode": "Indexed"}, NO_NAMES | UIDS | COMPLETION_INDEX),
    ],
)
def test_a_workload_makes_a_pod_with_the_labels_of_its_controller(kind, spec, added):
    given = {"template": TEMPLATE, **spec}
    manifest = workload(kind, **({"jobTemplate": {"spec": given}} if kind == "CronJob" else given))
    labels = dict(pod_from_manifest(manifest).metadata.labels)
    assert labels.pop("app") == "a"
    made_up = {label: value for label, value in labels.items() if value.startswith("new_")}
    assert labels | dict.fromkeys(made_up, "new") == added
    assert len({*made_up.values()}) <= 1


def hash_of(manifest) -> str:
    return pod_from_manifest(manifest).metadata.labels["pod-template-hash"]


def test_a_revision_is_that_of_its_template():
    manifest = workload("Deployment", template=TEMPLATE)
    other = workload("Deployment", template={**TEMPLATE, "spec": {"nodeName": "other"}})
    elsewhere = {**manifest, "metadata": {**manifest["metadata"], "namespace": "elsewhere"}}
    assert re.fullmatch("new_[0-9a-f]{8}", hash_of(manifest))
    assert hash_of(manifest) == hash_of({**manifest})
    assert len({hash_of(manifest), hash_of(other), hash_of(elsewhere)}) == 3


def test_a_cron_job_makes_the_pod_of_its_jobs():
    manifest = workload("CronJob", "batch/v1", jobTemplate={"spec": {"template": TEMPLATE}})
    assert pod_from_manifest(manifest).spec.node_name == "n"


def test_workloads_that_decide_defaults_own_their_pods():
    owned = pod_from_manifest(workload("StatefulSet", template=TEMPLATE)).metadata.owner_references
    assert [(o.api_version, o.kind, o.name, o.uid, o.controller) for o in owned] == [
        ("apps/v1", "StatefulSet", "web", "u-1", True)
    ]
    made_by_deployment = pod_from_manifest(workload("Deployment", template=TEMPLATE))
    assert not made_by_deployment.metadata.owner_references


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (
            workload("Deployment", template={"spec": {"nodeName": 1}}),
            "spec.template.spec.nodeName: expected string, got number 1",
        ),
        (workload("Deployment", template=3), "spec.template: expected object, got number 3"),
        (
            workload("CronJob", jobTemplate={"spec": {}}),
            "spec.jobTemplate.spec.template: required: a CronJob has a pod template there",
        ),
        (
            workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates={}),
            "spec.volumeClaimTemplates: expected array, got object",
        ),
        (
            workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates=[{"metadata": 1}]),
            "spec.volumeClaimTemplates[0].metadata: expected object, got number 1",
        ),
        ({"kind": "List"}, "spec.template: required: a List has a pod template there"),
        ([], "expected object, got array"),
    ],
)
def test_invalid_pods_are_refused(manifest, text):
    with pytest.raises(ManifestError) as caught:
        pod_from_manifest(manifest)
    assert str(caught.value) == text


def test_args_are_read_strictly():
    args = args_from_manifest(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "PodTopologySpreadArgs",
            "defaultingType": "List",
            "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        }
    )
    assert args.defaulting_type == "List"
    assert args.default_constraints[0].topology_key == "zone"
    with pytest.raises(ManifestError, match=r"^defaultConstraints\[0\]\.maxSkw: unknown field$"):
        args_from_manifest({"defaultConstraints": [{"maxSkw": 1}]})
    with pytest.raises(ManifestError, match=r"^kind: expected PodTopologySpreadArgs"):
        args_from_manifest({"kind": "NodeAffinityArgs"})


def test_an_empty_message_is_no_object():
    with pytest.raises(ManifestError):
        manifest_from_object(ClusterObject())


@given(pod=strategies.incoming_pods())
def test_manifest_of_a_message_makes_the_same_message(pod):
    message = made(pod)
    assert made(manifest_from_object(message)) == message
