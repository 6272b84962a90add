"""What `simulate -f` makes of a dump's objects that make one another, and of what is held back."""

from __future__ import annotations

import json

import pytest

from tests.cli.owned import HASH, documents, nodes, pod_of, spread, workload

NODES = nodes("a1", "b1", "c1")
OTHER = [spread(maxSkew=2)]


def made_by(owner, manifest):
    """A manifest that another object made, `Kind/name`."""
    kind, _, name = owner.partition("/")
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name}
    manifest["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    return manifest


RUNS = pod_of("ReplicaSet/web-5d8f", "web-1", "a1", labels={HASH: "5d8f"})
WAITS = pod_of("ReplicaSet/web-5d8f", "web-2", labels={HASH: "5d8f"})
ORDINAL = pod_of("StatefulSet/db", "db-0", "a1")
WEB = workload("Deployment", "web", replicas=3)
OF_WEB = made_by("Deployment/web", workload("ReplicaSet", "web-5d8f", replicas=3))
HOLDS = {
    "apiVersion": "core.strimzi.io/v1",
    "kind": "StrimziPodSet",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"pods": [RUNS]},
}
DB = workload("StatefulSet", "db", replicas=2)


@pytest.fixture
def asked(bare, tmp_path, monkeypatch):
    """Simulates objects on nodes and pods."""

    def ask(pods, *objects):
        (tmp_path / "state.yaml").write_text(documents(*NODES, *pods), encoding="utf-8")
        (tmp_path / "w.yaml").write_text(documents(*objects), encoding="utf-8")
        return bare("simulate", "-f", "w.yaml", "--from", "state.yaml", "-o", "json")

    monkeypatch.chdir(tmp_path)
    return ask


DUMPS = {
    # pods of the state, the file, names that are placed, what is left out
    "a Deployment with its ReplicaSet": (
        [RUNS, WAITS],
        [WEB, OF_WEB],
        ["web-2", "web-0"],
        "skipped: 1 ReplicaSet (another object of the input makes them)",
    ),
    "a Deployment with its ReplicaSet and their pods": (
        [RUNS, WAITS],
        [RUNS, WAITS, OF_WEB, WEB],
        ["web-2", "web-0"],
        "skipped: 2 Pod, 1 ReplicaSet (another object of the input makes them)",
    ),
    "a Deployment with its pods": (
        [RUNS, WAITS],
        [WEB, WAITS],
        ["web-2", "web-0"],
        "skipped: 1 Pod (another object of the input makes them)",
    ),
    "a workload twice, of which the last counts": (
        [RUNS],
        [WEB, workload("Deployment", "web", replicas=2)],
        ["web-0"],
        "skipped: 1 Deployment (given more than once: the last counts)",
    ),
    "pods that an object holds, beside these": (
        [RUNS],
        [HOLDS, RUNS],
        [],
        "skipped: 1 Pod (given more than once: the last counts)",
    ),
    "what the state lacks": (
        [],
        [WEB, OF_WEB, RUNS],
        ["web-0", "web-1", "web-2"],
        "skipped: 1 Pod, 1 ReplicaSet (another object of the input makes them)",
    ),
    "a StatefulSet with its pods": (
        [ORDINAL],
        [DB, ORDINAL],
        ["db-1"],
        "skipped: 1 Pod (another object of the input makes them)",
    ),
    "pods of what is not given": ([RUNS, WAITS], [DB, WAITS], ["db-0", "db-1", "web-2"], None),
    "a Job, whose CronJob makes another each time": (
        [],
        [
            workload("CronJob", "night", schedule="0 1 * * *"),
            made_by("CronJob/night", workload("Job", "night-1")),
        ],
        ["night-0", "night-1-0"],
        None,
    ),
}
CRON = DUMPS["a Job, whose CronJob makes another each time"][1][0]
CRON["spec"] = {
    "schedule": "0 1 * * *",
    "jobTemplate": {"spec": {"template": CRON["spec"]["template"]}},
}
CRON["apiVersion"] = "batch/v1"


@pytest.mark.parametrize("case", DUMPS)
def test_each_object_counts_once_and_not_what_another_makes(asked, case):
    pods, objects, placed, left_out = DUMPS[case]
    answer = asked(pods, *objects)
    assert [each["pod"]["name"] for each in json.loads(answer.out)["placements"]] == placed
    assert ("skipped: " in answer.err) == (left_out is not None)
    assert (left_out or "") in answer.err


def changed_db(strategy):
    return workload("StatefulSet", "db", constraints=OTHER, replicas=1, updateStrategy=strategy)


HELD = {
    # pods of the state, the workload, the warning
    "a paused Deployment with another template": (
        [RUNS],
        workload("Deployment", "web", constraints=OTHER, replicas=1, paused=True),
        "Deployment shop/web is paused: no pod of this template is made until it is resumed",
    ),
    "a paused Deployment that is not there": (
        [],
        workload("Deployment", "web", replicas=1, paused=True),
        "Deployment shop/web is paused: no pod of this template is made until it is resumed",
    ),
    "a paused Deployment of which more are asked for": (
        [RUNS],
        workload("Deployment", "web", replicas=2, paused=True),
        None,
    ),
    "a partition": (
        [ORDINAL],
        changed_db({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}),
        "StatefulSet shop/db has a partition of 2: pods below it keep their template",
    ),
    "a partition of none": (
        [ORDINAL],
        changed_db({"rollingUpdate": {"partition": 0}}),
        None,
    ),
    "pods that are to be deleted": (
        [ORDINAL],
        changed_db({"type": "OnDelete"}),
        "StatefulSet shop/db has updateStrategy OnDelete: a pod gets this template only once it",
    ),
    "a new StatefulSet with OnDelete": (
        [],
        workload("StatefulSet", "db", replicas=1, updateStrategy={"type": "OnDelete"}),
        None,
    ),
    "a suspended Job": (
        [],
        workload("Job", "job", suspend=True),
        "Job shop/job is suspended: until it is resumed it makes no pods, and those that run",
    ),
    "a new DaemonSet": (
        [],
        workload("DaemonSet", "agent"),
        "DaemonSet shop/agent makes a pod for each of its nodes, and tied to it: this is one like",
    ),
    "a DaemonSet, one of whose pods waits": (
        [pod_of("DaemonSet/agent", "agent-1")],
        workload("DaemonSet", "agent"),
        None,
    ),
    "a Job that goes on": ([], workload("Job", "job", suspend=False), None),
}


@pytest.mark.parametrize("case", HELD)
def test_workloads_that_make_no_pods_when_applied_are_named(asked, case):
    pods, manifest, warning = HELD[case]
    warnings = json.loads(asked(pods, manifest).out)["warnings"]
    assert len(warnings) == (warning is not None)
    assert (warning or "") in "".join(warnings)
