"""`rank-deletions` shows the order that a workload's controller has."""

from __future__ import annotations

import json

import pytest

from tests.cli.owned import HASH, INDEX, ZONE, documents, nodes, pod_of, spread, tasks, workload

OVER_ZONES = [spread(topologyKey=ZONE)]
NODES = nodes("a1", "b1", "c1")


def member(owner, name, node, **more):
    return pod_of(owner, name, node, constraints=OVER_ZONES, **more)


def ready(minute):
    at = f"2026-01-01T01:{minute:02}:00Z"
    return {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]}


BY_ZONE = [member("StatefulSet/db", f"db-{n}", f"{'abc'[n // 3]}1") for n in range(9)]
KRUISE = [
    member("StatefulSet/db", f"db-{n}", "a1", api="apps.kruise.io/v1beta1") for n in (2, 10, 9)
]
ACTIVE = [
    member("Job/job", "job-old", "a1", **ready(1)),
    member("Job/job", "job-new", "b1", **ready(9)),
    member("Job/job", "job-starts", "c1"),
    member("Job/job", "job-waits", ""),
]
INDEXED = [
    member("Job/job", f"job-{index}-{n}", "a1", labels={INDEX: str(index)}, **ready(n))
    for n, index in enumerate((0, 1, 1, 2, 7))
]
VOLCANO = [
    member("Job/vc", f"vc-t-{n}", node, api="batch.volcano.sh/v1alpha1")
    for n, node in enumerate(("a1", "a1", "b1"))
]
ELASTIC = [
    member("", "bare-1", "a1"),
    member("Elastic/es", "es-0", "a1", api="example.com/v1"),
    member("Elastic/es", "es-1", "b1", api="example.com/v1"),
]
UNSELECTING = {"template": workload("Elastic", "es")["spec"]["template"]}
WEB = [member("ReplicaSet/web-5d8f", f"web-{n}", "a1", labels={HASH: "5d8f"}) for n in "12"]
NEW_WEB = [member("ReplicaSet/web-77aa", "web-3", "a1", labels={HASH: "77aa"})]
DAEMON = [member("DaemonSet/agent", f"agent-{n}", "a1") for n in "12"]
BARE = [member("", f"bare-{n}", "a1") for n in "12"]
SELECTED = ["-l", "app=web", "-n", "shop"]

ORDERS = {
    # pods, arguments, manifest, order, what is said
    "highest ordinals": (BY_ZONE, [*SELECTED, "--delete-count", "3"], None,
        ["db-8", "db-7", "db-6"], "StatefulSet shop/db: it takes the highest ordinals first"),
    "whatever strategy is asked for": (BY_ZONE, [*SELECTED, "--strategy", "proportional",
        "--delete-count", "1"], None, ["db-8"], "annotations"),
    "of a manifest": (BY_ZONE, ["--delete-count", "2"], workload("StatefulSet", "db", replicas=9),
        ["db-8", "db-7"], "StatefulSet shop/db"),
    "ordinals from a later start": (BY_ZONE, ["--delete-count", "1"],
        workload("StatefulSet", "db", ordinals={"start": 3}), ["db-8"], "StatefulSet shop/db"),
    "ordinals are numbers": (KRUISE, SELECTED, None, ["db-10", "db-9", "db-2"], "reserveOrdinals"),
    "a Job's": (ACTIVE, SELECTED, None, ["job-waits", "job-starts", "job-new", "job-old"],
        "Job shop/job: when its parallelism is lowered"),
    "a Job's, by its manifest, which has no selector": (ACTIVE, [], workload("Job", "job"),
        ["job-waits", "job-starts", "job-new", "job-old"], "Job shop/job"),
    "not a Job's of another API group": (VOLCANO, ["--delete-count", "1"], tasks("vc", 3),
        ["vc-t-0"], "in which order it takes pods is not known"),
    "of several templates": (VOLCANO, ["--delete-count", "1"], tasks("vc", 1, 2),
        ["vc-t-0"], "Job shop/vc"),
    "without a selector, by who controls them": (ELASTIC, ["--delete-count", "1"],
        {**workload("Elastic", "es"), "spec": UNSELECTING}, ["es-0"], "Elastic shop/es"),
    "an indexed Job's": (INDEXED, SELECTED, None,
        ["job-1-2", "job-7-4", "job-2-3", "job-1-1", "job-0-0"], "completions"),
    "indexes beyond the completions": (INDEXED, [],
        workload("Job", "job", completions=3, parallelism=3, completionMode="Indexed"),
        ["job-7-4", "job-1-2", "job-2-3", "job-1-1", "job-0-0"], "Job shop/job"),
    "a Deployment follows costs": (WEB, SELECTED, None, ["web-1", "web-2"],
        "Deployment shop/web: it takes pods in this order if their"),
    "of one that is named among others": ([*BY_ZONE, *WEB], ["--delete-count", "1"],
        workload("StatefulSet", "db"), ["db-8"], "StatefulSet shop/db"),
    "nobody decides": (BARE, SELECTED, None, ["bare-1", "bare-2"], "no controller"),
    "bare pods beside others are left out": ([*WEB, *BARE], SELECTED, None, ["web-1", "web-2"],
        "Deployment shop/web"),
}  # fmt: skip

