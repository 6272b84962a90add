"""On small random clusters no plan has fewer evictions, and a plan that is followed leads there."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.rebalancing.cases import cluster_of
from tests.service.rebalancing.judging import above, fewest_moves, may_go, moved
from tests.service.world import world
from topospread.kube.violations import Problems
from topospread.service.rebalancing.plan import RebalancePlanner
from topospread_proto.v1.common_pb2 import OPTIMALITY_PROVEN
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest
from topospread_proto.v1.rebalance_pb2 import (
    REBALANCE_OUTCOME_IMPOSSIBLE,
    REBALANCE_OUTCOME_PLANNED,
)

Json = dict[str, Any]

MOST = 4
"""Moves that are tried exhaustively."""

KEYS = st.sampled_from(
    [
        ["zone"],
        ["zone", "kubernetes.io/hostname"],
        ["kubernetes.io/hostname"],
        ["zone", "rack"],
    ]
)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, list[Json]]:
    """Up to four nodes in up to three zones, and up to five pods of two apps."""
    names = [f"n{i}" for i in range(draw(st.integers(2, 4)))]
    nodes = {}
    for name in names:
        labels = {"zone": draw(st.sampled_from(["a", "a", "b", "c"]))}
        rack = draw(st.sampled_from(["r1", "r2", None]))
        nodes[name] = labels | ({"rack": rack} if rack else {})
    item: Json = {
        "nodes": nodes,
        "keys": draw(KEYS),
        "maxSkew": draw(st.integers(1, 2)),
        "owner": "ReplicaSet",
        "cordoned": [draw(st.sampled_from(names))] if draw(st.integers(0, 4)) == 0 else [],
        "constraint": draw(
            st.sampled_from(
                [{}, {}, {"minDomains": 2}, {"minDomains": 3}, {"matchLabelKeys": ["v"]}]
            )
        ),
    }
    item["pods"] = [
        {
            "name": f"p{number}",
            "node": draw(st.sampled_from(names)),
            "labels": {"v": draw(st.sampled_from(["1", "1", "2"]))},
            "free": draw(st.integers(0, 5)) == 0,
            "cost": draw(st.sampled_from(["0", "1"])),
        }
        for number in range(draw(st.integers(1, 5)))
    ]
    cluster = cluster_of(item)
    for pod in cluster["pods"]:
        if draw(st.integers(0, 5)) == 0:
            del pod["metadata"]["ownerReferences"]
    return cluster


@given(clusters())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_plan_is_minimal_and_constraints_hold_after_it(cluster):
    with world() as made:
        made.apply(*cluster["nodes"], *cluster["pods"])
        planner = RebalancePlanner(made.store, made.engine)
        plan = planner.plan(PlanRebalanceRequest(), made.ask(), Problems())
    assert (plan.violated_constraint_count > 0) == bool(above(cluster))
    least = fewest_moves(cluster, MOST)
    planned = all(group.outcome == REBALANCE_OUTCOME_PLANNED for group in plan.groups)
    after = followed(cluster, plan)
    if planned:
        assert above(after) == []
        assert plan.remaining_constraint_count == 0
        assert least is None or len(plan.evictions) >= least
        if plan.optimality == OPTIMALITY_PROVEN and len(plan.evictions) <= MOST:
            assert len(plan.evictions) == least
    elif any(group.outcome == REBALANCE_OUTCOME_IMPOSSIBLE for group in plan.groups):
        assert least is None
        assert plan.remaining_constraint_count > 0
        assert all(
            group.reason for group in plan.groups if group.outcome != REBALANCE_OUTCOME_PLANNED
        )


def followed(cluster: dict[str, list[Json]], plan: Any) -> dict[str, list[Json]]:
    """The cluster after the plan; each replacement may go where it is planned to, at that time."""
    pods = {pod["metadata"]["name"]: pod for pod in cluster["pods"]}
    for number, group in enumerate(plan.groups):
        steps = [each for each in plan.evictions if each.group_index == number]
        if group.at_once:
            for each in steps:
                cluster = moved(cluster, each.pod.name, None)
        for each in steps:
            before = moved(cluster, each.pod.name, None)
            assert may_go(before, pods[each.pod.name], each.target_node)
            there = {
                **pods[each.pod.name],
                "spec": {**pods[each.pod.name]["spec"], "nodeName": each.target_node},
            }
            cluster = {**before, "pods": [*before["pods"], there]}
    return cluster
