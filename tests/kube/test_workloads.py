"""The selector that default constraints get, and the controllers that people know pods by."""

import pytest
from hypothesis import given

from tests.kube import values
from tests.reference import defaults as reference
from tests.reference import strategies
from topospread.kube.objects import (
    LabelExpression,
    LabelSelector,
    OwnerReference,
    Pod,
    Workload,
)
from topospread.kube.selectors import Selector, selector_from_pairs
from topospread.kube.workloads import controllers_of, default_selector, workload_of

LABELS = {"app": "a", "tier": "be"}
APP = Workload("Service", "default", "app", match_labels=(("app", "a"),))
TIER = Workload("Service", "default", "tier", match_labels=(("tier", "be"),))
OTHER = Workload("Service", "default", "other", match_labels=(("app", "b"),))
ALL = Workload("Service", "default", "all")
RC = Workload("ReplicationController", "default", "own", match_labels=(("app", "z"),))
RS = Workload("ReplicaSet", "default", "own", LabelSelector((("rev", "1"),)))
BROKEN = Workload(
    "StatefulSet", "default", "own", LabelSelector((), (LabelExpression("rev", "Like"),))
)


def found(*workloads: Workload, owner: OwnerReference | None = None) -> Selector:
    index = {(w.kind, w.name): w for w in workloads}
    pod = Pod("p", labels=LABELS, owner=owner)
    return default_selector(pod, workloads, lambda kind, name: index.get((kind, name)))


def owned_by(workload: Workload, version: str) -> OwnerReference:
    return OwnerReference(version, workload.kind, workload.name)


def test_services_that_match_are_merged():
    assert found(APP, TIER, OTHER, ALL) == selector_from_pairs(LABELS.items())


def test_without_a_service_nothing_is_selected():
    assert found().empty
    assert found(ALL, OTHER).empty


def test_a_replication_controllers_labels_take_the_place_of_the_services():
    expected = selector_from_pairs([("app", "z"), ("tier", "be")])
    assert found(APP, TIER, RC, owner=owned_by(RC, "v1")) == expected


def test_a_replica_sets_selector_is_added():
    expected = selector_from_pairs([("app", "a"), ("rev", "1")])
    assert found(APP, RS, owner=owned_by(RS, "apps/v1")) == expected


@pytest.mark.parametrize(
    ("workload", "version"),
    [
        (RS, "v1"),
        (RS, "apps/v1beta2"),
        (RS, "extensions/v1"),
        (RS, "a/apps/v1"),
        (RS, ""),
        (RC, "apps/v1"),
        (Workload("Deployment", "default", "own", RS.selector), "apps/v1"),
        (BROKEN, "apps/v1"),
    ],
)
def test_owners_that_are_not_looked_at(workload, version):
    assert found(APP, workload, owner=owned_by(workload, version)) == found(APP)


def test_an_owner_that_is_not_there_adds_nothing():
    assert found(APP, owner=owned_by(RS, "apps/v1")) == found(APP)


@given(cluster=strategies.clusters(), pod=strategies.incoming_pods())
def test_deducing_agrees_with_the_reference(cluster, pod):
    incoming = values.pod(pod)
    kinds = ("services", "replicationControllers", "replicaSets", "statefulSets")
    workloads = [values.workload(w) for kind in kinds for w in cluster[kind]]
    own = [w for w in workloads if w.namespace == incoming.namespace]
    index = {(w.kind, w.name): w for w in own}
    got = default_selector(incoming, own, lambda kind, name: index.get((kind, name)))
    expected = reference.deduced_selector(cluster, pod)
    assert got.empty == expected.empty
    for each in cluster["pods"]:
        labels = each["metadata"]["labels"]
        assert got.matches(labels) == expected.matches(labels)


HASH = {"pod-template-hash": "5d4f"}
ROLLOUT_HASH = {"rollouts-pod-template-hash": "5d4f"}
KNOWN = {
    ("ReplicaSet", "own"): OwnerReference("apps/v1", "Deployment", "outer"),
    ("ReplicaSet", "foreign"): OwnerReference("example.com/v1", "Fleet", "outer"),
    ("ReplicaSet", "web-5d4f"): None,
    ("StatefulSet", "db"): OwnerReference("example.com/v1", "Database", "main"),
    ("Job", "nightly"): OwnerReference("batch/v1", "CronJob", "backup"),
    ("Job", "alone-29101010"): None,
    ("Job", "prepare-0"): OwnerReference("ceph.rook.io/v1", "CephCluster", "rook"),
    ("Job", "loop"): OwnerReference("batch/v1", "Job", "loop"),
    ("StatefulSet", "vllm-0"): OwnerReference("v1", "Pod", "vllm-0"),
}
JOBSET = {"jobset.sigs.k8s.io/jobset-name": "train"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "vllm"}
SPARK = {"sparkoperator.k8s.io/app-name": "pi"}
KNATIVE = {
    "pod-template-hash": "5d4f",
    "serving.knative.dev/revision": "hi-1",
    "serving.knative.dev/service": "hi",
}

