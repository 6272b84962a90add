"""`--from DIR`: what `cluster-info dump --output-directory` and must-gather write, and `-f DIR`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from topospread.cli import input_files

if TYPE_CHECKING:
    from pathlib import Path


def node(name: str) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/zone": name, "kubernetes.io/hostname": name}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    metadata = {"name": name, "labels": labels, "resourceVersion": "5"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod(name: str, on: str = "", **metadata: str) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}, **metadata},
        "spec": {
            "topologySpreadConstraints": [constraint],
            "containers": [{"name": "c", "image": "web"}],
            **({"nodeName": on} if on else {}),
        },
    }


def listed(kind: str, *items: dict[str, Any]) -> str:
    bare_items = [
        {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
        for each in items
    ]
    return json.dumps({"kind": f"{kind}List", "apiVersion": "v1", "items": bare_items}, indent=4)


NODES = listed("Node", node("a"), node("b"))
PODS = listed("Pod", pod("web-0", "a"), pod("web-1"))
ONE = json.dumps(pod("web-0", "a"))

FOLDERS: dict[str, tuple[dict[str, str], list[str]]] = {
    "cluster-info": (
        {
            "nodes.json": NODES,
            "shop/pods.json": PODS,
            "shop/events.json": listed("Event"),
            "shop/web-0/logs.txt": "{{{",
        },
        ["left out: 1 file that is no manifest: logs.txt"],
    ),
    "must-gather": (
        {
            "timestamp": "now",
            "image/version": "4",
            "image/etcd_info/members.json": '[{"id": 1}]',
            "image/etcd_info/health.json": '{"health": true}',
            "image/audit/log.json": "not JSON {",
            "image/values.yaml": "image: {tag: x}\n",
            "image/cluster-scoped-resources/core/nodes/a.yaml": json.dumps(node("a")),
            "image/cluster-scoped-resources/core/nodes/b.yaml": json.dumps(node("b")),
            "image/namespaces/shop/core/pods.yaml": PODS,
            "image/namespaces/shop/pods/web-0/web-0.yaml": ONE,
            "image/namespaces/shop/pods/web-0/c/logs/current.log": "{{{",
            "image/namespaces/shop/pods/web-1/c/logs/current.log": "{{{",
        },
        [
            "left out: 8 files that are no manifests: timestamp",
            "current.log (2 times)",
            "and 2 more",
        ],
    ),
    "one object a file": (
        {
            "nodes/a.yaml": json.dumps(node("a")),
            "nodes/b.yml": json.dumps(node("b")),
            "p.json": PODS,
        },
        [],
    ),
    "hidden folders": (
        {"nodes.json": NODES, "x/pods.json": PODS, ".git/broken.yaml": "{", "x/.y/pods.json": PODS},
        ["left out: 2 files that are no manifests: .git/ and .y/"],
    ),
    "files of nothing": (
        {"nodes.json": NODES, "x/pods.json": PODS, "y/pods.json": "", "z/events.yaml": "\n"},
        ["left out: 2 files that are no manifests: pods.json and events.yaml"],
    ),
    "compressed files": (
        {"nodes.json": NODES, "pods.json": PODS, "x/pods.json.gz": "\x1f"},
        ["left out: 1 file that is no manifest: pods.json.gz"],
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "dump"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.mark.parametrize(("files", "said"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_read_with_all_below(bare, folder, files, said):
    write(folder, files)
    found = bare("explain", "--from", "dump", "--pending", "-o", "name")
    assert (found.code, found.lines) == (0, ["pod/shop/web-1"])
    assert all(text in found.err for text in said), found.err
    assert bool(found.err) == bool(said)
    counted = bare("report", "--from", "dump", "-o", "json")
    (constraint,) = json.loads(counted.out)["items"]
    assert (constraint["boundPodCount"], constraint["pendingPodCount"]) == (1, 1)


BROKEN = {
    "cut": ("shop/pods.json", PODS[:-20], "it ends too early"),
    "cut in YAML": ("shop/pods.yaml", "apiVersion: v1\nitems:\n- kind: Pod\n", "was it cut?"),
    "no kind": ("shop/pod.yaml", "apiVersion: v1\nmetadata: {name: x}\n", "has no `kind`"),
    "no YAML": ("shop/pod.yaml", "apiVersion: v1\nkind: [\n", "not YAML"),
    "behind an object": ("shop/pod.yaml", f"{ONE}\n---\nhello\n", "found a text"),
    "a wrong type": (
        "shop/pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: 5\n",
        "Pod x: ",
    ),
}


@pytest.mark.parametrize(("name", "content", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_manifest_in_a_folder_is_named(bare, folder, name, content, says):
    write(folder, {"nodes.json": NODES, "a.json": ONE, name: content})
    found = bare("report", "--from", "dump")
    assert found.code == 2
    assert f"dump/{name}" in found.err
    assert says in found.err


def test_lint_leaves_out_what_is_no_manifest(bare, folder):
    values = "topologySpreadConstraints: [{topologyKey: zone name}]\n"
    patch = "patches:\n- patch: '[{op: add, path: /topologySpreadConstraints, value: 3}]'\n"
    others = {
        "Chart.yaml": "apiVersion: v2\nname: x\n",
        "settings.yaml": "password: !env_var PASSWORD\n",
        "templates/web.yaml": "apiVersion: v1\nkind: Pod\nspec: {{ .Values.spec }}\n",
        "x/tsconfig.json": "{// for people\n}",
    }
    write(folder, {**others, "values.yaml": values, "kustomization.yaml": patch})
    found = bare("lint", "-R", "-f", "dump")
    assert found.code == 1
    assert "dump/values.yaml:1: error ImpossibleKey" in found.out
    assert "dump/kustomization.yaml:2: error InvalidConstraint" in found.out
    names = "Chart.yaml, settings.yaml, web.yaml and tsconfig.json"
    assert f"left out: 4 files that are no manifests: {names}" in found.err

    named = bare("lint", "-f", "dump/Chart.yaml")
    assert (named.code, "has no `kind`: Helm reads such a file" in named.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("name: x\n", "no file in it is a manifest: left out: 1 file that is no manifest: a.yaml"),
        (f"{ONE}\n---\nname: x\n", "dump/a.yaml:3: this object has no `kind`"),
        ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "dump/a.yaml:3: not YAML: the key 'kind'"),
    ],
    ids=["none is one", "behind an object", "a broken one"],
)
def test_lint_of_no_manifest_is_no_pass(bare, folder, content, says):
    write(folder, {"a.yaml": content})
    found = bare("lint", "-f", "dump")
    assert found.code == 2
    assert says in found.err


def test_a_link_to_a_folder_is_left_out(bare, folder):
    write(folder, {"nodes.json": NODES, "shop/pods.json": PODS})
    (folder / "shop" / "up").symlink_to(folder)
    found = bare("report", "--from", "dump", "-o", "name")
    assert (found.code, len(found.lines)) == (0, 1)
    assert "left out: 1 file that is no manifest: up/" in found.err


def test_too_many_files_are_refused(bare, folder, monkeypatch):
    monkeypatch.setattr(input_files, "MAX_ENTRIES", 2)
    write(folder, {"nodes.json": NODES, "pods.json": PODS, "x": ""})
    found = bare("report", "--from", "dump")
    assert (found.code, "more than 2 files and folders" in found.err) == (2, True)


TWICE = {
    "the same": (pod("web-0", "a"), False),
    "another": (pod("web-0", "b"), True),
    "another of the same version": (pod("web-0", "b", resourceVersion="7"), True),
    "a newer one": (pod("web-0", "b", resourceVersion="8"), False),
    "an older one": (pod("web-0", "b", resourceVersion="6"), False),
}


@pytest.mark.parametrize(("second", "contradicts"), TWICE.values(), ids=TWICE)
def test_an_object_given_twice_counts_once(bare, folder, second, contradicts):
    version = {"resourceVersion": "7"} if "resourceVersion" in second["metadata"] else {}
    first = pod("web-0", "a", **version)
    write(folder, {"nodes.json": NODES, "a.json": json.dumps(first), "b.json": json.dumps(second)})
    found = bare("get", "pods", "--from", "dump", "-o", "name")
    assert found.lines == ["pod/shop/web-0"]
    assert ("dump/b.json:1: Pod shop/web-0\ngiven before with other content" in found.err) is (
        contradicts
    )


def test_f_names_folders_that_it_does_not_read(bare, folder):
    write(folder, {"a.json": ONE, "below/b.json": ONE, ".git/c.json": ONE})
    found = bare("lint", "-f", "dump")
    assert "dump: -R reads those of the folders below it, too" in found.err
    assert "folders below" not in bare("lint", "-R", "-f", "dump").err
    (folder / "a.json").unlink()
    found = bare("lint", "-f", "dump")
    assert found.code == 2
    assert "no .yaml, .yml or .json file: -R reads those of the folders below it" in found.err


CHECKS = [
    ("explain", "--pending"),
    ("report",),
    ("report", "--fail-on", "violated"),
    ("plan-rebalance",),
    ("rank-deletions", "-n", "shop", "-l", "app=web"),
    ("simulate", "--drain", "a", "--reschedule"),
]


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("asked", CHECKS, ids=" ".join)
def test_a_check_of_no_pods_does_not_pass(bare, folder, asked, form):
    write(folder, {"nodes.json": NODES})
    found = bare(*asked, "--from", "dump", "-o", form)
    assert (found.code, found.out) == (2, "")
    assert "there are no pods" in found.err.splitlines()[-1]
    assert "so nothing was checked" in found.err


@pytest.mark.parametrize(
    "asked",
    [
        ("explain", "--pending", "-n", "shpo"),
        ("report", "-n", "shpo"),
        ("report", "-l", "app=wbe"),
        ("report", "-n", "shop", "-l", "app=wbe"),
        ("plan-rebalance", "-n", "shpo"),
        ("plan-rebalance", "-l", "app=wbe"),
        ("rank-deletions", "-n", "shop", "-l", "app=wbe"),
    ],
    ids=" ".join,
)
def test_a_namespace_or_selector_without_pods_does_not_pass(topospread, folder, asked):
    write(folder, {"nodes.json": NODES, "pods.json": PODS})
    assert topospread("apply", "-R", "-f", "dump").code == 0
    for source in ([], ["--from", "dump"]):
        found = topospread(*asked, *source)
        assert (found.code, found.out) == (2, "")
        assert "so nothing was checked" in found.err
        assert ("-A looks in all namespaces" in found.err) is (
            "-n" in asked and asked[0] != "rank-deletions"
        )


def test_pods_without_nodes_are_no_good_news(topospread, folder):
    write(folder, {"pods.json": PODS})
    assert topospread("apply", "-f", "dump").code == 0
    for verb in ("report", "plan-rebalance"):
        found = topospread(verb)
        assert (found.code, found.out) == (2, "")
        assert "there are no nodes in the state, and without nodes" in found.err


def test_pods_none_of_which_waits_are_fine(bare, folder):
    write(folder, {"nodes.json": NODES, "a.json": ONE})
    found = bare("explain", "--pending", "--from", "dump")
    assert (found.code, found.err) == (0, "no pending pods found\n")


def test_a_manifest_is_judged_by_nodes_alone_with_a_warning(bare, folder):
    write(folder, {"nodes.json": NODES})
    (folder.parent / "pod.json").write_text(json.dumps(pod("web-9")))
    for verb in ("evaluate", "explain", "simulate", "lint"):
        found = bare(verb, "-f", "pod.json", "--from", "dump")
        assert found.code == 0
        assert "dump: there are no pods in it: nothing runs on its nodes" in found.err


def test_kinds_without_a_part_in_answers_are_not_mentioned(bare, folder):
    kinds = ("Deployment", "DaemonSet", "Job", "CronJob", "Event", "ConfigMap")
    others = {f"{kind}.json": json.dumps({"apiVersion": "v1", "kind": kind}) for kind in kinds}
    write(folder, {"nodes.json": NODES, "pods.json": PODS, **others})
    assert bare("get", "pods", "--from", "dump").err == ""
    (folder / "nodes.json").unlink()
    (folder / "pods.json").unlink()
    found = bare("get", "pods", "--from", "dump")
    assert (found.code, "only 1 ConfigMap, 1 CronJob" in found.err) == (2, True)
