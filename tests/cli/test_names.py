"""Names of objects: every form that is typed, and what verbs print typed into other verbs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.manifests import CLUSTER, POD
from tests.waiting import PATIENCE
from topospread.cli.errors import BAD_INPUT, DONE, NO_NODE_FITS, BadInput
from topospread.cli.kinds import POD as POD_KIND
from topospread.cli.kinds import RESERVATION, STORED, full_name, named_pod, node_name, parse_name

PENDING = POD.replace("web-2", "web-9")
HERE = "pod/shop/web-0"


@pytest.fixture
def loaded(topospread):
    """Zone a has shop/web-0 and shop/web-1; shop/web-9 is pending, and held for is shop/web-2."""
    assert topospread("apply", "-f", "-", stdin=f"{CLUSTER}---\n{PENDING}").code == DONE
    assert topospread("place", "-f", "-", stdin=POD).code == DONE
    return topospread


PODS = {
    "web-0": ("default", "web-0"),
    "shop/web-0": ("shop", "web-0"),
    "pod/web-0": ("default", "web-0"),
    "pods/web-0": ("default", "web-0"),
    "PO/shop/web-0": ("shop", "web-0"),
    "pod/shop/web-0": ("shop", "web-0"),
    "reservation/shop/web-0": ("shop", "web-0"),
    "jobs/web-0": ("jobs", "web-0"),
    "pod/job/web-0": ("job", "web-0"),
}


@pytest.mark.parametrize("text", PODS)
def test_pod_is_named_in_any_form(text):
    found = named_pod(text, None)
    assert (found.namespace, found.name) == PODS[text]


def test_namespace_option_is_of_names_that_have_none():
    assert full_name(named_pod("web-0", "shop")) == "shop/web-0"
    assert full_name(named_pod("pod/web-0", "shop")) == "shop/web-0"
    assert full_name(named_pod("pod/shop/web-0", "shop")) == "shop/web-0"
    assert node_name("node/a1") == node_name("no/a1") == node_name("a1") == "a1"


def test_kinds_are_those_of_kubectl():
    words = [
        "deploy",
        "deployment.apps",
        "rs",
        "sts",
        "svc",
        "rc",
        "ds",
        "job",
        "no",
        "replicasets",
    ]
    kinds = {*STORED, "Deployment", "DaemonSet", "Job"}
    assert [parse_name(f"{word}/x", None, kinds).kind for word in words] == [
        "Deployment",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "Service",
        "ReplicationController",
        "DaemonSet",
        "Job",
        "Node",
        "ReplicaSet",
    ]


WRONG = {
    (
        "deploy/web",
        None,
    ): "names a deployment, not a pod or reservation: write NAME, NAMESPACE/NAME",
    ("job/web-0", None): "or pod/NAMESPACE/NAME",
    ("shop/web-0", "data"): "'shop/web-0' is not in --namespace data: leave one of them out",
    ("pdo/shop/web-0", None): "unknown kind 'pdo'",
    ("pod/shop/", None): "is no name of a pod",
    ("shop/", None): "is no name of a pod",
    ("", None): "is no name of a pod",
    ("pod//web-0", None): "is no name of a pod",
    ("pod/a/b/c", None): "is no name of a pod",
}


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_name_that_is_none_is_refused_with_the_forms(given):
    text, namespace = given
    with pytest.raises(BadInput) as refused:
        parse_name(text, namespace, (POD_KIND, RESERVATION), POD_KIND)
    assert WRONG[given] in refused.value.message


def test_node_has_no_namespace():
    with pytest.raises(BadInput, match="write NAME or node/NAME"):
        node_name("node/shop/a1")


FORMS = [("web-0", "-n", "shop"), ("shop/web-0",), ("pod/web-0", "-n", "shop"), (HERE,)]
VERBS = {
    "get": ("get", "pods"),
    "delete": ("delete", "pods"),
    "explain": ("explain",),
    "evaluate": ("evaluate",),
    "place": ("place",),
    "reserve": ("reserve", "a1"),
    "simulate": ("simulate", "--delete-pod", HERE),
    "simulate without": ("simulate", "shop/web-9", "--delete-pod"),
}


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("verb", VERBS)
def test_verb_takes_every_form_of_a_name(loaded, verb, form):
    said = loaded(*VERBS[verb], *form)
    assert (said.code in {DONE, NO_NODE_FITS}, said.err) == (True, "")


GETS = {
    ("get", "pods", "shop/web-0", "pod/shop/web-1"): [HERE, "pod/shop/web-1"],
    ("get", HERE): [HERE],
    ("get", "po/web-0", "-n", "shop"): [HERE],
    ("get", HERE, "node/a1", "svc/shop/web"): [HERE, "node/a1", "service/shop/web"],
    ("get", "reservation/shop/web-2"): ["reservation/shop/web-2"],
    ("get", "no", "a1", "node/a2"): ["node/a1", "node/a2"],
    ("delete", HERE, "no/a1"): [HERE, "node/a1"],
    ("release", "pod/shop/web-2"): ["reservation/shop/web-2"],
    ("reserve", "node/b1", "pod/shop/web-9"): ["node/b1"],
    ("place", "shop/web-9", "--candidate", "node/b1"): ["node/b1"],
    ("simulate", "shop/web-9", "--drain", "node/a1"): ["node/b1"],
}


@pytest.mark.parametrize("arguments", GETS, ids=" ".join)
def test_kind_may_stand_before_each_name(loaded, arguments):
    loaded("release", "shop/web-2", "--ignore-not-found")
    loaded("reserve", "b1", "-f", "-", stdin=POD)
    if "web-9" in " ".join(arguments):
        loaded("release", "shop/web-2")
    said = loaded(*arguments, "-o", "name")
    assert (said.code, said.lines) == (DONE, GETS[arguments])


REFUSED = {
    ("get", HERE, "web-1"): "'web-1' has no kind: write KIND/NAME or KIND/NAMESPACE/NAME",
    ("get", "pods", "node/b1"): "or pod/NAMESPACE/NAME",
    ("get", "pods", "svc/shop/web"): "names a service, not a pod",
    ("get", "workloads", "web"): "of several kinds",
    ("get", "deploy/shop/web"): "write KIND/NAME or KIND/NAMESPACE/NAME",
    ("get", "deployments"): "a server stores no Deployments",
    ("get", HERE, "reservation/shop/web-2"): "ask for them alone",
    ("get", HERE, "-l", "app=web"): "names or --selector",
    ("delete", "workloads", "web"): "of several kinds",
    ("delete", "pods"): "say what to delete",
    ("evaluate", "shop/web-0", "-n", "data"): "not in --namespace data",
    ("reserve", "shop/a1", HERE): "is no name of a node",
    ("simulate", "--drain", "pod/a1", HERE): "names a pod, not a node",
    ("watch", "deploy/shop/web"): "names a deployment",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_name_that_cannot_be_meant_is_refused(loaded, arguments):
    said = loaded(*arguments)
    assert (said.code, said.out) == (BAD_INPUT, "")
    assert REFUSED[arguments] in said.err


PRINTERS = {
    "get": ("get", "pods", "-n", "shop"),
    "get by name": ("get", HERE),
    "rank-deletions": ("rank-deletions", "-l", "app=web", "-n", "shop"),
    "plan-rebalance": ("plan-rebalance", "-n", "shop", "--evict-bare-pods"),
}
NODE_PRINTERS = {
    "get": ("get", "nodes"),
    "evaluate": ("evaluate", "shop/web-9"),
    "place": ("place", "shop/web-9"),
    "reserve": ("reserve", "b1", "shop/web-9"),
    "simulate": ("simulate", "shop/web-9"),
}


@pytest.mark.parametrize("printer", PRINTERS)
def test_pods_that_a_verb_prints_are_taken_by_others(topospread, printer):
    owned = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: w, controller: true}]"
    spread = POD.partition("spec:\n")[2]
    pods = "".join(
        f"---\nkind: Pod\nmetadata: {{name: web-{number}, namespace: shop, labels: {{app: web}}, "
        f"{owned}}}\nspec:\n  nodeName: a1\n{spread}"
        for number in range(4)
    )
    nodes = CLUSTER.partition("---")[0]
    assert topospread("apply", "-f", "-", stdin=nodes + pods).code == DONE
    printed = topospread(*PRINTERS[printer], "-o", "name").lines
    assert printed
    assert all(line.startswith("pod/shop/web-") for line in printed)
    for verb in ("explain", "evaluate", "place"):
        said = topospread(verb, *printed)
        assert (said.code in {DONE, NO_NODE_FITS}, said.err) == (True, ""), verb
    assert topospread("get", *printed, "-o", "name").lines == printed
    assert topospread("get", "pods", *printed, "-o", "name").lines == printed
    assert topospread("release", *printed).code == BAD_INPUT, "pods that run hold no place"
    gone = [part for name in printed for part in ("--delete-pod", name)]
    assert topospread("simulate", *printed, *gone).err == ""
    assert topospread("delete", *printed).code == DONE


@pytest.mark.parametrize("printer", NODE_PRINTERS)
def test_nodes_that_a_verb_prints_are_taken_by_others(topospread, printer):
    topospread("apply", "-f", "-", stdin=f"{CLUSTER}---\n{PENDING}")
    printed = topospread(*NODE_PRINTERS[printer], "-o", "name").lines
    assert printed
    assert all(line.startswith("node/") for line in printed)
    assert topospread("get", *printed, "-o", "name").lines == printed
    drained = [part for name in printed for part in ("--drain", name)]
    given = [part for name in printed for part in ("--candidate", name)]
    for arguments in (
        ("simulate", "shop/web-9", *drained),
        ("place", "shop/web-9", *given),
        ("reserve", printed[0], "shop/web-9"),
        ("delete", "nodes", *printed),
    ):
        said = topospread(*arguments)
        assert (said.code in {DONE, NO_NODE_FITS}, said.err) == (True, ""), arguments


WATCHED = {
    (HERE, "no"): {"node/a1", "node/a2", "node/b1", HERE},
    ("pods", "svc", "-n", "shop"): {HERE, "pod/shop/web-1", "pod/shop/web-9", "service/shop/web"},
    ("po/web-0", "svc", "-n", "shop"): {HERE, "service/shop/web"},
}


@pytest.mark.parametrize("arguments", WATCHED, ids=" ".join)
def test_watch_shows_the_objects_that_are_meant(loaded, address, cluster, arguments):
    other = "kind: Pod\nmetadata: {name: web-0, namespace: elsewhere}\n"
    loaded("apply", "-f", "-", stdin=other)
    command = [sys.executable, "-m", "topospread", "watch", *arguments, "--send-initial"]
    environment = {**os.environ, "TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}
    with subprocess.Popen(
        [*command, "-o", "name"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        shown = WATCHED[arguments]
        assert {process.stdout.readline().strip() for _ in shown} == shown
        loaded("delete", "pod/elsewhere/web-0")
        loaded("delete", HERE)
        assert process.stdout.readline().strip() == HERE
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