REFUSED = {
    "several workloads": ([*WEB, *BY_ZONE], SELECTED, None,
        "selects pods of several workloads, Deployment shop/web (2 pods), StatefulSet shop/db (9"),
    "a workload whose pods others make": (BY_ZONE, [], {**workload("Elastic", "es"),
        "spec": UNSELECTING}, "are not known as its own: say which with --selector"),
    "pods that have ended": ([member("Job/job", "job-1", "a1", phase="Failed")], [],
        workload("Job", "job"), "no pod of Job shop/job is there (ended or being deleted: 1)"),
    "what makes no pods": (BY_ZONE, [], {"apiVersion": "v1", "kind": "PodTemplate",
        "metadata": {"name": "t"}, **UNSELECTING}, "it selects no pods"),
    "a DaemonSet": (DAEMON, SELECTED, None, "DaemonSet shop/agent, which has a pod on each"),
    "a DaemonSet's manifest": (DAEMON, [], workload("DaemonSet", "agent"), "is not scaled in"),
}  # fmt: skip


@pytest.fixture
def asked(topospread, tmp_path, monkeypatch):
    """Rank pods of a state, from a file or a server."""
    monkeypatch.chdir(tmp_path)

    def ask(given, pods, arguments, manifest):
        (tmp_path / "state.yaml").write_text(documents(*NODES, *pods))
        source = ["--from", "state.yaml"]
        if given == "server":
            source = []
            assert topospread("apply", "-f", "state.yaml").code == 0
        if manifest is not None:
            (tmp_path / "w.json").write_text(json.dumps(manifest))
            source += ["-f", "w.json"]
        return topospread("rank-deletions", *source, *arguments)

    return ask


@pytest.mark.parametrize("given", ["file", "server"])
@pytest.mark.parametrize("case", ORDERS)
def test_the_order_is_that_of_the_controller(asked, case, given):
    pods, arguments, manifest, order, said = ORDERS[case]
    answer = asked(given, pods, [*arguments, "-o", "json"], manifest)
    found = json.loads(answer.out)
    assert answer.code == 0
    assert [each["pod"]["name"] for each in found["pods"]] == order
    assert said in found["decider"]["text"]


@pytest.mark.parametrize("case", REFUSED)
def test_pods_without_an_order_are_refused(asked, case):
    pods, arguments, manifest, said = REFUSED[case]
    answer = asked("file", pods, arguments, manifest)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_people_see_ordinals_who_decides_and_what_is_left(asked):
    pods, arguments, manifest, *_ = ORDERS["highest ordinals"]
    answer = asked("file", pods, arguments, manifest)
    assert "ORDINAL" in answer.out
    assert "who decides: StatefulSet shop/db" in answer.out
    assert "3 deletions in this order leave a skew of 3 over" in answer.err
    assert "keeps maxSkew longest" not in answer.out


