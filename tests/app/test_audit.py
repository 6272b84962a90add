"""The audit log: who changed what, from where, at which revision, under which trace."""

from __future__ import annotations

import io
import json
from typing import Any

import grpc
import pytest

from tests.access.callers import AccessFile
from tests.servers import PATIENCE, Peer, evaluate_request, incoming, node, served, two_zones
from topospread.telemetry.logs import start_logging
from topospread_client.manifests import pod_from_manifest
from topospread_proto.v1 import cluster_state_pb2 as pb
from topospread_proto.v1 import placement_pb2, placement_pb2_grpc


@pytest.fixture
def lines():
    """Audit lines so far."""
    stream = io.StringIO()
    output = start_logging("info", "json", stream)
    yield lambda: [
        line
        for line in map(json.loads, stream.getvalue().splitlines())
        if line["logger"] == "topospread.audit"
    ]
    output.close()


def test_each_change_has_a_line(lines, tmp_path):
    access = AccessFile(tmp_path / "access.yaml", feeder=["write"], boss=["admin"])
    with served(access_file=str(access)) as server, Peer(server.address) as peer:
        places: Any = placement_pb2_grpc.PlacementStub(peer.channel)
        pod = pod_from_manifest(incoming())

        def made(call: Any, request: Any, name: str = "boss") -> tuple[Any, dict[str, Any]]:
            before = len(lines())
            answer, ended = call.with_call(request, metadata=access.bearer(name), timeout=PATIENCE)
            (line,) = lines()[before:]
            trace = dict(ended.trailing_metadata())["traceparent"].split("-")[1]
            assert line["trace_id"] == trace
            assert (line["address"], line["code"]) == ("127.0.0.1", "OK")
            assert line["caller"] == name
            assert line["cluster"] == "default"
            assert line.get("revision", "") == getattr(answer, "revision", "")
            return answer, line

        _, line = made(peer.state.Apply, pb.ApplyRequest(objects=two_zones()), "feeder")
        assert (line["call"], line["outcomes"]) == ("ClusterState/Apply", {"created": 6})
        removed = pb.ObjectReference(kind=pb.KIND_POD, namespace="default", name="web-0")
        _, line = made(peer.state.Delete, pb.DeleteRequest(objects=[removed]))
        assert (line["call"], line["outcomes"]) == ("ClusterState/Delete", {"deleted": 1})
        placed, line = made(places.Place, placement_pb2.PlaceRequest(pod=pod))
        assert line["pod"] == "default/incoming"
        assert line["node"] == placed.node != ""
        again = placement_pb2.ReserveRequest(pod=pod, node=placed.node)
        assert made(places.Reserve, again)[1]["node"] == placed.node
        release = placement_pb2.ReleaseRequest(name="incoming")
        assert made(places.Release, release)[1]["released"] is True
        made(peer.state.AcceptStore, pb.AcceptStoreRequest())
        header = pb.ReplaceHeader(kind=pb.KIND_NODE)
        content = pb.ReplaceRequest(header=header, objects=[node("only", "a")])
        _, line = made(peer.state.Replace, iter([content]))
        assert (line["kind"], line["outcomes"]) == ("node", {"created": 1, "deleted": 3})
        assert made(peer.state.DropCluster, pb.DropClusterRequest())[1]["objects"] == 3


def test_what_fails_has_a_line_as_well_and_reading_has_none(lines):
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones(), cluster="one")
        peer.evaluate(cluster="one")
        peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
        twice = pb.ApplyRequest(cluster="one", objects=[node("x", "a"), node("x", "b")])
        with pytest.raises(grpc.RpcError):
            peer.state.Apply(twice, timeout=PATIENCE)
        with pytest.raises(grpc.RpcError):
            peer.engine.Evaluate(evaluate_request(cluster="two"), timeout=PATIENCE)
    told = [(line["call"], line["code"], line["caller"]) for line in lines()]
    assert told == [
        ("ClusterState/Apply", "OK", "anybody"),
        ("ClusterState/Apply", "INVALID_ARGUMENT", "anybody"),
    ]


def test_nothing_but_names_of_what_is_written_is_told(lines):
    with served() as server, Peer(server.address) as peer:
        secret = node("n", "zone-of-secrets")
        peer.apply(secret)
    (line,) = lines()
    assert "zone-of-secrets" not in json.dumps(line)
