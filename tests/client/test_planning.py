"""Explanations, plans, and places that are held, through either client, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.client.manifests import TWO_ZONES, ZONE, incoming, pod, spread
from topospread_client import InvalidRequest, NotFound, best, pod_from_manifest, trace_id
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import deletion_order_pb2 as deletion
from topospread_proto.v1 import scenario_pb2 as scenario


@pytest.fixture
def zones(client):
    """A client of a cluster with three pods in zone a, none in b."""
    askew = [
        pod(f"web-{i}", nodeName=node, topologySpreadConstraints=[spread(maxSkew=1)])
        for i, node in enumerate(["a1", "a1", "a2"])
    ]
    nodes = [each for each in TWO_ZONES if each["kind"] == "Node"]
    client.fresh = client.apply_objects([*nodes, *askew]).meta.revision
    return client


def test_explanation_has_domains_and_the_evaluation(zones):
    asked = incoming(nodeSelector={"disk": "fast"})
    answer = zones.explain_pod(asked, consistency=zones.fresh, top_k=1)
    (zone,) = answer.explanation.constraints
    assert zone.constraint.topology_key == ZONE
    assert answer.explanation.message.startswith("0/3 nodes are available")
    assert best(answer.evaluation) is None
    assert answer.evaluation.message == answer.explanation.message
    assert trace_id(answer)


def test_pods_are_ranked(zones):
    ranked = zones.rank_deletions(
        {"app": "web"},
        constraints=[ZONE, {"topology_key": "kubernetes.io/hostname", "max_skew": 5}],
        strategy="replica_set",
        delete_count=2,
        consistency=zones.fresh,
    )
    assert (ranked.strategy, ranked.ranked_pod_count) == (deletion.RANK_STRATEGY_REPLICA_SET, 3)
    assert len(ranked.pods) == 2
    assert [each.constraint.max_skew for each in ranked.constraints] == [1, 5]


def test_evictions_are_planned(zones):
    plan = zones.plan_rebalance(
        filters={"evict_bare_pods": True},
        eviction_limits={"max_evictions": 5},
        search_timeout=2.5,
        consistency=zones.fresh,
    )
    (step,) = plan.evictions
    assert (step.node, step.target_node) == ("a1", "b1")
    assert plan.optimality == common.OPTIMALITY_PROVEN
    kept = zones.plan_rebalance("app=db", consistency=zones.fresh)
    assert not kept.evictions


def test_scenarios_are_mappings_or_messages(zones):
    changes = {
        "add_node_groups": [
            {
                "template": {"kind": "Node", "metadata": {"name": "n", "labels": {"disk": "fast"}}},
                "node_count": 2,
                "variants": [{ZONE: "b"}, {ZONE: "c"}],
            }
        ],
        "drain_nodes": ["a1", {"node": "a2", "mode": "tainted"}],
        "delete_pods": ["default/web-2"],
        "add_pods": [(pod("more"), "b1")],
        "constraint_changes": [{"match": ZONE, "set": {"max_skew": 2}}],
    }
    asked = {"seed": "s", "fit": "node", "changes": changes}
    first = zones.simulate((incoming(), 3), scenario=asked)
    (joined,) = first.joined
    assert (joined.node_group, joined.node_count, first.placed_pod_count) == ("n", 2, 3)
    message = scenario.Scenario(seed="s", fit=common.FIT_NODE)
    message.changes.drain_nodes.add(node="a1")
    placed = zones.simulate(
        [
            scenario.PodsToPlace(
                pod=common.PodSource(object=pod_from_manifest(incoming())), replicas=1
            ),
            {"pod": pod("x"), "replicas": 2},
            pod("y"),
        ],
        scenario=message,
    )
    assert (placed.placed_pod_count, placed.evicted_pod_count) == (4, 2)
    with pytest.raises(InvalidRequest, match="no such node"):
        zones.simulate(incoming(), scenario={"changes": {"drain_nodes": ["missing"]}})
    with pytest.raises(NotFound):
        zones.simulate("default/missing")


@pytest.fixture
def two_zones(client):
    """A client of a cluster in which only b1 passes for the incoming pod."""
    client.apply_objects(TWO_ZONES)
    return client


def test_node_is_chosen_and_reserved(two_zones):
    placed = two_zones.place_pod(incoming(), reservation_ttl=3600)

    assert (placed.node, placed.verdict.code, placed.already_bound) == (
        "b1",
        common.VERDICT_CODE_SUCCESS,
        False,
    )
    left = placed.expire_time.ToDatetime(UTC) - datetime.now(UTC)
    assert timedelta(minutes=50) < left < timedelta(minutes=70)
    assert placed.meta.revision
    assert trace_id(placed)
    (kept,) = two_zones.list_reservations()
    assert (kept.pod.namespace, kept.pod.name, kept.node) == ("default", "incoming", "b1")
    assert kept.labels == {"app": "web"}
    assert kept.expire_time == placed.expire_time
    assert two_zones.get_cluster().cluster.reservation_count == 1
    assert two_zones.get_reservation("incoming").reservation == kept


def test_a_node_is_reserved_and_released(two_zones):
    assert two_zones.reserve_node(incoming(), "b1").verdict.code == common.VERDICT_CODE_SUCCESS
    refused = two_zones.reserve_node(
        pod("x", topologySpreadConstraints=[spread(maxSkew=1)]), "missing"
    )
    assert refused.verdict.code == common.VERDICT_CODE_ERROR
    assert not refused.HasField("expire_time")

    assert two_zones.release_reservation("incoming").released
    assert not two_zones.release_reservation("incoming").released
    with pytest.raises(NotFound):
        two_zones.get_reservation("incoming")
    assert list(two_zones.list_reservations(namespace="default")) == []
