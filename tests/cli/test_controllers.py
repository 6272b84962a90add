"""Names of workloads of any kind, in each verb that takes one, on every way in."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from topospread.cli.render.constraints import counted_text
from topospread_proto.v1 import common_pb2

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a1, labels: {kubernetes.io/hostname: a1, topology.kubernetes.io/zone: a}}
status: {allocatable: {cpu: "8", pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: b1, labels: {kubernetes.io/hostname: b1, topology.kubernetes.io/zone: b}}
status: {allocatable: {cpu: "8", pods: "110"}}
"""

DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: quiet, namespace: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: quiet}}
  template:
    metadata: {labels: {app: quiet}}
    spec: {containers: [{name: c, image: x}]}
"""


def pod(name, namespace, owner, *, app, hashed="", node="a1", gated=False, config=""):
    """A pod of a controller, spread by zone, as YAML; JSON is some."""
    kind, api_version, called = owner
    reference = {"apiVersion": api_version, "kind": kind, "name": called, "uid": "u"}
    labels = {"app": app} | ({"rollouts-pod-template-hash": hashed} if hashed else {})
    labels |= {"deploymentconfig": config} if config else {}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    spec = {"containers": [{"name": "c"}], "topologySpreadConstraints": [constraint]}
    spec |= {"schedulingGates": [{"name": "queue"}]} if gated else {"nodeName": node}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    metadata["ownerReferences"] = [reference | {"controller": True}]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return f"---\n{json.dumps(made)}\n"


UNSPREAD = """\
---
apiVersion: v1
kind: Pod
metadata:
  name: log-x
  namespace: db
  labels: {app: log}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: log, uid: u, controller: true}]
