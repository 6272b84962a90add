"""An explanation's evaluation: as EvaluatePod's, by Filter and the other filters together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.world import (
    CLUSTER,
    ZONE,
    Json,
    World,
    constraint,
    incoming,
    node,
    running,
    soft,
    world,
)
from topospread.errors import InvalidRequest
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.node_fit import REASON_CORDONED, REASON_TAINTED
from topospread.service.explaining.explain import explain
from topospread.spread.verdicts import REASON_CONSTRAINTS_NOT_MATCH, REASON_LABEL_MISSING
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.decisions.evaluate import Evaluation

NODES = 12
GPU = {"key": "gpu", "effect": "NoSchedule"}


NEEDY = {"name": "c", "resources": {"requests": {"cpu": "2"}}}


def numbered(number: int) -> Json:
    """One of four zones; zone a is tainted, n-05 is cordoned, n-02 has one processor."""
    zone = "abcd"[number % 4]
    return node(f"n-{number:02}", zone) | {
        "spec": {"taints": [GPU] if zone == "a" else [], "unschedulable": number == 5},
        "status": {"allocatable": {"pods": "10", "cpu": "1" if number == 2 else "8"}},
    }


def evaluated(made: World, pod: Json, top_k: int = 0) -> Evaluation:
    asked = made.engine.with_requests(CLUSTER, pod_from_manifest(pod).SerializeToString())
    return explain(made.engine, made.ask(), asked, top_k=top_k, advise=False).evaluation


@pytest.fixture
def tainted() -> Iterator[World]:
    with world() as made:
        made.apply(*map(numbered, range(NODES)))
        yield made


@pytest.mark.parametrize("constraints", [[constraint(ZONE)], [soft(ZONE)], []])
def test_best_nodes_are_those_of_the_nodes_that_the_other_filters_leave(
    tainted: World, constraints: list[Json]
) -> None:
    pod = incoming(*constraints, containers=[NEEDY])
    left = [f"n-{n:02}" for n in range(NODES) if n % 4 and n not in {2, 5}]
    found = evaluated(tainted, pod, top_k=4)
    expected = evaluate(tainted.engine, tainted.ask(pod, nodes=left), 4)
    assert (found.top, len(found.top)) == (expected.top, 4)
    assert (found.feasible, found.nodes) == (len(left), NODES)
    assert found.pre_score == expected.pre_score


def test_each_node_has_the_verdict_of_the_first_filter_that_refuses_it(tainted: World) -> None:
    tainted.apply(running("web-0", "n-03"), running("web-1", "n-03"))
    found = evaluated(tainted, incoming(constraint(ZONE), containers=[NEEDY]))
    assert {status.reasons: (status.code.label, nodes) for status, nodes in found.verdicts} == {
        (): ("Success", 4),
        (REASON_TAINTED,): ("UnschedulableAndUnresolvable", 3),
        (REASON_CONSTRAINTS_NOT_MATCH,): ("Unschedulable", 3),
        (REASON_CORDONED,): ("UnschedulableAndUnresolvable", 1),
        ("Insufficient cpu",): ("Unschedulable", 1),
    }
    assert [nodes for _, nodes in found.verdicts] == [4, 3, 3, 1, 1]


def test_the_message_has_the_reasons_of_all_filters(tainted: World) -> None:
    pod = incoming(constraint("rack"))
    found = evaluated(tainted, pod)
    assert (found.feasible, found.reason) == (0, "Unschedulable")
    assert not found.top
    assert found.message == (
        "0/12 nodes are available: 1 node(s) were unschedulable, "
        f"3 node(s) had untolerated taint(s), 8 {REASON_LABEL_MISSING}."
    )
    with pytest.raises(InvalidRequest, match="topK"):
        evaluated(tainted, pod, top_k=1001)
