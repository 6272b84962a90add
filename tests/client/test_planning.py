"""RankForDeletion and PlanRebalance through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, pod, spread
from tests.servers import ZONE
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.ranking import KeepSpread, Strategy
from topospread_client.rebalancing import Budgets, Filters, Optimality, Outcome
from topospread_client.requests import Consistency


@pytest.fixture
def zones(client):
    """A client of a cluster with three pods in zone a, none in b."""
    askew = [
        pod(f"web-{i}", nodeName=node, topologySpreadConstraints=[spread(maxSkew=1)])
        for i, node in enumerate(["a1", "a1", "a2"])
    ]
    nodes = [each for each in TWO_ZONES if each["kind"] == "Node"]
    written = client.apply([*nodes, *askew])
    client.fresh = Consistency(at_least_as_fresh=written.revision)
    return client


def test_pods_are_ranked(zones):
    ranked = zones.rank_for_deletion({"app": "web"}, delete=2, consistency=zones.fresh)

    assert [each.name for each in ranked.pods] == ["web-0", "web-1"]
    assert (ranked.strategy, ranked.ranked) == (Strategy.EVEN, 3)
    assert ranked.pods[0].domains == ("a",)
    assert ranked.pods[0].skews == (2,)
    (constraint,) = ranked.constraints
    assert (constraint.topology_key, constraint.pods) == (ZONE, {"a": 3, "b": 0})
    assert {each.strategy for each in ranked.outcomes} == set(Strategy)
    assert ranked.revision
    assert ranked.trace_id


def test_a_constraint_is_named_with_its_values(zones):
    ranked = zones.rank_for_deletion(
        {"app": "web"},
        constraints=[KeepSpread(ZONE, ["b"], 5)],
        strategy="proposal",
        consistency=zones.fresh,
    )
    assert ranked.constraints[0].limited_values == ("b",)
    assert ranked.constraints[0].max_skew == 5
    assert {each.domains for each in ranked.pods} == {(None,)}


def test_evictions_are_planned(zones):
    plan = zones.plan_rebalance(filters=Filters(bare_pods=True), consistency=zones.fresh)

    (step,) = plan.evictions
    assert (step.node, step.target, step.fitting_nodes) == ("a1", "b1", 1)
    assert (plan.optimal, plan.violated, plan.left) == (Optimality.PROVED, 1, 0)
    (group,) = plan.groups
    assert (group.outcome, group.evictions, group.at_once) == (Outcome.PLANNED, 1, False)
    assert plan.trace_id


def test_bare_pods_stay_unless_they_may_go(zones):
    plan = zones.plan_rebalance(consistency=zones.fresh)

    assert (plan.evictions, plan.left) == ((), 1)
    assert plan.stuck == {"without a controller": 3}
    assert plan.groups[0].outcome is Outcome.IMPOSSIBLE


def test_what_no_request_can_carry_is_refused(zones):
    with pytest.raises(InvalidRequest, match="per_node"):
        zones.plan_rebalance(budgets=Budgets(per_node=-1))
    with pytest.raises(InvalidRequest, match="searchTime"):
        zones.plan_rebalance(search_time=3600)
    with pytest.raises(NotFound):
        zones.plan_rebalance(cluster="nobodys")
