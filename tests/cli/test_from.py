"""`--from`: verbs that read answer from files as they do from a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.manifests import CLUSTER, NOWHERE, POD
from tests.cli.processes import environment
from tests.redis_server import ROOT
from topospread.cli.main import VERBS, root
from topospread.cli.state_source import COMPLETE

RUNNING = """\
apiVersion: v1
kind: Pod
metadata: {name: web-9, namespace: shop, uid: u9, labels: {app: web}}
spec:
  nodeName: a1
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: web}}
"""
STATE = "---\n".join([CLUSTER, NOWHERE, RUNNING])
GATES = ("--gate", "NodeInclusionPolicyInPodTopologySpread=false")

ASKED: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", "-f", "pod.yaml", "shop/web-3"),
    "evaluate with a gate": ("evaluate", "shop/web-9", *GATES),
    "evaluate with arguments": ("evaluate", "shop/web-0", "--args", "args.yaml"),
    "explain": ("explain", "-f", "pod.yaml", "shop/web-3", "shop/web-0"),
    "explain pending": ("explain", "--pending"),
    "get": ("get", "pods"),
    "get one": ("get", "pod", "shop/web-0"),
    "get reservations": ("get", "reservations"),
    "lint": ("lint", "-f", "pod.yaml", "--live"),
    "dump": ("dump",),
    "get constraints": ("get", "constraints"),
    "plan-rebalance": ("plan-rebalance",),
    "report": ("report",),
    "rank-deletions": ("rank-deletions", "-l", "app=web", "-n", "shop"),
    "simulate": ("simulate", "-f", "pod.yaml", "--replicas", "3", "--drain", "b1"),
}

READING = {
    *("dump", "evaluate", "explain", "get", "lint"),
    *("plan-rebalance", "rank-deletions", "report", "simulate"),
}
WRITING = {"apply", "delete", "place", "release", "reserve", "serve", "watch"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with the state in a file and what verbs are asked about."""
    args = "defaultingType: List\ndefaultConstraints:\n- maxSkew: 1\n  topologyKey: rack\n"
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "args.yaml").write_text(f"{args}  whenUnsatisfiable: DoNotSchedule\n")
    (tmp_path / "dump.yaml").write_text(STATE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lasting(answer: Any) -> Any:
    """An answer without what differs from one call to the next."""
    if isinstance(answer, list):
        return [lasting(each) for each in answer]
    if isinstance(answer, dict):
        passing = {"revision", "trace", "traceId", "stateRevision", "cluster"}
        return {key: lasting(value) for key, value in answer.items() if key not in passing}
    return answer


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_verb_answers_from_a_file_as_from_a_server(topospread, folder, asked):
    assert topospread("apply", "-f", "dump.yaml").code == 0
    served = topospread(*asked, "-o", "json")
    read = topospread(*asked, "-o", "json", "--from", "dump.yaml")
    assert read.code == served.code
    assert lasting(json.loads(read.out)) == lasting(json.loads(served.out))


def nodes_of(*kubelets: str) -> str:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}"},
            "status": {"nodeInfo": {"kubeletVersion": kubelet}},
        }
        for number, kubelet in enumerate(kubelets)
    ]
    bound = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "other"}}
    items = [*nodes, {**bound, "spec": {"nodeName": "n0"}}]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.mark.parametrize(
    ("kubelets", "given", "version", "says"),
    [
        (["v1.37.2", "v1.36.1"], [], "1.36", "the version of the oldest kubelet"),
        (["v1.38.0"], [], "1.38", ""),
        (["v1.40.1"], [], "1.38", "Kubernetes 1.40 is not known here"),
        (["v1.36.1"], ["--kubernetes-version", "1.37"], "1.37", ""),
        (["v1.36.1"], ["--kubernetes-version", "1.50"], "1.38", "Kubernetes 1.50 is not known"),
        (["odd"], [], "1.38", ""),
    ],
)
def test_a_dump_is_judged_as_its_oldest_kubelet_or_as_is_said(
    bare, folder, kubelets, given, version, says
):
    (folder / "dump.json").write_text(nodes_of(*kubelets))
    said = bare("evaluate", "-f", "pod.yaml", "--from", "dump.json", "-o", "json", *given)
    assert json.loads(said.out)["items"][0]["kubernetesVersion"] == version
    assert says in said.err
    assert bool(says) == bool(said.err)


def test_a_server_is_asked_what_an_upgrade_would_do(topospread, loaded, folder):
    del loaded
    asked = ("evaluate", "-f", "pod.yaml", "-o", "json", "--kubernetes-version")
    said = topospread(*asked, "1.37")
    assert json.loads(said.out)["items"][0]["kubernetesVersion"] == "1.37"
    newer = topospread(*asked, "1.50")
    assert json.loads(newer.out)["items"][0]["kubernetesVersion"] == "1.38"
    assert newer.err.count("Kubernetes 1.50 is not known here") == 1
    assert "1.36, 1.37, 1.38" in topospread(*asked, "1.30").err
    assert topospread("get", "pods", "--kubernetes-version", "1.37").code == 2
    assert "no version of Kubernetes" in topospread(*asked, "newest").err


