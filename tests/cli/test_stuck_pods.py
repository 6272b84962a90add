"""`plan-rebalance` says which option lets pods go that stay."""

from __future__ import annotations

import pytest

from tests.cli.owned import documents, nodes, pod_of

NODES = nodes("a1", "b1")
STUCK = {
    # the controller, more of the pods' spec, the line
    "bare pods": ("", {}, "2 without a controller (--evict-bare-pods)"),
    "critical pods": (
        "ReplicaSet/dns-1",
        {"priority": 2_000_000_000},
        "2 of too high a priority (--priority-threshold)",
    ),
    "pods of a DaemonSet": ("DaemonSet/agent", {}, "2 of a DaemonSet"),
}


@pytest.mark.parametrize("case", STUCK)
def test_options_are_named_beside_pods_that_stay(bare, tmp_path, case):
    owner, spec, line = STUCK[case]
    pods = [pod_of(owner, f"p-{n}", "a1", spec=spec) for n in range(2)]
    (tmp_path / "state.yaml").write_text(documents(*NODES, *pods), encoding="utf-8")
    answer = bare("plan-rebalance", "--from", str(tmp_path / "state.yaml"))
    assert answer.code == 1
    assert f"not evictable:  {line}" in answer.lines