spec: {nodeName: a1, containers: [{name: c}]}
"""

STATE = "".join(
    [
        NODES,
        UNSPREAD,
        pod("b-5d-x", "web", ("ReplicaSet", "apps/v1", "birdsite-5d"), app="b", hashed="5d"),
        pod("b-77-x", "web", ("ReplicaSet", "apps/v1", "birdsite-77"), app="b", hashed="77"),
        pod("pg-1", "db", ("Cluster", "postgresql.cnpg.io/v1", "pg"), app="db"),
        pod("k-0", "db", ("StrimziPodSet", "core.strimzi.io/v1beta2", "k"), app="db", node="b1"),
        pod("dc-3-x", "old", ("ReplicationController", "v1", "dc-3"), app="dc", config="dc"),
        pod("rc-3-x", "old", ("ReplicationController", "v1", "rc-3"), app="rc"),
        pod("i-x", "jobs", ("Job", "batch/v1", "import-2"), app="i", gated=True),
    ]
)

OWNERS = {
    "rollout/web/birdsite": "Rollout web/birdsite",
    "rollout/birdsite -n web": "Rollout web/birdsite",
    "ro/birdsite -n web": "Rollout web/birdsite",
    "Rollout/birdsite -n web": "Rollout web/birdsite",
    "rollouts.argoproj.io/birdsite -n web": "Rollout web/birdsite",
    "rollouts birdsite -n web": "Rollout web/birdsite",
    "rollout.v1alpha1.argoproj.io/web/birdsite": "Rollout web/birdsite",
    "cluster/db/pg": "Cluster db/pg",
    "clusters/pg -n db": "Cluster db/pg",
    "cluster pg -n db": "Cluster db/pg",
    "clusters.postgresql.cnpg.io pg -n db": "Cluster db/pg",
    "db/pg": "Cluster db/pg",
    "strimzipodset/db/k": "StrimziPodSet db/k",
    "sps k -n db": "StrimziPodSet db/k",
    "dc/old/dc": "DeploymentConfig old/dc",
    "rc/old/rc-3": "ReplicationController old/rc-3",
    "job/jobs/import-2": "Job jobs/import-2",
}
"""Names of workloads as they are typed, and the workload that is meant."""

EXPLAINED = OWNERS | {
    "pod b-77-x -n web": "Pod web/b-77-x",
    "po b-77-x -n web": "Pod web/b-77-x",
    "rs/birdsite-77 -n web": "ReplicaSet web/birdsite-77",
    "web/birdsite": "Rollout web/birdsite",
    "birdsite -n web": "Rollout web/birdsite",
}

MISSING = {
    "rollout/birdsite": "there is rollout/web/birdsite",
    "b-77-x": "there is pod/web/b-77-x",
    "birdsite": "there is rollout/web/birdsite",
    "deploy/birdsite -n web": "there is rollout/web/birdsite",
    "cronjob/import -n jobs": "no pod of cronjob/jobs/import is in the state: there is job/jobs/",
    "foo/nothing -n web": "no pod of foo/web/nothing is in the state",
    "db/b-77-x -n web": "'db/b-77-x' is not in --namespace web",
    "rollout//birdsite": "is no name of a pod or workload",
    "fleet/import -n jobs": "no pod of fleet/jobs/import is in the state: there is job/jobs/import",
}

COUNTED_BY_MANIFESTS = [
    (
        "Deployment",
        "new",
        "none of the 2 pods that it counts is its own; others: Cluster/pg (1), StrimziPodSet/k (1)",
    ),
    (
        "StrimziPodSet",
        "k",
        "1 of the 2 pods that it counts is its own, in b; others: Cluster/pg (1)",
    ),
]


@pytest.fixture(params=["server", "file"])
def asking(request, bare, tmp_path):
    """Runs a verb on the state: in a server, or in a file."""
    if request.param == "file":
        path = tmp_path / "state.yaml"
        path.write_text(STATE)
        return lambda *args: bare(*args, "--from", str(path))
    topospread = request.getfixturevalue("topospread")
    assert topospread("apply", "-f", "-", stdin=STATE).code == 0
    return topospread


@pytest.mark.parametrize("verb", ["explain", "evaluate", "simulate"])
def test_workloads_of_any_kind_are_judged_by_name(asking, verb):
    for typed, meant in EXPLAINED.items():
        if verb != "simulate" or not meant.startswith("Pod "):  # those run
            said = asking(verb, *typed.split())
            assert (typed, said.lines[0]) == (typed, meant)


@pytest.mark.parametrize("verb", ["explain", "evaluate", "simulate"])
def test_a_missing_name_is_answered_with_where_it_is(asking, verb):
    for typed, text in MISSING.items():
        said = asking(verb, *typed.split())
        assert (typed, said.code, text in said.err) == (typed, 2, True), said.err


def test_workloads_of_any_kind_are_reported_by_name(asking):
    for typed, meant in OWNERS.items():
        said = asking("report", *typed.split(), "-o", "json")
        kind, _, place = meant.partition(" ")
        rows = json.loads(said.out)["items"]
        found = {
            (row["owner"]["kind"], f"{row['namespace']}/{row['owner']['name']}") for row in rows
        }
        assert (typed, found) == (typed, {(kind, place)})


UNREPORTED = {
    "rs/birdsite-77": "of ReplicaSet/birdsite-77: did you mean Rollout/birdsite?",
    "replicasets/web/birdsite-77": (
        "of ReplicaSet/birdsite-77 in namespace web: did you mean Rollout/birdsite?"
    ),
    "birdsite-77 -n web": "of birdsite-77 in namespace web: did you mean Rollout/birdsite?",
    "deploy/birdsite": "of Deployment/birdsite: did you mean Rollout/birdsite?",
    "rs/web/other": "of ReplicaSet/other in namespace web",
    "rs/other -n web": "of ReplicaSet/other in namespace web: -A looks in all namespaces",
    "ds/db/log": "of DaemonSet/log in namespace db",
    "dc/old/rc": (
        "of DeploymentConfig/rc in namespace old: did you mean ReplicationController/rc-3?"
    ),
}
"""Names that have no rows, and what is said of them."""


def test_a_name_without_rows_is_answered_with_that_of_its_rows(asking):
    for typed, text in UNREPORTED.items():
        said = asking("report", *typed.split())
        assert (typed, said.code, said.err.splitlines()[-1]) == (
            typed,
            2,
            f"topospread: no constraints {text}",
        )


def test_a_report_says_whose_pods_are_counted_and_why_pods_wait(asking):
    said = asking("report")
    assert (
        "db Cluster/pg, topology.kubernetes.io/zone: 1 of the 2 pods that it counts is its own, "
        "in a; others: StrimziPodSet/k (1)"
    ) in said.lines
    assert "jobs Job/import-2: 1 pod held back by scheduling gates" in said.lines
    rows = json.loads(asking("report", "job/import-2", "-o", "json").out)["items"]
    assert [(row["pendingPodCount"], row["gatedPodCount"]) for row in rows] == [(1, 1)]


def test_an_explanation_says_whose_pods_are_counted(asking):
    said = asking("explain", "cluster/db/pg")
    text = "1 of the 2 pods that it counts is its own, in a; others: StrimziPodSet/k (1)"
    assert f"whose:   {text}" in said.lines


def test_a_manifest_is_answered_with_whose_pods_it_would_count(bare, tmp_path):
    state, file = tmp_path / "state.yaml", tmp_path / "cluster.yaml"
    state.write_text(STATE)
    pods = [each for each in yaml.safe_load_all(STATE) if each["kind"] == "Pod"]
    own = next(each for each in pods if each["metadata"]["name"] == "pg-1")
    for kind, name, text in COUNTED_BY_MANIFESTS:
        template = {"metadata": {"labels": own["metadata"]["labels"]}, "spec": own["spec"]}
        template["spec"].pop("nodeName", None)
        content = {"template": template, "selector": {}}
        metadata = {"name": name, "namespace": "db"}
        manifest = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": content}
        file.write_text(json.dumps(manifest))
        said = bare("explain", "-f", str(file), "--from", str(state))
        assert f"whose:   {text}" in said.lines, (kind, name, said.out, said.err)


COUNTED_TEXTS: dict[str, dict[str, Any]] = {
    "the only pod that it counts is not its own; others: Job/a (1)": {
        "others": [{"workload": {"kind": "Job", "name": "a"}, "pod_count": 1}]
    },
    "none of the 2 pods that it counts is its own; others: without a controller (2)": {
        "others": [{"pod_count": 2}]
    },
    "1 of the 30 pods that it counts is its own, in a; others: Job/a (10), 19 more workloads": {
        "own_pod_count": 1,
        "own_domains": [{"value": "a", "pod_count": 1}],
        "others": [{"workload": {"kind": "Job", "name": "a"}, "pod_count": 10}],
        "unlisted_other_count": 19,
        "unlisted_pod_count": 19,
    },
    "3 of the 4 pods that it counts are its own (a 2, b 1); others: Job/a (1)": {
        "own_pod_count": 3,
        "own_domains": [{"value": "a", "pod_count": 2}, {"value": "b", "pod_count": 1}],
        "others": [{"workload": {"kind": "Job", "name": "a"}, "pod_count": 1}],
    },
    "9 of the 10 pods that it counts are its own; others: Job/a (1)": {
        "own_pod_count": 9,
        "own_domains": [{"value": "a", "pod_count": 2}, {"value": "b", "pod_count": 1}],
        "others": [{"workload": {"kind": "Job", "name": "a"}, "pod_count": 1}],
    },
    "": {"own_pod_count": 3},
}


@pytest.mark.parametrize("text", COUNTED_TEXTS)
def test_whose_pods_are_counted_in_words(text):
    assert counted_text(common_pb2.CountedPods(**COUNTED_TEXTS[text])) == text


def test_a_workload_without_pods_is_explained_by_its_manifest_in_the_file(bare, tmp_path):
    path = tmp_path / "state.yaml"
    path.write_text(STATE + DEPLOYMENT)
    said = bare("explain", "deploy/quiet", "-n", "web", "--from", str(path))
    assert (said.code, said.lines[0].split("  ")[0]) == (0, "Deployment web/quiet")


def test_a_manifest_is_found_in_a_folder_with_what_is_left_out(bare, tmp_path):
    (tmp_path / "state.yaml").write_text(STATE + DEPLOYMENT)
    (tmp_path / "log.json").write_text("no JSON {")
    said = bare("explain", "deploy/web/quiet", "--from", str(tmp_path))
    assert (said.code, said.lines[0].split("  ")[0]) == (0, "Deployment web/quiet")
    assert said.err.count("left out: 1 file") == 1
    assert (
        "no pod of deployment/web/queit"
        in bare("explain", "deploy/web/queit", "--from", str(tmp_path)).err
    )


def test_the_owner_of_stateful_sets_is_reported_by_these(bare, tmp_path):
    sets = [("main", "p-0"), ("main", "p-1"), ("other", "q-0")]
    pods = [pod(f"{name}-0", "mon", ("StatefulSet", "apps/v1", name), app="p") for _, name in sets]
    objects = [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": name,
                "namespace": "mon",
                "ownerReferences": [
                    {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus"}
                    | {"name": by, "uid": "u", "controller": True}
                ],
            },
            "spec": {},
        }
        for by, name in sets
    ]
    path = tmp_path / "state.yaml"
    path.write_text("".join([NODES, *pods, *(f"---\n{json.dumps(each)}\n" for each in objects)]))
    for typed in ("prometheus/main", "prom/mon/main", "prometheuses main -n mon", "prom main"):
        said = bare("report", *typed.split(), "--from", str(path), "-o", "json")
        rows = json.loads(said.out)["items"]
        assert {row["owner"]["name"] for row in rows} == {"p-0", "p-1"}, typed


WRITTEN = ("deploy/quiet", "quiet", "web/quiet", "sts/quiet -n web", "deployments.apps quiet -n x")


def test_a_manifest_of_the_name_is_where_a_missing_workload_is(bare, tmp_path):
    path = tmp_path / "state.yaml"
    path.write_text(STATE + DEPLOYMENT)
    for typed in WRITTEN:
        said = bare("explain", *typed.split(), "--from", str(path))
        is_elsewhere = typed.endswith("-n x")
        assert (typed, said.code) == (typed, 2)
        assert ("there is deployment/web/quiet" in said.err) is not is_elsewhere, said.err


def test_rows_of_two_revisions_can_be_distinguished(bare, tmp_path):
    keys = '"matchLabelKeys": ["rollouts-pod-template-hash"]'
    path = tmp_path / "state.yaml"
    path.write_text(STATE.replace('"maxSkew": 1,', f'"maxSkew": 1, {keys},'))
    said = bare("report", "rollout/birdsite", "--from", str(path))
    assert "SELECTOR" in said.lines[0]
    assert {line.split()[4] for line in said.lines[1:3]} == {
        f"app=b,rollouts-pod-template-hash={each}" for each in ("5d", "77")
    }
