"""Rollouts that real controllers and a real kube-scheduler of 1.37.2 carried out, and what is told.

Each line of real_rollouts.jsonl is one run: a Deployment settled on the nodes, which have nothing
else; then the last node was tainted or filled but for 100m, or nothing was done; then the template
changed. A deadlock is that nothing moved for 30 s while a new pod waited. One run shows what can
happen: others of the same may end otherwise. Those of real_roomy_rollouts.jsonl had 300 nodes, and
`before` has their pods by zone; all completed.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lint.test_rollouts import OWN, found, node, pod, workload


def _lines(name):
    return [
        json.loads(line) for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()
    ]


RUNS = _lines("real_rollouts.jsonl")
ROOMY = _lines("real_roomy_rollouts.jsonl")
OLD = {"app": "gate", "pod-template-hash": "old"}


def owner(kind, name, uid):
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {
        "name": "gate-old",
        "namespace": "q",
        "uid": "r1",
        "labels": OLD,
        "ownerReferences": owner("Deployment", "gate", "d1"),
    },
    "spec": {"selector": {"matchLabels": OLD}},
}


def asks(cpu):
    return {"container": {"resources": {"requests": {"cpu": cpu, "memory": "32Mi"}}}}


def old_pod(run, number, where):
    made = pod(f"gate-old-{number}", where, labels=OLD, **asks(run["cpu"]))
    made["metadata"]["ownerReferences"] = owner("ReplicaSet", "gate-old", "r1")
    constraint = copy.deepcopy(constraint_of(run))
    if constraint.get("matchLabelKeys"):  # as the API server stores it
        constraint["labelSelector"]["matchExpressions"] = [
            {"key": "pod-template-hash", "operator": "In", "values": ["old"]}
        ]
    made["spec"]["topologySpreadConstraints"] = [constraint]
    return made


def constraint_of(run):
    hard = {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": OWN}
    return {**run["constraint"], **hard}


def state_of(run):
    """The nodes and pods when the template changes."""
    offered = {"cpu": run["nodeCpu"], "memory": "64Gi", "pods": "110"}
    nodes = [
        node(
            f"n{number}",
            labels={"kubernetes.io/hostname": f"n{number}", "topology.kubernetes.io/zone": zone},
            allocatable=offered,
        )
        for number, zone in enumerate(run["zones"])
    ]
    pods = [old_pod(run, number, f"n{number % len(nodes)}") for number in range(run["replicas"])]
    if run["afterwards"] == "tainted":
        nodes[-1]["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    if run["afterwards"] == "filled":
        last = f"n{len(nodes) - 1}"
        pods.append(pod("other", last, labels={"app": "other"}, **asks("5900m")))
    return [*nodes, REPLICA_SET, *pods]


def manifest_of(run):
    strategy = {name: run[name] for name in ("maxSurge", "maxUnavailable")}
    return workload(
        replicas=run["replicas"],
        strategy={"rollingUpdate": strategy},
        topologySpreadConstraints=[constraint_of(run)],
        **asks(run["cpu"]),
    )


def outcome_reported(command, tmp_path, manifest, state):
    """The end that simulate tells; lint and the exit codes say the same."""
    items = found(command, tmp_path, manifest, state)
    linted = [each for each in items if each["code"] == "RolloutDeadlock"]
    files = ["-f", tmp_path / "given.json", "--from", tmp_path / "state.json"]
    said = command("simulate", *files, "-o", "json")
    (of,) = json.loads(said.out)["workloads"]
    end = of["rollout"]["end"]
    assert bool(linted) == (end != "Completes")
    assert said.code == any(each["severity"] != "Info" for each in linted)
    assert all(each["text"].startswith(of["rollout"]["text"]) for each in linted)
    return end


@pytest.mark.parametrize("template", ["another image", "another label"])
def test_a_rollout_becomes_what_is_reported_of_it(bare, tmp_path, template):
    ends: Counter[tuple[str, str]] = Counter()
    for run in RUNS:
        manifest = manifest_of(run)
        if template == "another label":
            manifest["spec"]["template"]["metadata"]["labels"]["version"] = "2"
        ends[run["outcome"], outcome_reported(bare, tmp_path, manifest, state_of(run))] += 1
    assert ends == {
        ("deadlock", "Waits"): 12,
        # Which old pod goes first is chance there.
        ("deadlock", "MayWait"): 3,
        ("completed", "MayWait"): 2,
        ("completed", "Completes"): 43,
    }


@pytest.mark.parametrize("run", ROOMY, ids=str)
def test_nothing_is_said_of_a_rollout_with_capacity_left(bare, tmp_path, run):
    run |= {
        "cpu": "10m",
        "constraint": {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1},
    }
    run["constraint"] |= {"matchLabelKeys": run["matchLabelKeys"]}
    nodes = [node(f"{'abc'[number % 3]}{number}") for number in range(300)]
    places = [zone + 3 * at for zone, pods in enumerate(run["before"]) for at in range(pods)]
    pods = [
        old_pod(run, number, nodes[place]["metadata"]["name"])
        for number, place in enumerate(places)
    ]
    state = [*nodes, REPLICA_SET, *pods]
    assert run["outcome"] == "completed"
    assert outcome_reported(bare, tmp_path, manifest_of(run), state) == "Completes"


CASES: dict[str, list[dict[str, Any]]] = {
    # Lint once counted the old pod of a node that is closed to new ones.
    "closed": [{"zone": "a", "cpu": "2200m"}, {"zone": "b", "cpu": "2200m", "tainted": True}],
    # simulate once said that it waits with maxUnavailable 0, which it is not.
    "one may lack": [{"zone": "a", "cpu": "1200m"}, {"zone": "b", "cpu": "1200m"}],
}


@pytest.mark.parametrize("case", CASES)
def test_a_rollout_that_really_completed_is_reported_so(bare, tmp_path, case):
    closed = case == "closed"
    strategy = {"maxSurge": "25%", "maxUnavailable": "25%"}
    run: dict[str, Any] = {
        "replicas": 2,
        "cpu": "1",
        "constraint": {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1},
    }
    if closed:
        run["constraint"]["nodeTaintsPolicy"] = "Honor"
    run |= strategy if closed else {"maxSurge": 0, "maxUnavailable": 1}
    nodes: list[dict[str, Any]] = []
    for each in CASES[case]:
        taints = [{"key": "out", "effect": "NoSchedule"}] if each.get("tainted") else []
        labels = {
            "kubernetes.io/hostname": each["zone"],
            "topology.kubernetes.io/zone": each["zone"],
        }
        offered = {"cpu": each["cpu"], "memory": "8Gi", "pods": "110"}
        nodes.append(node(each["zone"], labels=labels, allocatable=offered, taints=taints))
    pods = [old_pod(run, number, each["zone"]) for number, each in enumerate(CASES[case])]
    state = [*nodes, REPLICA_SET, *pods]
    assert outcome_reported(bare, tmp_path, manifest_of(run), state) == "Completes"
