"""Errors name everything that is wrong with a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.servers import node, violations
from tests.waiting import PATIENCE
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement
from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs, Settings
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest
from topospread_proto.v1.rebalance_pb2 import EvictionFilters, EvictionLimits

if TYPE_CHECKING:
    from tests.servers import Peer

ODD = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near")])
OPERATOR = "matchExpressions[0].operator"


def refused(peer: Peer, **fields: Any) -> list[tuple[str, str]]:
    """(field, description) of each violation."""
    with pytest.raises(grpc.RpcError) as failed:
        peer.planner.PlanRebalance(PlanRebalanceRequest(**fields), timeout=PATIENCE)
    return [(each.field, each.description) for each in violations(failed.value)]


def test_all_violations_are_reported_at_once(peer: Peer):
    limits = EvictionLimits(
        max_evictions=-1, max_evictions_per_node=0, max_evictions_per_namespace=-2
    )
    filters = EvictionFilters(protect_selector=ODD)
    found = refused(
        peer,
        label_selector=ODD,
        filters=filters,
        eviction_limits=limits,
        search_timeout=Duration(seconds=61),
        settings=Settings(args=PodTopologySpreadArgs(defaulting_type="None")),
        consistency={"minimize_latency": False},
    )
    odd = "not a valid selector operator"
    assert [field for field, _ in found] == [
        "consistency.minimizeLatency",
        "settings.args.defaultingType",
        f"labelSelector.{OPERATOR}",
        f"filters.protectSelector.{OPERATOR}",
        "searchTimeout",
        "evictionLimits.maxEvictions",
        "evictionLimits.maxEvictionsPerNamespace",
    ]
    assert found[2:] == [
        (f"labelSelector.{OPERATOR}", odd),
        (f"filters.protectSelector.{OPERATOR}", odd),
        ("searchTimeout", "must be above 0 and at most 60s"),
        ("evictionLimits.maxEvictions", "must not be negative"),
        ("evictionLimits.maxEvictionsPerNamespace", "must not be negative"),
    ]


def test_settings_that_are_not_there(peer: Peer):
    peer.apply(node("n", "a"))
    assert [field for field, _ in refused(peer, settings=Settings(profile="nobody"))] == [
        "settings.profile"
    ]


def test_the_message_names_the_field_in_the_request(peer: Peer):
    settings = Settings(args=PodTopologySpreadArgs(defaulting_type="None"))
    with pytest.raises(grpc.RpcError) as failed:
        peer.planner.PlanRebalance(PlanRebalanceRequest(settings=settings), timeout=PATIENCE)
    assert str(failed.value.details()).startswith("settings.args.defaultingType: ")
