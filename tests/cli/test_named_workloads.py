"""`simulate NAME` and `rank-deletions NAME`: a workload of the state by its name."""

from __future__ import annotations

import json

import pytest

from tests.cli.owned import HASH, nodes, pod_of, spread

SOFT = [spread(whenUnsatisfiable="ScheduleAnyway")]
INDEX = "apps.kubernetes.io/pod-index"


def hashed(name: str, node: str = ""):
    return pod_of("ReplicaSet/web-5d", name, node, labels={HASH: "5d"}, constraints=SOFT, created=3)


def numbered(number: int, node: str):
    owner, name = "StatefulSet/db", f"db-{number}"
    return pod_of(owner, name, node, labels={INDEX: str(number)}, constraints=SOFT)


def controlled(kind: str, name: str, by: str, api: str):
    reference = {"apiVersion": api, "kind": by, "name": "k", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "shop", "ownerReferences": [reference]}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {}}


STATE = [
    *nodes("a1", "b1"),
    hashed("web-5d-1", "a1"),
    hashed("web-5d-2"),
    numbered(1, "a1"),
    numbered(2, "b1"),
    pod_of("StatefulSet/p-0", "p-0-0", "a1", constraints=SOFT),
    pod_of("StatefulSet/p-1", "p-1-0", constraints=SOFT),
    controlled("StatefulSet", "p-0", "Prometheus", "monitoring.coreos.com/v1"),
    controlled("StatefulSet", "p-1", "Prometheus", "monitoring.coreos.com/v1"),
    pod_of("Job/n-29919000", "n-1", "a1", constraints=SOFT),
    pod_of("Cluster/k", "k-1", "a1", api="example.com/v1", constraints=SOFT),
    pod_of("Cluster/k", "k-2", api="example.com/v1", constraints=SOFT, created=1),
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "quiet", "namespace": "shop"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "quiet"}},
            "template": {
                "metadata": {"labels": {"app": "quiet"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
    },
]

PLACED = {
    "deploy/web": ["web-5d-2"],
    "deploy/web --replicas 3": ["web-5d-2", "web-0"],
    "deploy/web --replicas 1": [],
    "deploy/web --in-addition": ["web-0"],
    "web deploy/web --replicas 3": ["web-5d-2", "web-0"],
    "deploy/web rs/web-5d --replicas 3": ["web-5d-2", "web-0"],
    "rs/web-5d --replicas 3": ["web-5d-2", "web-5d-0"],
    "sts/db": [],
    "sts/db --replicas 4": ["db-3", "db-4"],
    "sts/db --drain a1": ["db-1"],
    "prometheus/k": ["p-1-0"],
    "prometheus/k sts/p-1": ["p-1-0"],
    "cronjob/n": ["n-0"],
    "cj n --replicas 2": ["n-0", "n-1"],
    "cluster/k": ["k-2"],
    "deploy/quiet": ["quiet-0", "quiet-1"],
    "pod/web-5d-2": ["web-5d-2"],
}
"""Names as they are typed, and the pods that are placed."""


@pytest.mark.parametrize("typed", PLACED)
def test_a_named_workload_is_placed_in_what_it_lacks(bare, tmp_path, typed):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": STATE}))
    said = bare("simulate", "--from", str(path), "-n", "shop", *typed.split(), "-o", "json")
    found = json.loads(said.out)
    assert said.code == 0, said.err
    assert [each["pod"]["name"] for each in found["placements"]] == PLACED[typed]
    assert "images" not in said.out  # it is of the state, and no manifest


RANKED = {
    "deploy/web": ["web-5d-2", "web-5d-1"],
    "web": ["web-5d-2", "web-5d-1"],
    "rs web-5d": ["web-5d-2", "web-5d-1"],
    "statefulsets.apps/db": ["db-2", "db-1"],
    "clusters.example.com k": ["k-2", "k-1"],
    "prometheus/k": "each workload is scaled in by itself: name one of StatefulSet shop/p-0, ",
    "cronjob/n": "CronJob shop/n has its pods by job/shop/n-29919000: name one, or say which",
    "deploy/quiet": "no pod of deployment/shop/quiet is in the state",
    "pod/db-1": "Pod shop/db-1 is no workload that has pods",
    "deploy/none": "no pod of deployment/shop/none is in the state",
    "deploy/web -l app=web": "a workload's name goes without -l and -f",
}
"""Names as they are typed, and the pods in order, or what is said of it."""


@pytest.mark.parametrize("typed", RANKED)
def test_the_pods_of_a_named_workload_are_ranked(bare, tmp_path, typed):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": STATE}))
    said = bare("rank-deletions", "--from", str(path), "-n", "shop", *typed.split(), "-o", "json")
    expected = RANKED[typed]
    if isinstance(expected, str):
        assert (said.code, expected in said.err) == (2, True), said.err
    else:
        assert [each["pod"]["name"] for each in json.loads(said.out)["pods"]] == expected


def test_pods_that_an_object_holds_are_those_of_their_names(bare, tmp_path):
    held = [numbered(number, "") for number in (1, 2, 3)]
    for each in held:
        del each["metadata"]["uid"]
    kind = {"apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet"}
    metadata = {"name": "db", "namespace": "shop"}
    (tmp_path / "held.json").write_text(
        json.dumps({**kind, "metadata": metadata, "spec": {"pods": held}})
    )
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": STATE}))
    said = bare("simulate", "--from", str(path), "-f", str(tmp_path / "held.json"), "-o", "json")
    found = json.loads(said.out)
    assert [each["pod"]["name"] for each in found["placements"]] == ["db-3"]
    assert [each["kind"] for each in found["pods"]] == ["Pod"] * 3
    assert found.get("warnings", []) == []
