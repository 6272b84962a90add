"""RankDeletions and PlanRebalance through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, pod, spread
from tests.servers import ZONE
from topospread_client import (
    Consistency,
    DomainCount,
    EvictionFilters,
    EvictionLimits,
    InvalidRequest,
    NotFound,
    Optimality,
    RankConstraint,
    RankStrategy,
    RebalanceOutcome,
    StuckPods,
)


@pytest.fixture
def zones(client):
    """A client of a cluster with three pods in zone a, none in b."""
    askew = [
        pod(f"web-{i}", nodeName=node, topologySpreadConstraints=[spread(maxSkew=1)])
        for i, node in enumerate(["a1", "a1", "a2"])
    ]
    nodes = [each for each in TWO_ZONES if each["kind"] == "Node"]
    written = client.apply_objects([*nodes, *askew])
    client.fresh = Consistency(at_least_as_fresh=written.revision)
    return client


def test_pods_are_ranked(zones):
    ranked = zones.rank_deletions({"app": "web"}, delete_count=2, consistency=zones.fresh)

    assert [each.pod.name for each in ranked.pods] == ["web-0", "web-1"]
    assert (ranked.strategy, ranked.ranked_pod_count) == (RankStrategy.EVEN, 3)
    assert ranked.pods[0].domains == ("a",)
    assert ranked.pods[0].skews == (2,)
    (constraint,) = ranked.constraints
    assert constraint.constraint.topology_key == ZONE
    assert constraint.domain_counts == (DomainCount("a", 3), DomainCount("b", 0))
    assert {each.strategy for each in ranked.outcomes} == set(RankStrategy)
    assert ranked.revision
    assert ranked.trace_id


def test_a_constraint_is_named_with_its_values(zones):
    ranked = zones.rank_deletions(
        {"app": "web"},
        constraints=[RankConstraint(ZONE, ["b"], 5)],
        strategy=RankStrategy.PROPORTIONAL,
        consistency=zones.fresh,
    )
    assert ranked.constraints[0].limited_values == ("b",)
    assert ranked.constraints[0].constraint.max_skew == 5
    assert {each.domains for each in ranked.pods} == {("",)}


def test_evictions_are_planned(zones):
    plan = zones.plan_rebalance(
        filters=EvictionFilters(evict_bare_pods=True), consistency=zones.fresh
    )

    (step,) = plan.evictions
    assert (step.node, step.target_node, step.fitting_node_count) == ("a1", "b1", 1)
    assert plan.optimality is Optimality.PROVEN
    assert (plan.violated_constraint_count, plan.remaining_constraint_count) == (1, 0)
    (group,) = plan.groups
    assert group.outcome is RebalanceOutcome.PLANNED
    assert (group.eviction_count, group.at_once) == (1, False)
    assert plan.trace_id


def test_bare_pods_are_evicted_only_when_allowed(zones):
    plan = zones.plan_rebalance(consistency=zones.fresh)

    assert (plan.evictions, plan.remaining_constraint_count) == ((), 1)
    assert plan.stuck == (StuckPods("without a controller", 3),)
    assert plan.groups[0].outcome is RebalanceOutcome.IMPOSSIBLE


def test_arguments_of_wrong_types_are_refused(zones):
    with pytest.raises(InvalidRequest, match="maxEvictionsPerNode"):
        zones.plan_rebalance(eviction_limits=EvictionLimits(max_evictions_per_node=-1))
    with pytest.raises(InvalidRequest, match="searchTimeout"):
        zones.plan_rebalance(search_timeout=3600)
    with pytest.raises(NotFound):
        zones.plan_rebalance(cluster="missing")
