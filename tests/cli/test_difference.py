"""`simulate -f` of a workload that is in the state places what is missing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.owned import (
    HASH,
    HOSTNAME,
    INDEX,
    ZONE,
    documents,
    nodes,
    pod_of,
    spread,
    tasks,
    workload,
)
from topospread.service.simulation import checks

REVISION = {HASH: "5d8f"}
OF_WEB = "ReplicaSet/web-5d8f"
NODES = nodes("a1", "b1", "c1")


def web(name, node="", **more):
    """A pod of Deployment web."""
    return pod_of(OF_WEB, name, node, **{"labels": REVISION, **more})


ONE_WAITS = [web("web-1", "a1"), web("web-2")]
FOUR_RUN = [web(f"web-{n}", node) for n, node in enumerate(("a1", "b1", "c1", "a1"))]

GOING = web("web-3")
GOING["metadata"]["deletionTimestamp"] = "2026-01-01T00:30:00Z"


def ordinal(number, node=""):
    name = f"db-{number}"
    labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": number}
    return pod_of("StatefulSet/db", name, node, labels={k: str(v) for k, v in labels.items()})


def indexed(number, node="", **more):
    return pod_of("Job/job", f"job-{number}-x", node, labels={INDEX: str(number)}, **more)


VOLCANO = "batch.volcano.sh/v1alpha1"
JOB: dict[str, Any] = {"parallelism": 2, "completions": 4, "completionMode": "Indexed"}


def controlled(kind, api, name, owner):
    """An object that another made, `Kind/name`."""
    outer, _, outer_name = owner.partition("/")
    reference = {"apiVersion": "example.com/v1", "kind": outer, "name": outer_name, "uid": "o"}
    metadata = {"name": name, "namespace": "shop", "uid": name}
    metadata["ownerReferences"] = [reference | {"controller": True}]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": {}}


KEYED = [spread(matchLabelKeys=[HASH])]

CASES = {
    # state, manifest, arguments, names that are placed, what is said
    "one waits": (
        ONE_WAITS,
        workload("Deployment", "web", replicas=2),
        [],
        ["web-2"],
        "has 2 pods in the state (1 runs, 1 waits): the 1 that waits is placed, none is made",
    ),
    "one waits and one is missing": (
        ONE_WAITS,
        workload("Deployment", "web", replicas=3),
        [],
        ["web-2", "web-0"],
        "the 1 that waits is placed, 1 more is made",
    ),
    "all run": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=4),
        [],
        [],
        "no more are asked for, and none is placed (images are not compared: another one is a",
    ),
    "more run than are asked for": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=3),
        [],
        [],
        "that is 1 more than the 3 asked for, and none is placed; which go first: rank-deletions",
    ),
    "all are more": (
        ONE_WAITS,
        workload("Deployment", "web", replicas=2),
        ["--in-addition"],
        ["web-0", "web-1"],
        None,
    ),
    "the number is given": (
        ONE_WAITS,
        workload("Deployment", "web", replicas=2),
        ["--replicas", "4"],
        ["web-2", "web-0", "web-1"],
        "2 more are made",
    ),
    "an autoscaler has the number": (
        ONE_WAITS,
        workload("Deployment", "web"),
        [],
        ["web-2"],
        "none is made",
    ),
    "of a namespace that -n names": (
        ONE_WAITS,
        workload("Deployment", "web", namespace="", replicas=2),
        ["-n", "shop"],
        ["web-2"],
        "Deployment shop/web has 2 pods",
    ),
    "one waits beyond a gap, and the number is not given": (
        [ordinal(0, "a1"), ordinal(2)],
        workload("StatefulSet", "db"),
        [],
        ["db-2", "db-1"],
        "the 1 that waits is placed, 1 more is made",
    ),
    "one beyond a gap goes with its node, and the number is not given": (
        [ordinal(0, "a1"), ordinal(2, "b1")],
        workload("StatefulSet", "db"),
        ["--drain", "b1"],
        ["db-1", "db-2"],
        "has 2 pods in the state (1 runs, 1 goes): 2 more are made",
    ),
    "all go with their node, and an autoscaler has the number": (
        [web("web-1", "a1"), web("web-2", "a1")],
        workload("Deployment", "web"),
        ["--drain", "a1"],
        ["web-0", "web-1"],
        "has 2 pods in the state (2 go): 2 more are made",
    ),
    "of another name": (
        ONE_WAITS,
        workload("Deployment", "other", replicas=1),
        [],
        ["other-0"],
        None,
    ),
    "another template": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=2, constraints=[spread(maxSkew=2)]),
        [],
        ["web-0", "web-1"],
        "theirs (topologySpreadConstraints), so this is taken for a rollout, judged at its end: 2",
    ),
    "another template, of a ReplicaSet, whose pods stay": (
        [pod_of("ReplicaSet/web", "web-a", "a1")],
        workload("ReplicaSet", "web", replicas=2, constraints=[spread(maxSkew=2)]),
        [],
        ["web-0"],
        "ReplicaSet shop/web has 1 pod in the state (1 runs): 1 more is made",
    ),
    "several fields differ": (
        ONE_WAITS,
        workload("Deployment", "web", replicas=1, pod={"nodeSelector": {"disk": "fast"}}),
        [],
        ["web-0"],
        "another than theirs (nodeSelector)",
    ),
    "the same template, counted by its hash": (
        [web("web-1", "a1", constraints=KEYED)],
        workload("Deployment", "web", replicas=3, constraints=KEYED),
        [],
        ["web-0", "web-1"],
        "2 more are made",
    ),
    "what the API server writes into a selector is no difference": (
        [
            web(
                "web-1",
                "a1",
                constraints=[
                    spread(
                        matchLabelKeys=[HASH],
                        labelSelector={
                            "matchLabels": {"app": "web"},
                            "matchExpressions": [
                                {"key": HASH, "operator": "In", "values": ["5d8f"]}
                            ],
                        },
                    )
                ],
            )
        ],
        workload("Deployment", "web", replicas=2, constraints=KEYED),
        [],
        ["web-0"],
        "1 more is made",
    ),
    "a rollout is under way": (
        [*FOUR_RUN, pod_of("ReplicaSet/web-77aa", "new-1", labels={HASH: "77aa"}, created=9)],
        workload("Deployment", "web", replicas=4),
        [],
        ["new-1"],
        "the 1 that waits is placed, none is made; a rollout is under way, whose older pods go",
    ),
    "a rollout is under way, and none waits": (
        [*FOUR_RUN[:3], pod_of("ReplicaSet/web-77aa", "new-1", "a1", labels={HASH: "77aa"})],
        workload("Deployment", "web", replicas=3),
        [],
        [],
        "no more are asked for, and none is placed; a rollout is under way, whose older pods go",
    ),
    "pods that end are none": (
        [web("web-1", "a1", phase="Failed"), web("web-2", "b1")],
        workload("Deployment", "web", replicas=2),
        [],
        ["web-0"],
        "1 pod in the state (1 runs): 1 more is made",
    ),
    "missing ordinals": (
        [ordinal(0, "a1"), ordinal(2), ordinal(3, "b1")],
        workload("StatefulSet", "db", replicas=5),
        [],
        ["db-2", "db-1", "db-4"],
        "the 1 that waits is placed, 2 more are made",
    ),
    "fewer ordinals": (
        [ordinal(number, "a1") for number in range(3)],
        workload("StatefulSet", "db", replicas=2),
        [],
        [],
        "1 more than the 2 asked for",
    ),
    "a Job goes on with the next indexes": (
        [indexed(0, "a1", phase="Succeeded"), indexed(1, "b1")],
        workload("Job", "job", **JOB),
        [],
        ["job-2"],
        "has 2 pods in the state (1 runs, 1 succeeded): 1 more is made",
    ),
    "a Job has finished": (
        [pod_of("Job/job", "job-x", "a1", phase="Succeeded")],
        workload("Job", "job"),
        [],
        [],
        "no more are asked for",
    ),
    "a Job without completions, one of whose pods has succeeded": (
        [
            pod_of("Job/job", "job-w", "a1", phase="Succeeded"),
            *[pod_of("Job/job", f"job-{each}", "b1") for each in "xy"],
        ],
        workload("Job", "job", parallelism=4),
        [],
        [],
        "has 3 pods in the state (2 run, 1 succeeded): no more are asked for",
    ),
    "a Job of another API group": (
        [pod_of("Job/vc", f"vc-t-{n}", "a1", api=VOLCANO) for n in range(2)],
        tasks("vc", 3),
        [],
        ["vc-0"],
        "Job shop/vc has 2 pods in the state (2 run): 1 more is made",
    ),
    "a Job of another API group with two templates": (
        [],
        tasks("vc", 1, 2),
        [],
        ["vc-0", "vc-0", "vc-1"],
        None,
    ),
    "a DeploymentConfig, by its ReplicationController": (
        [
            controlled("ReplicationController", "v1", "dc-1", "DeploymentConfig/dc"),
            *[pod_of("ReplicationController/dc-1", f"dc-1-{n}", "a1", api="v1") for n in range(2)],
        ],
        workload("DeploymentConfig", "dc", replicas=3),
        [],
        ["dc-0"],
        "DeploymentConfig shop/dc has 2 pods in the state (2 run): 1 more is made",
    ),
    "a DaemonSet": (
        [pod_of("DaemonSet/ds", "ds-1", "a1"), pod_of("DaemonSet/ds", "ds-2")],
        workload("DaemonSet", "ds"),
        [],
        ["ds-2"],
        "DaemonSet shop/ds has 2 pods",
    ),
    "any kind that controls pods": (
        [pod_of("CloneSet/clone", "clone-1", "a1")],
        workload("CloneSet", "clone", replicas=2),
        [],
        ["clone-0"],
        "CloneSet shop/clone has 1 pod in the state (1 runs): 1 more is made",
    ),
    "a pod that runs": (
        ONE_WAITS,
        web("web-1"),
        [],
        [],
        "Pod shop/web-1 runs on a1 already: it is not placed",
    ),
    "a pod that waits": (ONE_WAITS, web("web-2"), [], ["web-2"], "is in the state and waits"),
    "a pod that is being deleted": (
        [{**GOING, "spec": {**GOING["spec"], "nodeName": "a1"}}],
        GOING,
        [],
        [],
        "Pod shop/web-3 is being deleted: it is not placed",
    ),
    "a pod that is being deleted, and removed": (
        [GOING],
        GOING,
        ["--delete-pod", "shop/web-3"],
        ["web-3"],
        None,
    ),
    "a pod that has ended": (
        [web("job-1", "a1", phase="Succeeded")],
        web("job-1"),
        [],
        [],
        "Pod shop/job-1 has ended (Succeeded): it is not placed",
    ),
    "copies of a pod": (ONE_WAITS, web("web-1"), ["--replicas", "1"], ["web-1-0"], None),
    "pods of drained nodes are missing": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=4),
        ["--drain", "b1"],
        ["web-0"],
        "has 4 pods in the state (3 run, 1 goes): 1 more is made",
    ),
    "pods of drained nodes that are placed anew are not": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=4),
        ["--drain", "b1", "--reschedule"],
        ["web-1"],
        "has 4 pods in the state (4 run): no more",
    ),
    "a pod that is deleted is missing": (
        FOUR_RUN,
        workload("Deployment", "web", replicas=4),
        ["--delete-pod", "shop/web-0"],
        ["web-0"],
        "1 more is made",
    ),
}

TERM: dict[str, Any] = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
VERSION = {"key": "version", "operator": "In", "values": ["v1"]}


def container(name="c", requests=None, **more):
    return {"name": name, "image": "x", "resources": {"requests": requests or CPU}, **more}


def selected(*added):
    """The selector of web, with what the API server adds."""
    return {"matchLabels": {"app": "web"}, "matchExpressions": [*added]}


def claim(name):
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def keyed(term):
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


CPU = {"cpu": "100m"}
ON_DISK = {"nodeSelector": {"disk": "fast"}}
PORT = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
BIG = container("big", {"cpu": "8"})

CHANGED = {
    # more of the pod's spec, more of the template's, fields that differ
    "a node selector is taken away": (ON_DISK, {}, ["nodeSelector"]),
    "a node selector is added": ({}, ON_DISK, ["nodeSelector"]),
    "a host port": ({}, {"containers": [container(**PORT)]}, ["host ports"]),
    "no host port": ({"containers": [container(**PORT)]}, {}, ["host ports"]),
    "a container": ({}, {"containers": [container(), BIG]}, ["containers"]),
    "an init container": ({}, {"initContainers": [BIG]}, ["containers"]),
    "a sidecar of a webhook": ({"containers": [container(), BIG]}, {}, []),
    "a scheduler": ({}, {"schedulerName": "other"}, ["schedulerName"]),
    "the default scheduler": ({}, {"schedulerName": "default-scheduler"}, []),
    "a claim": ({"volumes": [claim("a")]}, {"volumes": [claim("b")]}, ["volumes"]),
    "the same claim": ({"volumes": [claim("a")]}, {"volumes": [claim("a")]}, []),
    "no claim": ({"volumes": [claim("a")]}, {}, ["volumes"]),
    "requests": ({}, {"containers": [container(requests={"cpu": "1"})]}, ["requests"]),
    "a request of a LimitRange": (
        {"containers": [container(requests={**CPU, "memory": "64Mi"})]}, {}, []),
    "a request more": (
        {}, {"containers": [container(requests={**CPU, "memory": "64Mi"})]}, ["requests"]),
    "a label key that the API server has merged": (
        {"topologySpreadConstraints": [
            spread(matchLabelKeys=["version"], labelSelector=selected(VERSION))]},
        {"topologySpreadConstraints": [spread(matchLabelKeys=["version"])]},
        []),
    "an expression of one's own": (
        {"topologySpreadConstraints": [spread(labelSelector=selected(VERSION))]},
        {},
        ["topologySpreadConstraints"]),
    "a label key of an affinity that the API server has merged": (
        keyed({**TERM, "labelSelector": {**TERM["labelSelector"], "matchExpressions": [VERSION]},
               "matchLabelKeys": ["version"]}),
        keyed({**TERM, "matchLabelKeys": ["version"]}),
        []),
}  # fmt: skip

EACH_A_NODE = [web(f"web-{n}", node) for n, node in enumerate(("a1", "b1", "c1"))]
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}
WAITS = "a rollout of {} replicas waits forever; maxUnavailable is 25%, of {} replicas "

ROLLOUTS = {
    # state, manifest, arguments, pods that are placed and that wait, whether the rollout waits
    "pods that keep apart": (
        EACH_A_NODE, workload("Deployment", "web", replicas=3, pod=APART), [], (3, 0), True),
    "room beside those that run": (
        EACH_A_NODE, workload("Deployment", "web", replicas=3, pod={"schedulerName": "x"}), [],
        (3, 0), False),
    "a StatefulSet takes away first": (
        [ordinal(n, node) for n, node in enumerate(("a1", "b1", "c1"))],
        workload("StatefulSet", "db", replicas=3, pod=APART), [], (3, 0), False),
    "those that wait are replaced, too": (
        [*EACH_A_NODE, web("web-3")], workload("Deployment", "web", replicas=4, constraints=[]), [],
        (4, 0), False),
    "no room at the end": (
        EACH_A_NODE, workload("Deployment", "web", replicas=4, pod=APART), [], (3, 1), True),
    "a node is drained": (
        EACH_A_NODE, workload("Deployment", "web", replicas=3, pod=APART), ["--drain", "a1"],
        (2, 1), True),
    "pods of a drained node are made once": (
        EACH_A_NODE, workload("Deployment", "web", replicas=2, pod=APART),
        ["--drain", "a1", "--reschedule"], (2, 0), True),
    "nodes that join make room": (
        EACH_A_NODE, workload("Deployment", "web", replicas=3, pod=APART),
        ["--add-nodes", "state.yaml=1"], (3, 0), False),
}  # fmt: skip


@pytest.fixture
def asked(topospread, tmp_path, monkeypatch):
    """Simulate a manifest on a state, from a file or a server."""
    monkeypatch.chdir(tmp_path)

    def ask(given, state, manifest, *arguments):
        (tmp_path / "state.yaml").write_text(documents(*NODES, *state))
        (tmp_path / "w.json").write_text(json.dumps(manifest))
        source = ["--from", "state.yaml"]
        if given == "server":
            source = []
            assert topospread("apply", "-f", "state.yaml").code == 0
        return topospread("simulate", "-f", "w.json", *source, *arguments)

    return ask


@pytest.mark.parametrize("given", ["file", "server"])
@pytest.mark.parametrize("case", CASES)
def test_a_workload_of_the_state_is_completed(asked, case, given):
    state, manifest, arguments, placed, said = CASES[case]
    answer = asked(given, state, manifest, *arguments, "-o", "json")
    found = json.loads(answer.out)
    names = [each["pod"]["name"] for each in found["placements"]]
    names += [each["name"] for group in found["pendingPods"] for each in group["pods"]]
    assert names == placed
    assert answer.code == (1 if found["pendingPodCount"] else 0)
    texts = [each["text"] for each in found["workloads"]]
    assert (said is None and not texts) or (said or "") in " ".join(texts)


@pytest.mark.parametrize("case", CHANGED)
def test_another_template_is_one_that_decides_otherwise(asked, case):
    of_pod, of_template, fields = CHANGED[case]
    state = [web("web-1", "a1", spec=of_pod)]
    manifest = workload("Deployment", "web", replicas=1, pod=of_template)
    found = json.loads(asked("file", state, manifest, "-o", "json").out)
    assert found["workloads"][0]["changedFields"] == fields


@pytest.mark.parametrize("given", ["file", "server"])
@pytest.mark.parametrize("case", ROLLOUTS)
def test_a_rollout_is_judged_at_its_end(asked, case, given):
    state, manifest, arguments, pods, waits = ROLLOUTS[case]
    answer = asked(given, state, manifest, *arguments, "-o", "json")
    found = json.loads(answer.out)
    assert (found["placedPodCount"], found["pendingPodCount"]) == pods
    assert answer.code == (1 if pods[1] or waits else 0)
    of, replicas = found["workloads"][0], manifest["spec"]["replicas"]
    assert (of["rollout"]["end"] == "Waits") == waits
    assert (WAITS.format(replicas, replicas) in of["text"]) == waits


def test_pods_of_the_state_count_for_the_bounds(asked, monkeypatch):
    waiting = [web(f"web-{number}") for number in range(4)]
    monkeypatch.setattr(checks, "MOST_JUDGED", 3)
    answer = asked("file", waiting, workload("Deployment", "web"))
    assert (answer.code, answer.out) == (2, "")
    assert "constraints of each are at most 3: ask for fewer pods" in answer.err


MORE = {
    "several templates": (
        [pod_of("Job/vc", f"vc-a-{n}", "a1", api=VOLCANO) for n in range(3)],
        tasks("vc", 1, 2),
        "Job shop/vc has 3 pods in the state: what is placed of it is more",
    ),
    "one of several templates, and one pod": (
        [pod_of("Job/vc", "vc-a", "a1", api=VOLCANO), pod_of("Job/vb", "vb-a", "a1", api=VOLCANO)],
        tasks("vc", 1, 2),
        "Job shop/vc has 1 pod in the state: what is placed of it is more",
    ),
    "pods of what it controls": (
        [controlled("StatefulSet", "apps/v1", "db", "Elastic/es"), ordinal(0, "a1"), ordinal(1)],
        workload("Elastic", "es", replicas=2),
        "Elastic shop/es has 2 pods in the state, by StatefulSet/db: what is placed of it is more",
    ),
    "pods that go": (
        [pod_of("Job/vc", "vc-a", "a1", api=VOLCANO, phase="Failed")],
        tasks("vc", 1, 2),
        None,
    ),
    "no pods": ([], tasks("vc", 1, 2), None),
}


@pytest.mark.parametrize("given", ["file", "server"])
@pytest.mark.parametrize("case", MORE)
def test_pods_that_are_there_and_are_not_taken_for_replicas_are_named(asked, case, given):
    state, manifest, said = MORE[case]
    answer = asked(given, state, manifest, "-o", "json")
    found = [each for each in json.loads(answer.out)["warnings"] if "in the state" in each]
    assert found == ([said] if said else [])
    added = asked("file", state, manifest, "--in-addition", "-o", "json")
    assert not [each for each in json.loads(added.out)["warnings"] if "in the state" in each]


def test_the_text_has_it_too(asked):
    state, manifest, _, _, said = CASES["one waits"]
    assert f"Deployment shop/web {said}" in asked("file", state, manifest).lines


ANOTHER = "Deployment shop/web is in the state, and none of default: name the namespace (-n"
IN_DEFAULT = web("web-9", "c1", namespace="default")

NAMESPACES = {
    # state, arguments, what is refused
    "of another namespace": (ONE_WAITS, [], ANOTHER),
    "of another namespace that is named": (ONE_WAITS, ["-n", "shop"], None),
    "of the default that is named": (ONE_WAITS, ["-n", "default"], None),
    "of the default, too": ([*ONE_WAITS, IN_DEFAULT], [], None),
    "of the default, on a node that is drained": (
        [*ONE_WAITS, IN_DEFAULT],
        ["--drain", "c1"],
        None,
    ),
    "of none": ([], [], None),
    "in addition": (ONE_WAITS, ["--in-addition"], None),
}


@pytest.mark.parametrize("given", ["file", "server"])
@pytest.mark.parametrize("case", NAMESPACES)
def test_a_workload_without_a_namespace_is_not_looked_for_in_vain(asked, case, given):
    state, arguments, refused = NAMESPACES[case]
    manifest = workload("Deployment", "web", namespace="", replicas=1)
    answer = asked(given, state, manifest, *arguments)
    assert answer.code == (2 if refused else 0)
    assert (refused or "") in answer.err
    assert not (refused and answer.out)


def test_new_pods_of_the_revision_count_with_the_others(asked):
    state, manifest, *_ = CASES["the same template, counted by its hash"]
    answer = json.loads(asked("file", state, manifest, "-o", "json").out)
    assert sorted(each["node"] for each in answer["placements"]) == ["b1", "c1"]


def test_a_pod_is_placed_once_though_two_of_a_file_mean_it(asked):
    both = {"apiVersion": "v1", "kind": "List", "items": [
        workload("Deployment", "web", replicas=2), web("web-2"), web("web-1"),
    ]}  # fmt: skip
    answer = json.loads(asked("file", ONE_WAITS, both, "-o", "json").out)
    assert [each["pod"]["name"] for each in answer["placements"]] == ["web-2"]


def test_pods_that_wait_are_grouped_by_what_is_asked_for(asked):
    node = {"nodeSelector": {"disk": "none"}}
    state = [
        web("web-1", spec=node),
        pod_of("ReplicaSet/api-5d8f", "api-1", labels=REVISION, spec=node),
    ]
    both = [workload("Deployment", name, replicas=3, pod=node) for name in ("web", "api")]
    answer = asked("file", state, {"apiVersion": "v1", "kind": "List", "items": both})
    found = [line for line in answer.lines if line.startswith("pending:")]
    assert found == ["pending: 3 (web-1 … web-1)", "pending: 3 (api-1 … api-1)", "pending:  6"]


CLAIMED = web("web-1", "a1", spec={"volumes": [claim("data")]})
PLACED = {
    # a pod of a drained node, the line of what is placed
    "a claim that is not known": (CLAIMED, "placed:        at most 1 of 1"),
    "no claim": (web("web-1", "a1"), "placed:   1 of 1"),
}


@pytest.mark.parametrize("case", PLACED)
def test_gaps_that_could_refuse_pods_make_it_at_most(asked, case):
    pod, line = PLACED[case]
    runs = web("other", "b1")
    answer = asked("file", [pod, runs], runs, "--drain", "a1", "--reschedule")
    assert line in answer.lines
