"""Errors name everything wrong with a request; a selector that matches nothing is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.servers import ZONE, violations
from tests.service.ranking.calls import kept
from tests.service.ranking.cases import pod
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement
from topospread_proto.v1.common_pb2 import DomainCount
from topospread_proto.v1.deletion_order_pb2 import RANK_STRATEGY_UNSPECIFIED

if TYPE_CHECKING:
    from tests.service.ranking.calls import Ranker

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {ZONE: "a"}}}
NODE_B = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {ZONE: "b"}}}
ODD = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near")])


def test_all_violations_are_reported_at_once(ranker: Ranker):
    nameless = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    with pytest.raises(grpc.RpcError) as refused:
        ranker.rank(
            ODD,
            [nameless, pod("a"), pod("a"), NODE, NODE],
            constraints=[kept(""), kept("a b"), kept(ZONE, max_skew=0)],
            delete_count=-1,
            strategy=9,
        )
    assert [violation.field for violation in violations(refused.value)] == [
        "labelSelector.matchExpressions[0].operator",
        "strategy",
        "constraints[0].topologyKey",
        "constraints[1].topologyKey",
        "constraints[2].maxSkew",
        "deleteCount",
        "pods[0].metadata.name",
        "pods[2].metadata.name",
        "nodes[1].metadata.name",
    ]


def test_the_same_constraint_twice_is_refused(ranker: Ranker):
    twice = [
        kept(ZONE, ["a", "b"]),
        kept(ZONE),
        kept(ZONE, ["b", "a"]),
        kept(ZONE, max_skew=2),
        kept(ZONE),
    ]
    with pytest.raises(grpc.RpcError) as refused:
        ranker.rank({}, constraints=twice)
    assert [(each.field, each.reason) for each in violations(refused.value)] == [
        ("constraints[2]", "FIELD_VALUE_DUPLICATE"),
        ("constraints[4]", "FIELD_VALUE_DUPLICATE"),
    ]


def test_pods_must_be_named_in_some_way(ranker: Ranker):
    with pytest.raises(grpc.RpcError, match="select pods of the state, or give pods"):
        ranker.rank()


@pytest.mark.parametrize("time", [Timestamp(seconds=-1), Timestamp(seconds=2**62)], ids=str)
def test_a_time_that_is_none_is_refused(ranker: Ranker, time: Timestamp):
    with pytest.raises(grpc.RpcError) as refused:
        ranker.rank({}, evaluation_time=time)
    assert [(each.field, each.description) for each in violations(refused.value)] == [
        ("evaluationTime", "must be between the years 1970 and 9999")
    ]


def test_an_unknown_cluster_is_not_found(ranker: Ranker):
    for asked in ({"selector": {"app": "web"}}, {"objects": [pod("a")]}):
        with pytest.raises(grpc.RpcError) as refused:
            ranker.rank(**asked)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_selector_without_matches_gets_a_warning(ranker: Ranker):
    ranker.apply(NODE, pod("a", "n1"))
    ranked = ranker.rank({"app": "db"}, delete_count=1_000_000)
    assert (len(ranked.pods), ranked.ranked_pod_count, ranked.ending_pod_count) == (0, 0, 0)
    assert ranked.notes == ["no pod of namespace 'default' matches the selector"]
    assert ranked.keeps_longest == RANK_STRATEGY_UNSPECIFIED


def test_given_pods_that_have_ended_are_no_pods_of_a_namespace(ranker: Ranker):
    ranked = ranker.rank({}, [NODE, pod("a", "n1", terminating=True)])
    assert ranked.notes == ["none of the pods given is running and matches the selector"]


def test_more_deletions_than_pods_return_all_pods(ranker: Ranker):
    ranker.apply(NODE, pod("a", "n1"), pod("b", "n1", terminating=True))
    ranked = ranker.rank({}, delete_count=1_000_000, constraints=[kept(ZONE)])
    assert [each.pod.name for each in ranked.pods] == ["a"]
    assert (ranked.ranked_pod_count, ranked.ending_pod_count) == (1, 1)
    assert list(ranked.constraints[0].domain_counts) == [DomainCount(value="a", pod_count=1)]


def test_zero_deletions_leave_the_spread_unchanged(ranker: Ranker):
    ranker.apply(NODE, pod("a", "n1"), pod("b", "n1"), NODE_B)
    ranked = ranker.rank({}, delete_count=0, constraints=[kept(ZONE)])
    assert (len(ranked.pods), ranked.ranked_pod_count) == (0, 2)
    assert {each.last_skew for each in ranked.outcomes} == {ranked.constraints[0].skew} == {2}
    assert {(each.kept_count, each.within_count) for each in ranked.outcomes} == {(0, 0)}


def test_missing_fields_of_a_constraint_come_from_the_pods(ranker: Ranker):
    own = {
        "maxSkew": 3,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 2,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spread = pod("a", "n1", created=5)
    spread["spec"]["topologySpreadConstraints"] = [own]
    ranker.apply(NODE, spread, pod("b", "n1", created=1))
    ranked = ranker.rank({"app": "web"})
    (understood,) = ranked.constraints
    constraint = understood.constraint
    assert (constraint.max_skew, constraint.min_domains, understood.skew) == (3, 2, 2)
    assert (constraint.namespace, constraint.selector_text) == ("default", "app=web")
    assert constraint.when_unsatisfiable == "DoNotSchedule"
    assert ranked.notes == [
        "the pods have different constraints; those of the newest, default/a, are kept",
    ]
    named = ranker.rank({"app": "web"}, constraints=[kept(ZONE)]).constraints[0]
    assert named.constraint == constraint
    chosen = ranker.rank({"app": "web"}, constraints=[kept(ZONE, ["b"], 1)])
    assert chosen.constraints[0].constraint.id != constraint.id
    assert chosen.constraints[0].constraint.max_skew == 1
    assert list(chosen.constraints[0].limited_values) == ["b"]
    assert list(chosen.constraints[0].domain_counts) == []
    assert chosen.notes == [f"no pod is in a domain of {ZONE}"]


def test_a_constraint_that_no_pod_has_counts_the_pods_that_are_ranked(ranker: Ranker):
    ranker.apply(NODE, pod("a", "n1"))
    (understood,) = ranker.rank({"app": "web"}, constraints=[kept(ZONE)]).constraints
    constraint = understood.constraint
    assert (constraint.topology_key, constraint.selector_text) == (ZONE, "app=web")
    assert (constraint.max_skew, constraint.min_domains) == (1, 1)
    assert constraint.node_affinity_policy == constraint.node_taints_policy == "Ignore"


def test_pods_without_constraints_get_a_warning(ranker: Ranker):
    ranker.apply(NODE, pod("a", "n1"))
    ranked = ranker.rank({})
    assert ranked.notes == ["no constraints: pods that stack on a node go first, and no more"]
