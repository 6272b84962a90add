"""Every case; each plan is followed step by step."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.conformance.objects import args_of, object_of
from tests.servers import at_least
from tests.service.rebalancing.cases import Case, cases
from tests.service.rebalancing.judging import above, may_go, moved
from tests.waiting import PATIENCE
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
from topospread_proto.v1 import common_pb2, rebalance_pb2
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest

if TYPE_CHECKING:
    from tests.servers import Peer


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_plan_is_the_expected_one(case: Case, peer: Peer):
    item, cluster = case.item, f"test-{secrets.token_hex(6)}"
    revision = peer.apply(*map(object_of, case.objects), cluster=cluster)
    plan = peer.planner.PlanRebalance(
        PlanRebalanceRequest(
            cluster=cluster,
            consistency=at_least(revision),
            label_selector=_labels(item.get("select")),
            include_soft=item.get("soft", False),
            filters=rebalance_pb2.EvictionFilters(
                protect_selector=_labels(item.get("protect")), **item.get("filters", {})
            ),
            eviction_limits=rebalance_pb2.EvictionLimits(**item.get("limits", {})),
            settings=common_pb2.Settings(args=args_of(case.args)) if case.args else None,
        ),
        timeout=PATIENCE,
    )
    outcomes = [rebalance_pb2.RebalanceOutcome.Name(group.outcome) for group in plan.groups]
    found = Found(
        [(each.pod.name, each.node, each.target_node) for each in plan.evictions],
        [name.removeprefix("REBALANCE_OUTCOME_").lower().replace("_", " ") for name in outcomes],
        plan.groups[0].reason if plan.groups else "",
        plan.groups[0].eviction_count if plan.groups else 0,
        plan.violated_constraint_count,
        plan.remaining_constraint_count,
        {each.reason: each.pod_count for each in plan.stuck},
        list(plan.not_modelled),
        plan.groups[0].pending_pod_count if plan.groups else 0,
    )
    check(case, found)
    assert item.get("note", "") in " ".join(plan.notes)
    proven = item.get("proven", True)
    assert (plan.optimality == common_pb2.OPTIMALITY_PROVEN) == proven
    for group in plan.groups:
        if group.outcome == rebalance_pb2.REBALANCE_OUTCOME_PLANNED:
            constraints = group.constraints
            assert all(each.skew_after <= each.constraint.max_skew for each in constraints)


def _labels(labels: dict[str, str] | None) -> LabelSelector | None:
    return LabelSelector(match_labels=labels) if labels else None


@dataclass(frozen=True)
class Found:
    """What of a plan is looked at.

    Attributes:
        evictions: (pod, node, target).
        outcomes: of the groups.
        reason: of the first group.
        needs: evictions of the first group.
        pending: pods without a node that the first group counts.
    """

    evictions: list[tuple[str, str, str]]
    outcomes: list[str]
    reason: str
    needs: int
    violated: int
    left: int
    stuck: dict[str, int]
    not_modelled: list[str]
    pending: int


def check(case: Case, found: Found) -> None:
    """Compare a plan with the case, and follow it."""
    item = case.item
    evictions = [name for name, _, _ in found.evictions]
    if "outcome" in item:
        assert (found.outcomes, evictions) == ([item["outcome"]], [])
        assert item.get("reason", "") in found.reason
        assert found.left == found.violated > 0
    else:
        assert len(evictions) == item["evictions"]
        assert found.outcomes == (["planned"] if evictions else [])
        assert found.left == 0
        follow(case, found)
    if "needs" in item:
        assert found.needs == item["needs"]
    if "evicts" in item:
        assert sorted(evictions) == sorted(item["evicts"])
    if "from" in item:
        assert sorted(node for _, node, _ in found.evictions) == item["from"]
    if "to" in item:
        assert sorted(target for _, _, target in found.evictions) == item["to"]
    if "stuck" in item:
        assert found.stuck == item["stuck"]
    if (named := item.get("notModelled", [])) == ["*"]:
        assert found.not_modelled
    else:
        assert found.not_modelled == named
    assert found.pending == item.get("pending", 0)


def follow(case: Case, found: Found) -> None:
    """Each replacement may go to its node then, and in the end the model finds all satisfied."""
    cluster = case.cluster
    pods = {pod["metadata"]["name"]: pod for pod in cluster["pods"]}
    for name, node, target in found.evictions:
        assert pods[name]["spec"]["nodeName"] == node
        cluster = moved(cluster, name, None)
        assert may_go(cluster, pods[name], target, case.args)
        pods[name] = {**pods[name], "spec": {**pods[name]["spec"], "nodeName": target}}
        cluster = {**cluster, "pods": [*cluster["pods"], pods[name]]}
    assert above(cluster, case.args) == []
