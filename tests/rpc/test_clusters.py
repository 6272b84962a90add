"""Clusters and server info: GetCluster, DeleteCluster, GetServerInfo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.access.callers import AccessFile
from tests.errors.error_status import error_status
from tests.servers import Peer, node, served, two_zones
from tests.waiting import PATIENCE
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import (
    common_pb2,
    placement_service_pb2,
    placement_service_pb2_grpc,
    server_service_pb2_grpc,
)
from topospread_proto.v1 import server_service_pb2 as server_pb

if TYPE_CHECKING:
    from pathlib import Path

CODE = grpc.StatusCode


def names(peer: Peer) -> list[str]:
    answer = peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
    return [cluster.name for cluster in answer.clusters]


def get(peer: Peer, cluster: str = "default") -> pb.Cluster:
    request = pb.GetClusterRequest(cluster=cluster)
    found: pb.Cluster = peer.state.GetCluster(request, timeout=PATIENCE).cluster
    return found


def test_deletion_must_name_its_cluster(run):
    """An empty request of a script whose variable is unset dropped the default cluster."""
    peer = run().peer
    with pytest.raises(grpc.RpcError) as failed:
        peer.state.DeleteCluster(pb.DeleteClusterRequest(), timeout=PATIENCE)
    assert failed.value.code() is CODE.INVALID_ARGUMENT
    assert error_status(failed.value).paths[0] == "cluster"
    assert names(peer) == ["default"]


def test_cluster_is_deleted_by_its_name(run):
    peer = run().peer
    peer.apply(node("n", "a"), cluster="other")
    observed = [common_pb2.ResourceVersion(kind=common_pb2.KIND_NODE, resource_version="7")]
    peer.state.ApplyObjects(pb.ApplyObjectsRequest(observed=observed), timeout=PATIENCE)
    request = pb.DeleteClusterRequest(cluster="default")
    assert peer.state.DeleteCluster(request, timeout=PATIENCE).object_count == len(two_zones())
    assert names(peer) == ["other"]
    assert not_there(peer, "DeleteCluster", request)


def not_there(peer: Peer, method: str, request: Any) -> bool:
    """Whether a call is refused because there is no such cluster; it must not have made one."""
    before = names(peer)
    with pytest.raises(grpc.RpcError) as failed:
        getattr(peer.state, method)(request, timeout=PATIENCE)
    assert names(peer) == before
    # A delete of what does not exist writes nothing.
    assert failed.value.details() == f"cluster {request.cluster!r} is not known"
    return (
        failed.value.code() is CODE.NOT_FOUND
        and error_status(failed.value).reason == "CLUSTER_NOT_FOUND"
    )


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_missing_cluster_is_not_deleted(run, store, request):
    url = "memory:" if store == "memory" else request.getfixturevalue("redis_url")
    peer = run(store=url).peer
    pods = [pb.ObjectReference(kind=common_pb2.KIND_POD, name="p")]
    assert not_there(peer, "DeleteCluster", pb.DeleteClusterRequest(cluster="nowhere"))
    request = pb.DeleteObjectsRequest(cluster="nowhere", objects=pods)
    assert not_there(peer, "DeleteObjects", request)
    stub: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
    for held in ("", "17"):
        release = placement_service_pb2.ReleaseReservationRequest(
            cluster="nowhere", pod=common_pb2.PodReference(name="p"), reservation_id=held
        )
        with pytest.raises(grpc.RpcError) as failed:
            stub.ReleaseReservation(release, timeout=PATIENCE)
        assert error_status(failed.value).reason == "CLUSTER_NOT_FOUND"


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_empty_write_makes_no_cluster(run, store, request):
    url = "memory:" if store == "memory" else request.getfixturevalue("redis_url")
    running = run(store=url)
    for method, kind in (
        ("ApplyObjects", pb.ApplyObjectsRequest),
        ("DeleteObjects", pb.DeleteObjectsRequest),
    ):
        write = getattr(running.peer.state, method)
        assert not write(kind(cluster="nowhere"), timeout=PATIENCE).meta.revision
        assert names(running.peer) == ["default"]
        # Of one that is there it tells the revision.
        assert write(kind(), timeout=PATIENCE).meta.revision == running.revision
    # How far the sync has read is something.
    observed = [common_pb2.ResourceVersion(kind=common_pb2.KIND_NODE, resource_version="7")]
    deletion = pb.DeleteObjectsRequest(cluster="observed", observed=observed)
    assert running.peer.state.DeleteObjects(deletion, timeout=PATIENCE).meta.revision
    assert names(running.peer) == ["default", "observed"]


def test_followed_cluster_is_described(run):
    running = run()
    running.peer.await_revision(running.revision)
    found = get(running.peer)
    assert (found.name, found.loaded, found.revision) == ("default", True, running.revision)
    assert (found.node_count, found.pod_count, found.lag) == (3, 3, 0)
    answer = running.peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
    assert list(answer.clusters) == [found]


def test_missing_cluster_is_not_found(run):
    with pytest.raises(grpc.RpcError) as failed:
        get(run().peer, "nowhere")
    assert failed.value.code() is CODE.NOT_FOUND
    assert error_status(failed.value).reason == "CLUSTER_NOT_FOUND"


def info(peer: Peer, metadata: Any = ()) -> server_pb.GetServerInfoResponse:
    stub: Any = server_service_pb2_grpc.ServerServiceStub(peer.channel)
    answer: server_pb.GetServerInfoResponse = stub.GetServerInfo(
        server_pb.GetServerInfoRequest(), timeout=PATIENCE, metadata=metadata
    )
    return answer


def test_server_info_reports_the_limits_that_are_enforced():
    """Callers that guess them are refused by a server whose limits are lower."""
    with served() as server, Peer(server.address) as peer:
        server_info = info(peer)
        assert server_info.version == server.version
        assert list(server_info.api_versions) == ["topospread.v1"]
        # The extender is served over HTTP, which is off here.
        assert list(server_info.features) == ["expander", "reflection"]
        assert server_info.store == "memory:"
        assert server_info.start_time.seconds > 0
        assert server_info.limits.max_batch_objects == 500
        limits = {field.name for field, _ in server_info.limits.ListFields()}
        assert limits == set(server_info.limits.DESCRIPTOR.fields_by_name)
        peer.apply(*(node(f"n{n}", "a") for n in range(500)))
        with pytest.raises(grpc.RpcError) as failed:
            peer.apply(*(node(f"n{n}", "a") for n in range(501)))
        assert failed.value.code() is CODE.INVALID_ARGUMENT


def test_server_info_reports_the_extender():
    with served(http="127.0.0.1:0") as server, Peer(server.address) as peer:
        assert "extender" in info(peer).features
    with served(http="127.0.0.1:0", extender="off") as server, Peer(server.address) as peer:
        assert "extender" not in info(peer).features


def test_store_and_clusters_are_shown_to_authorized_callers_only(tmp_path: Path):
    access = AccessFile(tmp_path / "access.yaml", all=["read"], one=["read@one"], boss=["admin"])
    with served(access_file=str(access)) as server, Peer(server.address) as peer:
        for cluster in ("one", "two", "three"):
            request = pb.ApplyObjectsRequest(cluster=cluster, objects=two_zones())
            peer.state.ApplyObjects(request, timeout=PATIENCE, metadata=access.bearer("boss"))
        everything, little = info(peer, access.bearer("all")), info(peer, access.bearer("one"))
        assert everything.store == "memory:"
        assert little.store == ""
        assert little.limits == everything.limits
        for name, may in (("all", ["one", "three", "two"]), ("one", ["one"])):
            listing = pb.ListClustersRequest(page_size=1)
            found: list[str] = []
            while not found or listing.page_token:
                page = peer.state.ListClusters(
                    listing, timeout=PATIENCE, metadata=access.bearer(name)
                )
                found += [cluster.name for cluster in page.clusters]
                listing.page_token = page.next_page_token
            assert found == may
        other = pb.GetClusterRequest(cluster="two")
        with pytest.raises(grpc.RpcError) as failed:
            peer.state.GetCluster(other, timeout=PATIENCE, metadata=access.bearer("one"))
        assert failed.value.code() is CODE.PERMISSION_DENIED