def test_lint_finds_an_empty_selector_where_it_counts_nothing(bare, folder):
    pod = POD.replace("matchLabels: {app: web}", "")
    (folder / "empty.yaml").write_text(pod)

    def found(*given: str) -> str:
        return bare("lint", "-f", "empty.yaml", *given).out

    assert "EmptySelector" in found()
    assert "from 1.38 on it counts all pods of the namespace" in found()
    assert "of Kubernetes 1.37 counts no pods" in found("--kubernetes-version", "v1.37.9")
    assert "EmptySelector" not in found("--kubernetes-version", "1.38")
    newer = bare("lint", "-f", "empty.yaml", "--kubernetes-version", "1.44")
    assert newer.err.count("Kubernetes 1.44 is not known here") == 1
    (folder / "dump.json").write_text(nodes_of("v1.37.2"))
    newer = bare("lint", "-f", "empty.yaml", "--kubernetes-version", "1.44", "--from", "dump.json")
    assert newer.err.count("Kubernetes 1.44 is not known here") == 1
    assert "of Kubernetes 1.37 counts no pods" in found("--from", "dump.json")


def test_only_verbs_that_read_take_it(bare):
    taking = {
        verb
        for verb in VERBS
        for option in root.get_command(None, verb).params  # type: ignore[arg-type,union-attr]
        if "--from" in option.opts
    }
    assert taking >= READING
    assert not taking & WRITING


def test_no_server_is_looked_for(bare, folder, monkeypatch):
    monkeypatch.setenv("TOPOSPREAD_ADDRESS", "127.0.0.1:1")
    assert bare("get", "nodes", "--from", "dump.yaml", "-o", "name").lines == [
        "node/a1",
        "node/a2",
        "node/b1",
    ]


def test_a_directory_and_standard_input_are_read(bare, folder):
    (folder / "state").mkdir()
    os.rename("dump.yaml", "state/all.yaml")
    expected = bare("get", "nodes", "--from", "state", "-o", "name")
    assert expected.lines == ["node/a1", "node/a2", "node/b1"]
    read = bare("get", "nodes", "--from", "-", "-o", "name", stdin=STATE)
    assert read.lines == expected.lines


def test_several_files_are_one_state(bare, folder):
    (folder / "nodes.yaml").write_text(CLUSTER)
    (folder / "pods.yaml").write_text(f"{NOWHERE}---\n{RUNNING}")
    expected = bare("report", "--from", "dump.yaml").lines
    assert bare("report", "--from", "nodes.yaml", "--from", "pods.yaml").lines == expected
    piped = bare("report", "--from", "nodes.yaml", "--from", "-", stdin=f"{NOWHERE}---\n{RUNNING}")
    assert piped.lines == expected
    said = bare("report", "--from", "pods.yaml", "--from", "-", stdin=RUNNING)
    assert "pods.yaml, standard input: there are no nodes in it" in said.err


def test_standard_input_is_read_for_one_thing(bare, folder):
    for asked in (("evaluate", "-f", "-"), ("report", "--from", "-")):
        said = bare(*asked, "--from", "-", stdin=STATE)
        assert (said.code, "standard input can be read once" in said.err) == (2, True)


JUDGING = [asked for name, asked in ASKED.items() if not name.startswith(("get", "dump"))]


@pytest.mark.parametrize("asked", [*JUDGING, ASKED["get constraints"]], ids=" ".join)
def test_a_file_without_nodes_is_refused_where_pods_are_judged(bare, folder, asked):
    """Without nodes no constraint is violated, so a check would pass."""
    (folder / "pods.yaml").write_text(RUNNING)
    said = bare(*asked, "--from", "pods.yaml")
    assert (said.code, said.out) == (2, "")
    assert "pods.yaml: there are no nodes in it" in said.err
    assert COMPLETE in said.err
    in_docs = (ROOT / "docs/no-server.md").read_text().replace("\\\n", "")
    assert COMPLETE.strip("`") in in_docs


def test_a_file_without_nodes_is_shown(bare, folder):
    (folder / "pods.yaml").write_text(RUNNING)
    for asked in (("get", "pods"), ("get", "pod/shop/web-9"), ("dump",)):
        said = bare(*asked, "--from", "pods.yaml")
        assert (said.code, "web-9" in said.out, said.err) == (0, True, "")


MEASURED = """\
import sys, threading
from topospread.cli.main import run
started = []
start = threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), start(self))
code = run(sys.argv[1:])
names = sorted(name for name in sys.modules if name.partition(".")[0].startswith("topospread"))
print(*names, sep="\\n", file=sys.stderr)
print(*{name.partition(".")[0] for name in sys.modules}, *sys.modules, file=sys.stderr)
sys.exit(code or len(started))
"""

OF_SERVERS = {
    *("opentelemetry", "prometheus_client", "redis", "starlette", "uvicorn", "sqlite3"),
    *("grpc", "topospread.app", "topospread.rpc", "topospread.http"),
    *("topospread.kubernetes", "topospread.store.sqlite", "topospread.calls.pipeline"),
}
"""Modules that only what serves needs."""

MOST_MODULES = 206
"""Of ours, whatever they are named; each costs some half a millisecond."""


def test_a_report_loads_no_server_and_starts_no_thread():
    ran = subprocess.run(
        [sys.executable, "-c", MEASURED, "report", "--from", "examples/cluster"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    *ours, everything = ran.stderr.splitlines()
    assert (ran.returncode, "shop" in ran.stdout) == (0, True), ran.stderr
    assert OF_SERVERS.isdisjoint(everything.split())
    assert len(ours) <= MOST_MODULES
