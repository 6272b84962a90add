"""Limits that are configured: each is told to whoever meets it, and holds nobody else up."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from functools import partial
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.access.callers import AccessFile
from tests.errors.error_status import error_status
from tests.servers import (
    Peer,
    ServerProcess,
    evaluate_request,
    http_get,
    node,
    pod,
    replacement,
    served,
    two_zones,
)
from tests.waiting import PATIENCE, until
from topospread.app.listeners import EXPANDER_CONNECTIONS
from topospread.http import server as http_server
from topospread.service.state.write import WriteLimits
from topospread_client import Client, LimitExceeded
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

CODE = grpc.StatusCode


def refused(call: Any, *arguments: Any, **more: Any) -> Any:
    with pytest.raises(grpc.RpcError) as failed:
        call(*arguments, timeout=PATIENCE, **more)
    return failed.value


def test_objects_of_a_batch():
    nodes = [node(f"n{i}", "a") for i in range(501)]
    with served() as server, Peer(server.address) as peer:
        error = refused(peer.state.ApplyObjects, pb.ApplyObjectsRequest(objects=nodes))
        assert error.code() is CODE.INVALID_ARGUMENT
        assert (
            error.details()
            == "objects: 501 in one call, at most 500: split them, or use ReplaceObjects"
        )
        peer.apply(*nodes[:500])
        keys = [pb.ObjectReference(kind=common_pb2.KIND_NODE, name=f"n{i}") for i in range(501)]
        assert (
            "at most 500"
            in refused(peer.state.DeleteObjects, pb.DeleteObjectsRequest(objects=keys)).details()
        )
        first, second, whole = (
            pb.ReplaceObjectsRequest(batch=pb.ReplaceBatch(objects=some))
            for some in (nodes[:2], nodes[2:], nodes)
        )
        start, _, commit = replacement(nodes[0], kind=common_pb2.KIND_NODE)
        commit.commit.object_count = 501
        error = refused(peer.state.ReplaceObjects, iter([start, whole, commit]))
        assert error.code() is CODE.INVALID_ARGUMENT
        text = "batch.objects: 501 in one batch, at most 500: split them (batch 1)"
        assert error.details() == text
        peer.state.ReplaceObjects(iter([start, first, second, commit]), timeout=PATIENCE)
        request = pb.ListObjectsRequest(kind=common_pb2.KIND_NODE, page_size=1000)
        assert len(peer.state.ListObjects(request).objects) == 501


def test_versions_that_are_not_counted_are_taken_in_any_order():
    """Media servers declare ports by the thousand, and tools annotate."""
    manifest = {
        "kind": "Pod",
        "metadata": {
            "name": "media",
            "namespace": "shop",
            "annotations": {f"note-{n}": "x" for n in range(1100)},
        },
        "spec": {
            "containers": [
                {"name": "c", "ports": [{"containerPort": 10_000 + n} for n in range(1500)]}
            ]
        },
    }
    plain = {**manifest, "spec": {"containers": [{"name": "c"}]}}
    with served() as server, Client(server.address) as client:
        client.apply_objects([*two_zones(), manifest])
        # Whether the same was asked with less before makes no difference.
        for asked in (manifest, plain, manifest):
            assert client.evaluate_pod(asked).feasible_node_count == 3
        assert client.place_pod(manifest).node


def test_objects_of_a_replace_are_not_gathered_without_end(monkeypatch):
    monkeypatch.setattr("topospread.app.parts.WriteLimits", partial(WriteLimits, replace=10))
    read = []

    def endless():
        yield replacement(kind=common_pb2.KIND_NODE)[0]
        for number in range(1000):
            read.append(number)
            yield replacement(node(f"n{number}", "a"))[1]

    with served() as server, Peer(server.address) as peer:
        error = refused(peer.state.ReplaceObjects, endless())
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert error.details() == "more than 10 objects in one call"
        assert not peer.state.ListClusters(pb.ListClustersRequest()).clusters


def test_clusters_that_writes_make():
    with served(max_clusters=2) as server, Peer(server.address) as peer:
        peer.apply(node("n", "a"), cluster="one")
        peer.apply(node("n", "a"), cluster="two")
        error = refused(
            peer.state.ApplyObjects, pb.ApplyObjectsRequest(cluster="three", objects=two_zones())
        )
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert error.details().startswith("there are 2 clusters already, as many as --max-clusters")
        empty = replacement(cluster="three", kind=common_pb2.KIND_NODE)
        assert "2 clusters already" in refused(peer.state.ReplaceObjects, iter(empty)).details()
        peer.apply(pod("p", "n"), cluster="one")
        peer.state.DeleteCluster(pb.DeleteClusterRequest(cluster="two"), timeout=PATIENCE)
        peer.apply(node("n", "a"), cluster="three")


def test_clusters_that_are_followed():
    with served(max_clusters=2, preload="none") as server, Peer(server.address) as peer:
        for cluster in ("one", "two"):
            peer.apply(node("n", "a"), cluster=cluster)
            assert peer.evaluate(cluster=cluster).node_count == 1
        # Not there, so nothing that is followed: it takes no place for long.
        error = refused(peer.engine.EvaluatePod, evaluate_request(cluster="three"))
        assert error.code() in {CODE.RESOURCE_EXHAUSTED, CODE.NOT_FOUND}
        assert peer.evaluate(cluster="one").node_count == 1


def test_a_name_that_no_cluster_can_have_starts_nothing(caplog):
    with served() as server, Peer(server.address) as peer:
        for name in ("x" * 64, "-", "A", "a/b", "\n"):
            error = refused(peer.engine.EvaluatePod, evaluate_request(cluster=name))
            assert error.code() is CODE.INVALID_ARGUMENT
            assert "is not a DNS label" in error.details()
        assert not server.parts.replicas.running()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# ------------------------------ rates


def retry_delay(error: Any) -> float:
    """What google.rpc.RetryInfo says."""
    delay = error_status(error).details["RetryInfo"].retry_delay
    return delay.seconds + delay.nanos / 1e9


def test_calls_of_one_caller(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", one=["admin"], other=["admin"])
    flags = {"rate_limit": "0.01", "rate_burst": "5", "access_file": str(access)}
    with served(**flags, http="127.0.0.1:0") as server, Peer(server.address) as peer:

        def listed(name: str) -> Any:
            return peer.state.ListClusters(
                pb.ListClustersRequest(), timeout=PATIENCE, metadata=access.bearer(name)
            )

        for _ in range(5):
            listed("one")
        error = refused(
            peer.state.ListClusters, pb.ListClustersRequest(), metadata=access.bearer("one")
        )
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert error.details().startswith("more than 0.01 calls a second: try again in ")
        assert 0.0 < retry_delay(error) <= 100.0
        listed("other")
        health: Any = health_pb2_grpc.HealthStub(peer.channel)
        for _ in range(10):
            health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        headers = {"authorization": access.bearer("other")[0][1]}
        with httpx.Client(
            base_url=f"http://{server.http_address}",
            headers=headers,
            trust_env=False,
            timeout=PATIENCE,
        ) as browser:
            said = [browser.get("/metrics") for _ in range(5)]
            # One call was made over gRPC.
            assert [answer.status_code for answer in said] == [200] * 4 + [429]
            assert 0 < int(said[-1].headers["retry-after"]) <= 100
            assert browser.get("/livez").status_code == 200


def test_unauthenticated_callers_are_limited_by_address():
    with served(rate_limit=0.01, rate_burst=3) as server:
        peers = [Peer(server.address) for _ in range(4)]
        for peer in peers[:3]:
            peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
        error = refused(peers[3].state.ListClusters, pb.ListClustersRequest())
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        for peer in peers:
            peer.channel.close()


def test_a_replace_is_one_call():
    with served(rate_limit=0.01, rate_burst=2) as server, Peer(server.address) as peer:
        peer.state.ReplaceObjects(
            iter(replacement(*two_zones()[:1], kind=common_pb2.KIND_NODE)), timeout=PATIENCE
        )
        peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
        error = refused(peer.state.ListClusters, pb.ListClustersRequest())
        assert error.code() is CODE.RESOURCE_EXHAUSTED


def test_the_client_shows_when_to_retry():
    with served(rate_limit=0.01, rate_burst=1) as server, Client(server.address) as client:
        list(client.list_clusters())
        with pytest.raises(LimitExceeded) as error:
            list(client.list_clusters())
        assert error.value.retry_after is not None
        assert 0.0 < error.value.retry_after <= 100.0


# ------------------------------ connections


def opened(stack: ExitStack, address: str, count: int) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    return [
        stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        for _ in range(count)
    ]


def closed(raw: socket.socket) -> bool:
    """Whether the server has closed a connection by now."""
    raw.setblocking(False)
    try:
        while raw.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_connections_past_the_limit_are_closed_and_others_served(kind):
    with served(max_connections=20, http="127.0.0.1:0") as server, ExitStack() as stack:
        peer = stack.enter_context(Peer(server.address))
        peer.apply(*two_zones())
        browser = stack.enter_context(
            httpx.Client(
                base_url=f"http://{server.http_address}", trust_env=False, timeout=PATIENCE
            )
        )
        assert browser.get("/livez").status_code == 200
        address = server.address if kind == "grpc" else server.http_address
        idle = opened(stack, address, 100)
        until(lambda: sum(map(closed, idle)) >= 80, "those past the limit are closed")
        assert peer.evaluate().feasible_node_count == 1
        assert browser.get("/livez").status_code == 200
        for raw in idle:
            raw.close()
        with Peer(server.address) as late:
            until(lambda: reached(late), "there is room again")
        url = f"http://{server.http_address}/livez"
        until(lambda: reached_by_http(url), "there is room again")


def test_the_expanders_own_port_has_few_connections():
    with served(expander_listen="127.0.0.1:0") as server, ExitStack() as stack:
        idle = opened(stack, server.expander_address, 80)
        until(lambda: sum(map(closed, idle)) == 80 - EXPANDER_CONNECTIONS, "the others are closed")


def reached(peer: Peer) -> bool:
    try:
        return bool(peer.evaluate().node_count)
    except grpc.RpcError:
        return False


def reached_by_http(url: str) -> bool:
    try:
        return http_get(url)[0] == 200
    except OSError:
        return False


def test_requests_that_do_not_come_to_an_end_are_given_up(monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(http_server, "SILENT_SECONDS", 0.2)
    with served(http="127.0.0.1:0") as server, ExitStack() as stack:
        slow = opened(stack, server.http_address, 4)
        slow[1].sendall(b"GET /livez HT")
        slow[2].sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n")
        slow[3].sendall(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx")
        for raw in slow:
            until(lambda raw=raw: closed(raw), "it is closed")  # type: ignore[misc] # of this turn


def test_more_files_may_be_open_than_the_shell_allows(tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Tests that ran before this one may have left files open in this process.
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    lowered = max(256, highest + 64)
    assert lowered < hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        with ServerProcess("--store", f"sqlite:///{tmp_path}/state.db") as server:
            now = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            assert now == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