@pytest.mark.parametrize(
    ("arguments", "noted"),
    [
        ([*SELECTED], True),
        (["-l", f"{HASH}=5d8f", "-n", "shop"], False),
        (["-f", "-"], True),
    ],
    ids=["of both", "of one", "of a manifest"],
)
def test_revisions_that_are_scaled_in_apart_are_named(asked, arguments, noted):
    manifest = None
    if "-f" in arguments:
        arguments, manifest = [], workload("Deployment", "web")
    answer = asked("file", [*WEB, *NEW_WEB], arguments, manifest)
    assert noted == (
        "2 revisions, ReplicaSet shop/web-5d8f (2 pods), ReplicaSet shop/web-77aa (1 pod): each"
        " takes its own in this order, and how many go of each is for Deployment shop/web to say"
        in answer.err
    )


TOGETHER = [
    member("ReplicaSet/web-5d8f", f"web-{n}", f"{zone}1", labels={HASH: "5d8f"})
    for n, zone in enumerate("aabc", start=4)
]
"""Made and ready in one second."""


def test_people_see_where_chance_decides(asked):
    """Those that share a node go first, then one of the others."""
    three = [*SELECTED, "--delete-count", "3", "--strategy", "replica-set"]
    answer = asked("file", TOGETHER, three, None)
    assert "2 pods in any case, and 1 of these 2;" in answer.out
    assert "replica set   chance  chance " in answer.out
    assert "keeps maxSkew longest: even" in answer.out


def test_strategies_of_several_revisions_are_not_compared(asked):
    answer = asked("file", [*TOGETHER, *NEW_WEB], [*SELECTED, "--delete-count", "2"], None)
    assert "0 pods in any case, and 2 of these 5" in answer.out
    assert answer.out.count(" chance  chance ") == 3
    assert "keeps maxSkew longest" not in answer.out


@pytest.mark.parametrize(
    ("others", "noted"),
    [
        ([*NEW_WEB], "counts 1 pod of others, too"),
        ([*BY_ZONE], "counts 9 pods of others"),
        ([], ""),
    ],
    ids=["another revision", "another workload", "none"],
)
def test_pods_of_others_that_its_constraint_counts_are_noted(asked, others, noted):
    answer = asked("file", [*WEB, *others], ["-l", f"{HASH}=5d8f", "-n", "shop"], None)
    assert ("of others" in answer.err) == bool(noted)
    assert noted in answer.err


def test_a_namespace_that_is_missing_is_named(asked):
    answer = asked("file", BY_ZONE, [], workload("StatefulSet", "db", namespace=""))
    assert "StatefulSet shop/db is in the state: name the namespace (-n)" in answer.err


CONSTRAINED = "no constraints: pods that stack on a node go first"
PLAIN = [pod_of("StatefulSet/db", f"db-{n}", "a1", constraints=[]) for n in range(3)]
PLAIN_WEB = [
    pod_of("ReplicaSet/web-5d8f", f"web-{n}", "a1", labels={HASH: "5d8f"}, constraints=[])
    for n in "12"
]
PLAIN_JOB = [pod_of("Job/job", f"job-{n}", "a1", constraints=[]) for n in "12"]

NOTES = {
    # pods, what decides, whether ranks do
    "a StatefulSet": (PLAIN, "StatefulSet shop/db: it takes the highest ordinals first", False),
    "a Job": (PLAIN_JOB, "Job shop/job: when its parallelism is lowered", False),
    "a Deployment": (PLAIN_WEB, "Deployment shop/web: it takes pods in this order if", True),
}


@pytest.mark.parametrize("case", NOTES)
def test_names_alone_come_with_a_note_on_who_decides(asked, case):
    pods, decides, ranked = NOTES[case]
    answer = asked("file", pods, [*SELECTED, "-o", "name"], None)
    assert f"note: {decides}" in answer.err
    assert (CONSTRAINED in answer.err) == ranked
    assert len(answer.lines) == len(pods)
