"""Names of objects: every form that is typed, and what verbs print typed into other verbs."""

from __future__ import annotations

import pytest

from tests.cli.manifests import CLUSTER, POD
from topospread.cli.errors import BAD_INPUT, DONE, NO_NODE_FITS, BadInput
from topospread.cli.kinds import POD as POD_KIND
from topospread.cli.kinds import (
    RESERVATION,
    STORED,
    full_name,
    is_kind,
    named_pod,
    node_name,
    parse_name,
    plural,
)

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
    drained = [part for name in printed for part in ("--drain", f"{name}=tainted")]
    given = [part for name in printed for part in ("--candidate", name)]
    for arguments in (
        ("simulate", "shop/web-9", *drained),
        ("place", "shop/web-9", *given),
        ("reserve", printed[0], "shop/web-9"),
        ("delete", "nodes", *printed),
    ):
        said = topospread(*arguments)
        assert (said.code in {DONE, NO_NODE_FITS}, said.err) == (True, ""), arguments


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Pod", "pods"),
        ("Prometheus", "prometheuses"),
        ("Elasticsearch", "elasticsearches"),
        ("CSIStorageCapacity", "csistoragecapacities"),
    ],
)
def test_plurals_are_those_of_kubernetes(kind, name):
    assert plural(kind) == name
    assert is_kind(f"{name}.example.com", kind)