# The pod's own controller and labels: its controllers, and the one that people know it by.
CONTROLLED = {
    "ReplicaSet own": ("apps/v1", {}, ["ReplicaSet own", "Deployment outer"], "Deployment outer"),
    "ReplicaSet foreign": ("apps/v1", HASH, ["ReplicaSet foreign", "Fleet outer"], "Fleet outer"),
    "ReplicaSet web-5d4f": ("apps/v1", HASH, ["ReplicaSet web-5d4f", "Deployment web"], None),
    "ReplicaSet app-5d4f": ("apps/v1", ROLLOUT_HASH, ["ReplicaSet app-5d4f", "Rollout app"], None),
    "ReplicaSet plain-5d4f": ("apps/v1", {}, ["ReplicaSet plain-5d4f"], None),
    "StatefulSet db": ("apps/v1", {}, ["StatefulSet db", "Database main"], "StatefulSet db"),
    "Job nightly": ("batch/v1", {}, ["Job nightly", "CronJob backup"], "CronJob backup"),
    "Job alone-29101010": ("batch/v1", {}, ["Job alone-29101010"], None),
    "Job prepare-0": ("batch/v1", {}, ["Job prepare-0", "CephCluster rook"], "Job prepare-0"),
    "Job gone-29101010": ("batch/v1", {}, ["Job gone-29101010", "CronJob gone"], None),
    "Job gone-2910101": ("batch/v1", {}, ["Job gone-2910101"], None),
    "Job gone-291010100": ("batch/v1", {}, ["Job gone-291010100"], None),
    "Job gone-20261128": ("batch/v1", {}, ["Job gone-20261128"], None),
    "Job gone-99999999": ("batch/v1", {}, ["Job gone-99999999"], None),
    "Job import-2": ("batch/v1", {}, ["Job import-2"], None),
    "Job loop": ("batch/v1", {}, ["Job loop"] * 4, "Job loop"),
    "StatefulSet  db": ("apps.kruise.io/v1beta1", {}, ["StatefulSet db"], None),
    "Cluster pg": ("postgresql.cnpg.io/v1", {}, ["Cluster pg"], None),
    "Job train-0": ("batch/v1", JOBSET, ["Job train-0", "JobSet train"], None),
    "StatefulSet vllm": ("apps/v1", LWS, ["StatefulSet vllm", "LeaderWorkerSet vllm"], None),
    "StatefulSet vllm-0": (
        "apps/v1",
        LWS,
        ["StatefulSet vllm-0", "Pod vllm-0", "LeaderWorkerSet vllm"],
        None,
    ),
    "SparkApplication pi": ("sparkoperator.k8s.io/v1beta2", SPARK, ["SparkApplication pi"], None),
    "Pod pi-driver": ("v1", SPARK, ["Pod pi-driver", "SparkApplication pi"], None),
    "Pod submitted-driver": ("v1", {}, ["Pod submitted-driver"], None),
    "EphemeralRunner x-runner-1": (
        "actions.github.com/v1alpha1",
        {"actions.github.com/scale-set-name": "x"},
        ["EphemeralRunner x-runner-1", "AutoscalingRunnerSet x"],
        None,
    ),
    "Runner x-1-2": (
        "actions.summerwind.dev/v1alpha1",
        {"runner-deployment-name": "x"},
        ["Runner x-1-2", "RunnerDeployment x"],
        None,
    ),
    "TaskRun build-1": (
        "tekton.dev/v1",
        {"tekton.dev/pipelineRun": "build"},
        ["TaskRun build-1", "PipelineRun build"],
        None,
    ),
    "VirtualMachineInstance vm": (
        "kubevirt.io/v1",
        {"vm.kubevirt.io/name": "vm"},
        ["VirtualMachineInstance vm", "VirtualMachine vm"],
        "VirtualMachineInstance vm",
    ),
    "ReplicaSet hi-1-deployment-5d4f": (
        "apps/v1",
        KNATIVE,
        [
            "ReplicaSet hi-1-deployment-5d4f",
            "Deployment hi-1-deployment",
            "Revision hi-1",
            "Service hi",
        ],
        "Deployment hi-1-deployment",
    ),
}


@pytest.mark.parametrize("text", CONTROLLED)
def test_controllers_are_those_that_objects_name_or_else_names(text):
    api_version, labels, chain, known_by = CONTROLLED[text]
    kind, name = text.split()
    found = controllers_of(OwnerReference(api_version, kind, name), labels, KNOWN)
    assert [f"{each.kind} {each.name}" for each in found] == chain
    workload = workload_of(found)
    assert f"{workload.kind} {workload.name}" == (known_by or chain[-1])
