"""An explanation's evaluation: as EvaluatePod's, by Filter and the other filters together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.calls import label_of
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

    from topospread_proto.v1.decision_service_pb2 import EvaluatePodResponse

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


def evaluated(made: World, pod: Json, top_k: int = 0) -> EvaluatePodResponse:
    asked = made.engine.with_requests(CLUSTER, pod_from_manifest(pod).SerializeToString())
    return explain(made.engine, made.ask(), asked, top_k=top_k, advise=False).response.evaluation


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
    top = [(each.node, each.raw, each.normalized) for each in found.top_nodes]
    assert (top, len(top)) == ([*expected.top], 4)
    assert (found.feasible_node_count, found.node_count) == (len(left), NODES)
    assert label_of(found.pre_score_verdict) == expected.pre_score.code.label


def test_each_node_has_the_verdict_of_the_first_filter_that_refuses_it(tainted: World) -> None:
    tainted.apply(running("web-0", "n-03"), running("web-1", "n-03"))
    found = evaluated(tainted, incoming(constraint(ZONE), containers=[NEEDY]))
    assert {
        tuple(each.verdict.reasons): (label_of(each.verdict), each.node_count)
        for each in found.verdict_counts
    } == {
        (): ("Success", 4),
        (REASON_TAINTED,): ("UnschedulableAndUnresolvable", 3),
        (REASON_CONSTRAINTS_NOT_MATCH,): ("Unschedulable", 3),
        (REASON_CORDONED,): ("UnschedulableAndUnresolvable", 1),
        ("Insufficient cpu",): ("Unschedulable", 1),
    }
    assert [each.node_count for each in found.verdict_counts] == [4, 3, 3, 1, 1]


def test_the_message_has_the_reasons_of_all_filters(tainted: World) -> None:
    pod = incoming(constraint("rack"))
    found = evaluated(tainted, pod)
    assert (found.feasible_node_count, found.reason) == (0, "Unschedulable")
    assert not found.top_nodes
    assert found.message == (
        "0/12 nodes are available: 1 node(s) were unschedulable, "
        f"3 node(s) had untolerated taint(s), 8 {REASON_LABEL_MISSING}."
    )
    with pytest.raises(InvalidRequest, match="topK"):
        evaluated(tainted, pod, top_k=1001)
