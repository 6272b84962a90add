"""A short campaign that is the same each time, and what longer ones have found."""

from __future__ import annotations

import grpc
import pytest

from bench.campaigns.fuzz import Fuzzer
from tests.servers import Peer, served, two_zones
from tests.waiting import PATIENCE
from topospread_proto.v1 import planner_service_pb2, planner_service_pb2_grpc

MIB = 1 << 20


def test_a_short_campaign_finds_nothing():
    with served(http="127.0.0.1:0", extender="filter") as server:
        found = Fuzzer(server, seed=1).run(1000)
    assert found.faults == []
    assert found.sent == 1000
    # It is no campaign against a closed door.
    assert found.codes["OK"] > 50
    assert found.codes["INVALID_ARGUMENT"] > 50
    assert found.codes["HTTP 200"] > 5
    assert found.grown < 200 * MIB


# ------------------------------ what was found


@pytest.fixture(scope="module")
def planner():
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        yield planner_service_pb2_grpc.PlannerServiceStub(peer.channel)


@pytest.mark.parametrize("replicas", [10_000_000, 2**31 - 1])
def test_more_replicas_than_can_be_simulated_are_refused_before_they_are_named(planner, replicas):
    request = planner_service_pb2.SimulateRequest()
    request.pods.add(replicas=replicas).pod.object.metadata.name = "web"
    with pytest.raises(grpc.RpcError) as refused:
        planner.Simulate(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "pods: at most" in str(refused.value.details())


def test_more_nodes_than_can_be_simulated_are_refused_before_they_are_named(planner):
    request = planner_service_pb2.SimulateRequest()
    request.pods.add().pod.object.metadata.name = "web"
    group = request.scenario.changes.add_node_groups.add(node_count=2**31 - 1)
    group.template.metadata.name = "node"
    with pytest.raises(grpc.RpcError) as refused:
        planner.Simulate(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(-(2**63), 64), (0, -1), (-1, 0), (2**63 - 1, 0), (253_402_300_800, 0)],
)
def test_a_time_that_cannot_be_is_an_invalid_argument(planner, seconds, nanos):
    request = planner_service_pb2.RankDeletionsRequest()
    request.evaluation_time.seconds, request.evaluation_time.nanos = seconds, nanos
    with pytest.raises(grpc.RpcError) as refused:
        planner.RankDeletions(request, timeout=PATIENCE)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "evaluationTime" in str(refused.value.trailing_metadata())
