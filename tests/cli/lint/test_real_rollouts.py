"""Rollouts that real controllers and a real kube-scheduler of 1.37.2 carried out, and lint before.

Each line of real_rollouts.jsonl is one run: a Deployment settled on the nodes, which have nothing
else; then the last node was tainted or filled but for 100m, or nothing was done; then the template
changed. A deadlock is that nothing moved for 30 s while a new pod waited. One run shows what can
happen: others of the same may end otherwise.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.cli.lint.test_rollouts import OWN, found, node, pod, workload

RUNS = [
    json.loads(line)
    for line in Path(__file__).with_name("real_rollouts.jsonl").read_text("utf-8").splitlines()
]


def asks(cpu):
    return {"container": {"resources": {"requests": {"cpu": cpu, "memory": "32Mi"}}}}


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
    labels = {"app": "gate", "pod-template-hash": "old"}
    pods = [
        pod(f"old-{number}", f"n{number % len(nodes)}", labels=labels, **asks(run["cpu"]))
        for number in range(run["replicas"])
    ]
    if run["afterwards"] == "tainted":
        nodes[-1]["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    if run["afterwards"] == "filled":
        last = f"n{len(nodes) - 1}"
        pods.append(pod("other", last, labels={"app": "other"}, **asks("5900m")))
    return [*nodes, *pods]


def manifest_of(run):
    strategy = {name: run[name] for name in ("maxSurge", "maxUnavailable")}
    hard = {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": OWN}
    return workload(
        replicas=run["replicas"],
        strategy={"rollingUpdate": strategy},
        topologySpreadConstraints=[{**run["constraint"], **hard}],
        **asks(run["cpu"]),
    )


def test_a_state_shows_which_rollouts_may_wait(bare, tmp_path):
    said_of: Counter[tuple[str, ...]] = Counter()
    for run in RUNS:
        items = found(bare, tmp_path, manifest_of(run), state_of(run))
        said = [each["severity"] for each in items if each["code"] == "RolloutDeadlock"]
        said_of[run["outcome"], *said] += 1
    assert said_of == {
        ("deadlock", "Error"): 5,
        ("deadlock", "Warning"): 8,
        # Which old pod goes first is chance there.
        ("deadlock", "Info"): 2,
        ("completed", "Info"): 2,
        ("completed",): 43,
    }
