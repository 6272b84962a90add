"""A cluster with more constraints than are looked at: refused before any is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.errors.error_status import error_status
from tests.servers import Peer, served
from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, PATIENCE, World, node
from topospread.errors import TooLarge
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.inspecting.inspector import Inspector
from topospread.service.inspecting.judging import count
from topospread.store.model import Kind
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.service.inspecting.cluster_inspector import Inspection

MOST = 4

CALLS: dict[str, Callable[[Peer], Any]] = {
    "ListConstraints": lambda peer: peer.inspector.ListConstraints(
        pb.ListConstraintsRequest(consistency=common_pb2.Consistency(fully_consistent=True)),
        timeout=PATIENCE,
    ),
    "GetConstraint": lambda peer: peer.inspector.GetConstraint(
        pb.GetConstraintRequest(constraint_id="some"), timeout=PATIENCE
    ),
    "WatchConstraints": lambda peer: next(
        peer.inspector.WatchConstraints(pb.WatchConstraintsRequest(), timeout=PATIENCE)
    ),
}


def owned(count: int) -> list[dict[str, Any]]:
    """A node, and so many workloads in two namespaces, each with one constraint."""
    pods = [
        pod_of("p", node="n1", owner=f"StatefulSet/w{number}", constraints=[{"key": "zone"}])
        for number in range(count)
    ]
    for number, each in enumerate(pods):
        each["metadata"] |= {"name": f"p{number}", "namespace": f"ns-{number % 2}"}
    return [node("n1", "a"), *pods]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_too_many_are_refused_and_not_shown_in_part(call: Callable[[Peer], Any]) -> None:
    with served(max_cluster_constraints=MOST) as server, Peer(server.address) as peer:
        objects = [object_of(each) for each in owned(MOST + 1)]
        peer.state.ApplyObjects(state.ApplyObjectsRequest(objects=objects), timeout=PATIENCE)
        with pytest.raises(grpc.RpcError) as refused:
            call(peer)
        found = error_status(refused.value)
        assert found.status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        (limit,) = found.details["QuotaFailure"].violations
        assert (limit.subject, limit.quota_value) == ("--max-cluster-constraints", MOST)
        assert "raise --max-cluster-constraints" in found.status.message


def test_none_is_counted_where_there_are_too_many(
    empty_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def counting(key: Any, snapshot: Any) -> Any:
        counted.append(key)
        return count(key, snapshot)

    monkeypatch.setattr("topospread.service.inspecting.cluster_inspector.count", counting)
    looks_at = Inspector(empty_world.engine, MOST)

    def inspected() -> Inspection:
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(empty_world.revision))
        return looks_at.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))

    empty_world.apply(*owned(MOST + 1))
    with pytest.raises(TooLarge):
        inspected()
    assert not counted
    empty_world.delete(Kind.POD, "p0", "ns-0")
    assert len(inspected().statuses) == len(counted) == MOST
