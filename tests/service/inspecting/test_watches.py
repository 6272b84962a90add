"""WatchConstraints over gRPC: what there is, then what changes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.service.inspecting.cases import pod_of
from tests.service.world import node
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Peer

PATIENCE = 60.0


def pod(name: str, where: str, owner: str = "web") -> dict[str, Any]:
    selector = {"matchLabels": {"app": owner}}
    constraints = [{"key": "zone", "labelSelector": selector}]
    return pod_of(
        name,
        node=where,
        owner=f"StatefulSet/{owner}",
        labels={"app": owner},
        constraints=constraints,
    )


class Watched:
    """A cluster of two zones with one pod of "web" in a, and a watch of its constraints."""

    def __init__(self, peer: Peer, cluster: str) -> None:
        self.peer, self.cluster = peer, cluster
        self.apply(node("n-a", "a"), node("n-b", "b"), pod("web-0", "n-a"))

    def apply(self, *objects: dict[str, Any]) -> None:
        request = state.ApplyObjectsRequest(
            cluster=self.cluster, objects=[object_of(each) for each in objects]
        )
        self.peer.state.ApplyObjects(request, timeout=PATIENCE)

    def delete(self, name: str) -> None:
        reference = state.ObjectReference(kind=common_pb2.KIND_POD, name=name)
        request = state.DeleteObjectsRequest(cluster=self.cluster, objects=[reference])
        self.peer.state.DeleteObjects(request, timeout=PATIENCE)

    def watch(self, **more: Any) -> Iterator[pb.WatchConstraintsResponse]:
        found: Iterator[pb.WatchConstraintsResponse] = self.peer.inspector.WatchConstraints(
            pb.WatchConstraintsRequest(cluster=self.cluster, **more), timeout=PATIENCE
        )
        return found


@pytest.fixture
def watched(peer: Peer, request: pytest.FixtureRequest) -> Watched:
    return Watched(peer, request.node.name.replace("_", "-")[:60].strip("-"))


def skews(message: pb.WatchConstraintsResponse) -> dict[str, int]:
    return {row.owner.name: row.skew for row in message.constraints}


def test_first_all_then_changes(watched: Watched) -> None:
    watch = watched.watch()
    first = next(watch)
    assert (first.complete, skews(first)) == (True, {"web": 1})
    watched.apply(pod("web-1", "n-a"))
    second = next(watch)
    assert (second.complete, skews(second)) == (False, {"web": 2})
    assert second.constraints[0].state == pb.SPREAD_STATE_VIOLATED


def test_only_what_differs_is_sent(watched: Watched) -> None:
    watched.apply(pod("api-0", "n-a", "api"))
    watch = watched.watch()
    assert skews(next(watch)) == {"web": 1, "api": 1}
    watched.apply(pod("api-1", "n-a", "api"))
    assert skews(next(watch)) == {"api": 2}


def test_a_constraint_that_is_gone_is_named(watched: Watched) -> None:
    watch = watched.watch()
    row = next(watch).constraints[0]
    watched.delete("web-0")
    gone = next(watch)
    assert list(gone.deleted_constraint_ids) == [row.constraint_id]
    assert not gone.constraints


def test_one_that_passes_the_filter_no_more_is_gone_to_the_caller(watched: Watched) -> None:
    only = pb.ConstraintFilter(states=[pb.SPREAD_STATE_SATISFIED])
    watch = watched.watch(filter=only)
    row = next(watch).constraints[0]
    watched.apply(pod("web-1", "n-a"))
    assert list(next(watch).deleted_constraint_ids) == [row.constraint_id]
    watched.apply(pod("web-2", "n-b"))
    assert [each.constraint_id for each in next(watch).constraints] == [row.constraint_id]


def test_one_that_never_passed_the_filter_is_not_named(watched: Watched) -> None:
    watched.apply(pod("api-0", "n-a", "api"), pod("api-1", "n-a", "api"))
    watch = watched.watch(filter=pb.ConstraintFilter(states=[pb.SPREAD_STATE_SATISFIED]))
    assert skews(next(watch)) == {"web": 1}
    watched.apply(pod("api-2", "n-a", "api"))
    watched.apply(pod("web-1", "n-b"))
    second = next(watch)
    assert (skews(second), list(second.deleted_constraint_ids)) == ({"web": 0}, [])


def test_with_settings_of_its_own_changes_are_sent_as_well(watched: Watched) -> None:
    settings = common_pb2.Settings(feature_gates={"MinDomainsInPodTopologySpread": False})
    watch = watched.watch(settings=settings)
    assert skews(next(watch)) == {"web": 1}
    watched.apply(pod("web-1", "n-a"))
    second = next(watch)
    assert (second.complete, skews(second)) == (False, {"web": 2})


def test_a_watch_of_a_cluster_that_is_deleted_ends(watched: Watched) -> None:
    watch = watched.watch()
    next(watch)
    watched.peer.state.DeleteCluster(
        state.DeleteClusterRequest(cluster=watched.cluster), timeout=PATIENCE
    )
    with pytest.raises(grpc.RpcError) as ended:
        deque(watch)
    call: Any = ended.value
    assert call.code() is grpc.StatusCode.NOT_FOUND, call.details()
