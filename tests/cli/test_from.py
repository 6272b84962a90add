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
WRITING = {"apply", "delete", "place", "release", "reserve", "serve", "sync", "watch"}


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


@pytest.mark.parametrize("given", [("--address", "127.0.0.1:7946"), ("--tls",)])
def test_an_option_of_a_server_beside_it_is_refused(bare, folder, given):
    said = bare("get", "nodes", "--from", "dump.yaml", *given)
    text = f"topospread: --from calls no server: leave out {given[0]}, or --from"
    assert (said.code, said.err.startswith(text)) == (2, True)


def test_a_directory_and_standard_input_are_read(bare, folder):
    (folder / "state").mkdir()
    os.rename("dump.yaml", "state/all.yaml")
    expected = bare("get", "nodes", "--from", "state", "-o", "name")
    assert expected.lines == ["node/a1", "node/a2", "node/b1"]
    read = bare("get", "nodes", "--from", "-", "-o", "name", stdin=STATE)
    assert read.lines == expected.lines


def test_standard_input_is_read_for_one_thing(bare, folder):
    said = bare("evaluate", "-f", "-", "--from", "-", stdin=STATE)
    assert (said.code, "standard input can be read once" in said.err) == (2, True)


def test_the_scheduler_configuration_holds(bare, folder):
    (folder / "config.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n"
        "  - name: PodTopologySpread\n    args:\n      defaultingType: List\n"
        "      defaultConstraints:\n"
        "      - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}\n"
    )
    asked = ("evaluate", "shop/web-0", "--from", "dump.yaml")
    assert bare(*asked).code == 0
    assert bare(*asked, "--config", "config.yaml").code == 1


def test_a_configuration_that_cannot_be_used_is_refused(bare, folder):
    said = bare("get", "nodes", "--from", "dump.yaml", "--config", "pod.yaml")
    assert (said.code, "pod.yaml" in said.err) == (2, True)
    said = bare("get", "nodes", "--config", "pod.yaml")
    assert (said.code, "--config goes with --from" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: Node\nmetadata: {name: [a]}\n", "metadata.name"),
        ("kind: Node\nmetadata: {name: a/b}\n", "state.yaml:1: Node a/b: metadata.name"),
        ("kind: Node\nmetadata: {}\n", "state.yaml:1: Node without a name: metadata.name"),
        ("kind: Deployment\nmetadata: {name: a}\n", "there are no nodes, pods or workloads"),
        ("kind: [\n", "state.yaml:2: not YAML"),
    ],
)
def test_manifests_that_cannot_be_read_are_named_by_file_and_line(bare, folder, content, said):
    (folder / "state.yaml").write_text(content)
    refused = bare("get", "nodes", "--from", "state.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "state.yaml" in refused.err


def test_an_object_that_is_given_twice_is_there_as_apply_leaves_it(bare, folder):
    def node(version: str, zone: str) -> str:
        labels = f"{{topology.kubernetes.io/zone: {zone}}}"
        return f"---\nkind: Node\nmetadata: {{name: a, labels: {labels}{version}}}\n"

    (folder / "one.yaml").write_text(node("", "old") + node("", "new"))
    assert "new" in bare("get", "nodes", "--from", "one.yaml").out
    newer, older = ', resourceVersion: "10"', ', resourceVersion: "9"'
    (folder / "two.yaml").write_text(node(newer, "new") + node(older, "old"))
    assert "new" in bare("get", "nodes", "--from", "two.yaml").out


def test_a_second_source_is_refused_not_forgotten(bare, folder):
    said = bare("get", "nodes", "--from", "dump.yaml", "--from", "pod.yaml")
    assert said.code == 2
    assert "give one source: several files may stand in one directory" in said.err


JUDGING = [asked for name, asked in ASKED.items() if not name.startswith(("get", "dump"))]


@pytest.mark.parametrize("asked", [*JUDGING, ASKED["get constraints"]], ids=" ".join)
def test_a_file_without_nodes_is_refused_where_pods_are_judged(bare, folder, asked):
    """Without nodes no constraint is violated, so a check would pass."""
    (folder / "pods.yaml").write_text(RUNNING)
    said = bare(*asked, "--from", "pods.yaml")
    assert (said.code, said.out) == (2, "")
    assert "pods.yaml: there are no nodes in it" in said.err
    assert COMPLETE in said.err
    assert COMPLETE.strip("`") in (ROOT / "docs/no-server.md").read_text()


def test_a_file_without_nodes_is_shown(bare, folder):
    (folder / "pods.yaml").write_text(RUNNING)
    for asked in (("get", "pods"), ("get", "pod/shop/web-9"), ("dump",)):
        said = bare(*asked, "--from", "pods.yaml")
        assert (said.code, "web-9" in said.out, said.err) == (0, True, "")


def owned(constraint: str = "") -> str:
    owner = "apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: r1, controller: true"
    return (
        f"---\nkind: Pod\nmetadata: {{name: web-1-x, uid: p1, ownerReferences: [{{{owner}}}]}}\n"
        f"spec: {{nodeName: a1{constraint}}}\n"
    )


def test_pods_whose_owners_are_not_given_have_no_default_constraints_and_that_is_said(bare, folder):
    owner = "---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-1}\n"
    own = (
        ", topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, "
        "whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]"
    )
    for content, warned in ((owned(), True), (owned() + owner, False), (owned(own), False)):
        (folder / "part.yaml").write_text(CLUSTER + content)
        said = bare("report", "--from", "part.yaml")
        assert (said.code, COMPLETE in said.err) == (0, warned)
        assert COMPLETE not in bare("get", "pods", "--from", "part.yaml").err


def test_a_cluster_that_can_have_no_such_name_is_refused(bare, folder):
    said = bare("report", "--from", "dump.yaml", "--cluster", "No_Label")
    assert said.code == 2
    assert "'No_Label' is not a DNS label" in said.err


def test_the_time_out_bounds_what_is_computed(bare, folder):
    said = bare("report", "--from", "dump.yaml", "--timeout", "0.000001")
    assert (said.code, said.out) == (3, "")
    assert "did not answer in time" in said.err
    assert "unix:" not in said.err


def test_no_file_is_read_for_a_configuration_that_cannot_be_used(bare, folder):
    (folder / "broken.yaml").write_text("kind: Other\n")
    said = bare("report", "--from", "dump.yaml", "--config", "broken.yaml")
    again = bare("report", "--from", "nowhere.yaml", "--config", "broken.yaml")
    assert (said.code, again.code, again.err) == (2, 2, said.err)


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

MOST_MODULES = 152
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
