"""`topospread explain` of workloads, by the pods that the state has of them."""

from __future__ import annotations

import json

import pytest

from tests.cli.manifests import CLUSTER
from topospread.cli.errors import BAD_INPUT, DONE, NO_NODE_FITS
from topospread_client import Client

NODES = CLUSTER.partition("---")[0]
ZONE = "topology.kubernetes.io/zone"


def pod(name, owner, *, hash_label=None, node=None, created=1, key=ZONE, extra=""):
    kind, _, called = owner.partition("/")
    labels = "app: web" + (f", pod-template-hash: {hash_label}" if hash_label else "")
    reference = f"{{apiVersion: apps/v1, kind: {kind}, name: {called}, controller: true}}"
    bound = f"  nodeName: {node}\n" if node else ""
    return (
        f"---\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  labels: {{{labels}}}\n"
        f"  creationTimestamp: '2026-01-01T00:00:0{created}Z'\n  ownerReferences: [{reference}]\n"
        f"{extra}spec:\n{bound}  topologySpreadConstraints:\n"
        f"  - {{maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: DoNotSchedule, "
        "labelSelector: {matchLabels: {app: web}}}\n"
    )


PODS = (
    pod("web-7f9c-aaaaa", "ReplicaSet/web-7f9c", hash_label="7f9c", node="a1")
    + pod("web-7f9c-bbbbb", "ReplicaSet/web-7f9c", hash_label="7f9c", node="b1")
    + pod("web-8d21-ccccc", "ReplicaSet/web-8d21", hash_label="8d21", created=2, key="rack")
    + pod("db-0", "StatefulSet/db", node="a2")
    + pod("agent-x1", "DaemonSet/agent", node="a2")
    + pod("report-28734560-zz", "Job/report-28734560", node="a2")
    + pod("plain-2-yy", "ReplicaSet/plain-2", node="a2")
)


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=NODES + PODS).code == DONE
    return topospread


FOUND = {
    ("deploy/shop/web",): ("Deployment", "web", "web-8d21-ccccc", 1, 2),
    ("deployments/web", "-n", "shop"): ("Deployment", "web", "web-8d21-ccccc", 1, 2),
    ("shop/web",): ("Deployment", "web", "web-8d21-ccccc", 1, 2),
    ("rs/shop/web-7f9c",): ("ReplicaSet", "web-7f9c", "web-7f9c-bbbbb", 0, 2),
    ("sts/shop/db",): ("StatefulSet", "db", "db-0", 0, 1),
    ("ds/shop/agent",): ("DaemonSet", "agent", "agent-x1", 0, 1),
    ("job/shop/report-28734560",): ("Job", "report-28734560", "report-28734560-zz", 0, 1),
    ("cj/shop/report",): ("CronJob", "report", "report-28734560-zz", 0, 1),
    ("plain-2", "-n", "shop"): ("ReplicaSet", "plain-2", "plain-2-yy", 0, 1),
}


@pytest.mark.parametrize("arguments", FOUND, ids=" ".join)
def test_workload_is_explained_by_its_newest_pod(loaded, arguments):
    said = loaded("explain", *arguments, "-o", "json")
    kind, name, newest, pending, running = FOUND[arguments]
    (item,) = json.loads(said.out)["items"]
    assert (item["kind"], item["pod"]) == (kind, {"name": name, "namespace": "shop"})
    assert item["nextReplica"] == {
        "likePod": {"name": newest, "namespace": "shop"},
        "pendingPodCount": pending,
        "runningPodCount": running,
    }
    assert said.code == (DONE if item["fits"] else NO_NODE_FITS)


def test_next_replica_is_a_pod_more(loaded):
    """It is judged as one that comes, though the pod that it is like runs already."""
    said = loaded("explain", "sts/shop/db")
    assert said.lines[:2] == [
        "StatefulSet shop/db",
        "its next replica, like pod shop/db-0, the newest; 0 pending, 1 running",
    ]
    assert "runs on" not in said.out
    assert "fits:     1 of 3 nodes" in said.lines


def test_pods_that_go_are_no_template_while_others_stay(loaded):
    going = "  deletionTimestamp: '2026-01-01T00:00:09Z'\n"
    old = pod("db-1", "StatefulSet/db", node="a1", created=9, extra=going)
    assert loaded("apply", "-f", "-", stdin=old).code == DONE
    assert (
        "like pod shop/db-0, the newest; 0 pending, 1 running" in loaded("explain", "shop/db").out
    )


def test_pod_of_a_namespace_that_is_called_like_a_kind_is_found_first(loaded):
    loaded("apply", "-f", "-", stdin="kind: Pod\nmetadata: {name: web, namespace: deployments}\n")
    assert loaded("explain", "deployments/web", "-n", "shop").lines[0] == "Pod deployments/web"


MISSING = {
    "deploy/shop/webb": "no pod of deployment/shop/webb is in the state",
    "deploy/shop/plain": "no pod of deployment/shop/plain is in the state",
    "deploy/shop/other": "explain its manifest with -f",
    "shop/nothing-like-it": "pod shop/nothing-like-it is not in the state",
    "elsewhere/web": "pod elsewhere/web is not in the state",
}


@pytest.mark.parametrize("name", MISSING)
def test_a_name_that_is_not_there_is_refused(loaded, name):
    said = loaded("explain", name)
    assert (said.code, said.out) == (BAD_INPUT, "")
    assert MISSING[name] in said.err


def test_other_names_are_explained_all_the_same(loaded):
    said = loaded("explain", "shop/missing", "shop/web", "-o", "json")
    assert said.code == BAD_INPUT
    assert [item["kind"] for item in json.loads(said.out)["items"]] == ["Deployment"]
    assert json.loads(said.err)["error"]["reason"] == "POD_NOT_FOUND"


def test_pods_of_a_namespace_are_listed_once_for_all_names(loaded, monkeypatch):
    listed = []
    real = Client.call

    def counted(self, method, request, **options):
        if method == "ListObjects":
            listed.append(request.namespace)
        return real(self, method, request, **options)

    monkeypatch.setattr(Client, "call", counted)
    names = ("deploy/shop/web", "sts/shop/db", "shop/agent", "shop/missing", "jobs/none/x")
    loaded("explain", *names)
    assert sorted(listed) == ["none", "shop"]
