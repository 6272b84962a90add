"""The audit log: who changed what, from where, at which revision, under which trace."""

from __future__ import annotations

import io
import json
import time
from contextlib import suppress
from typing import Any

import grpc
import httpx
import pytest

from tests.access.callers import AccessFile
from tests.app.all_calls import SERVED, all_calls, make_calls, methods_of_the_api
from tests.servers import Peer, evaluate_request, incoming, node, replacement, served, two_zones
from tests.waiting import PATIENCE
from topospread.access.audit import LINES_PER_ADDRESS, LINES_TOTAL, SECONDS_PER_ADDRESS, DenialLog
from topospread.access.callers import ANONYMOUS
from topospread.errors import NotFound, PermissionDenied, RateExceeded, Unauthenticated
from topospread.telemetry.logs import start_logging
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import (
    common_pb2,
    placement_service_pb2,
    placement_service_pb2_grpc,
)

CHANGES = {
    "ClusterStateService/ApplyObjects",
    "ClusterStateService/DeleteObjects",
    "ClusterStateService/ReplaceObjects",
    "ClusterStateService/DeleteCluster",
    "PlacementService/PlacePod",
    "PlacementService/ReserveNode",
    "PlacementService/ReleaseReservation",
}
"""Calls that change something, so that each has a line; all others only read."""


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
        places: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
        pod = pod_from_manifest(incoming())

        def made(call: Any, request: Any, name: str = "boss") -> tuple[Any, dict[str, Any]]:
            before = len(lines())
            answer = call(request, metadata=access.bearer(name), timeout=PATIENCE)
            (line,) = lines()[before:]
            assert line["trace_id"] == answer.meta.traceparent.split("-")[1]
            assert (line["address"], line["code"]) == ("127.0.0.1", "OK")
            assert line["caller"] == name
            assert line["cluster"] == "default"
            assert line.get("revision", "") == answer.meta.revision
            return answer, line

        _, line = made(
            peer.state.ApplyObjects, pb.ApplyObjectsRequest(objects=two_zones()), "feeder"
        )
        assert (line["call"], line["outcomes"]) == (
            "ClusterStateService/ApplyObjects",
            {"created": 6},
        )
        removed = pb.ObjectReference(kind=common_pb2.KIND_POD, namespace="default", name="web-0")
        _, line = made(peer.state.DeleteObjects, pb.DeleteObjectsRequest(objects=[removed]))
        assert (line["call"], line["outcomes"]) == (
            "ClusterStateService/DeleteObjects",
            {"deleted": 1},
        )
        placed, line = made(
            places.PlacePod,
            placement_service_pb2.PlacePodRequest(pod=common_pb2.PodSource(object=pod)),
        )
        assert (line["pod"], line["verdict"]) == ("default/incoming", "Success")
        assert line["node"] == placed.node != ""
        again = placement_service_pb2.ReserveNodeRequest(
            pod=common_pb2.PodSource(object=pod), node=placed.node
        )
        assert made(places.ReserveNode, again)[1]["node"] == placed.node
        held = common_pb2.PodReference(name="incoming")
        release = placement_service_pb2.ReleaseReservationRequest(pod=held)
        assert made(places.ReleaseReservation, release)[1]["released"] is True
        content = replacement(node("only", "a"), kind=common_pb2.KIND_NODE)
        _, line = made(peer.state.ReplaceObjects, iter(content))
        assert (line["kind"], line["outcomes"]) == ("node", {"created": 1, "deleted": 3})
        assert (line["objects"], line["committed"]) == (1, True)
        drop = pb.DeleteClusterRequest(cluster="default")
        assert made(peer.state.DeleteCluster, drop)[1]["objects"] == 3


def test_failed_writes_have_a_line_as_well_and_reads_have_none(lines):
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones(), cluster="one")
        peer.evaluate(cluster="one")
        peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE)
        twice = pb.ApplyObjectsRequest(cluster="one", objects=[node("x", "a"), node("x", "b")])
        with pytest.raises(grpc.RpcError):
            peer.state.ApplyObjects(twice, timeout=PATIENCE)
        with pytest.raises(grpc.RpcError):
            peer.engine.EvaluatePod(evaluate_request(cluster="two"), timeout=PATIENCE)
    reported = [(line["call"], line["code"], line["caller"]) for line in lines()]
    assert reported == [
        ("ClusterStateService/ApplyObjects", "OK", "anonymous"),
        ("ClusterStateService/ApplyObjects", "INVALID_ARGUMENT", "anonymous"),
    ]


def test_lines_have_only_names_of_written_objects(lines):
    with served() as server, Peer(server.address) as peer:
        secret = node("n", "zone-of-secrets")
        peer.apply(secret)
    (line,) = lines()
    assert "zone-of-secrets" not in json.dumps(line)


def test_all_calls_that_change_something_have_a_line_and_no_others(lines):
    with served(**SERVED) as server, Peer(server.address) as peer:
        answers = make_calls(peer.channel)
    made = [each.call.rpartition(".")[2] for each in all_calls()]
    assert set(made) == {*methods_of_the_api(), "Expander/BestOptions"}
    assert all("failed" not in answer[0] for answer in answers)
    assert [line["call"] for line in lines()] == [call for call in made if call in CHANGES]


def test_a_filter_that_holds_a_node_says_which(lines):
    with (
        served(http="127.0.0.1:0") as server,
        Peer(server.address) as peer,
        httpx.Client(trust_env=False, timeout=PATIENCE) as scheduler,
    ):
        peer.await_revision(peer.apply(*two_zones()))
        args = {"Pod": incoming(), "NodeNames": ["a1", "b1"]}
        url = f"http://{server.http_address}/extender/v1"
        assert scheduler.post(f"{url}/place", json=args).json()["NodeNames"] == ["b1"]
        assert scheduler.post(f"{url}/filter", json=args).status_code == 200
        assert scheduler.post(f"{url}/place", content=b"[").status_code == 400
    _, held, failed = lines()
    assert (held["call"], held["caller"], held["code"]) == ("Extender/filter", "anonymous", "OK")
    assert (held["pod"], held["node"], held["verdict"]) == ("default/incoming", "b1", "Success")
    assert (held["cluster"], held["already_bound"]) == ("default", False)
    assert held["revision"]
    assert (failed["call"], failed["code"]) == ("Extender/filter", "INVALID_ARGUMENT")


@pytest.mark.parametrize("pump", ["a-", "\x00", "\u202e", "\U0001f600", "bearer "])
def test_lines_of_hostile_names_are_short_and_soon_written(lines, pump):
    """A name of a megabyte is refused; to look through it for secrets took hours."""
    name = pump * (1_000_000 // len(pump.encode()))
    pod = pod_from_manifest(incoming())
    pod.metadata.name = name
    with served() as server, Peer(server.address) as peer:
        places: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
        calls = [
            (
                places.ReleaseReservation,
                placement_service_pb2.ReleaseReservationRequest(
                    pod=common_pb2.PodReference(name=name, namespace=name)
                ),
            ),
            (
                places.PlacePod,
                placement_service_pb2.PlacePodRequest(pod=common_pb2.PodSource(object=pod)),
            ),
            (
                places.ReserveNode,
                placement_service_pb2.ReserveNodeRequest(
                    pod=common_pb2.PodSource(object=pod), node=name
                ),
            ),
            (peer.state.DeleteCluster, pb.DeleteClusterRequest(cluster=name)),
        ]
        peer.apply(*two_zones())
        begun = time.process_time()
        for call, request in calls:
            with suppress(grpc.RpcError):
                call(request, timeout=PATIENCE)
        assert time.process_time() - begun < 10
    assert [line["code"] for line in lines()].count("INVALID_ARGUMENT") == len(calls)
    assert all(len(json.dumps(line)) < 6 * 1024 for line in lines())


# ------------------------------ who is not let in


@pytest.fixture
def with_authorization(tmp_path):
    """A server with an access file, and a channel to it."""
    access = AccessFile(tmp_path / "access.yaml", reader=["read"], ours=["admin@ours"])
    with (
        served(access_file=str(access), http="127.0.0.1:0", extender="place") as server,
        Peer(server.address) as peer,
    ):
        yield server, peer, access


def refused(peer: Peer, path: str, metadata: Any, *raws: bytes) -> grpc.StatusCode:
    """How a call ends."""
    method: Any = peer.channel.stream_stream(path)
    call = method(iter(raws), timeout=PATIENCE, metadata=metadata)
    with pytest.raises(grpc.RpcError):
        next(call)
    code: grpc.StatusCode = call.code()
    return code


APPLY = "/topospread.v1.ClusterStateService/ApplyObjects"
REPLACE = "/topospread.v1.ClusterStateService/ReplaceObjects"
ASK = "/topospread.v1.DecisionService/EvaluatePod"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
ELSEWHERE = {
    APPLY: pb.ApplyObjectsRequest(cluster="theirs"),
    REPLACE: replacement(cluster="theirs")[0],
    ASK: evaluate_request(cluster="theirs"),
}


def test_calls_that_are_refused_have_one_line_each(with_authorization, lines):
    _, peer, access = with_authorization
    denied = grpc.StatusCode.PERMISSION_DENIED
    unauthenticated = (("authorization", "Bearer tsp_0000000000000000_secret"),)
    for path in (APPLY, ASK, REFLECTION, "/made.Up/Method"):
        assert refused(peer, path, unauthenticated, b"") is grpc.StatusCode.UNAUTHENTICATED
    for path, request in ELSEWHERE.items():
        raw = request.SerializeToString()
        assert refused(peer, path, access.bearer("reader"), raw) is denied
        assert refused(peer, path, access.bearer("ours"), raw) is denied
    reported = [(line["call"], line["caller"], line["code"]) for line in lines()]
    assert reported[:4] == [
        ("ClusterStateService/ApplyObjects", "unauthenticated", "UNAUTHENTICATED"),
        ("DecisionService/EvaluatePod", "unauthenticated", "UNAUTHENTICATED"),
        ("reflection", "unauthenticated", "UNAUTHENTICATED"),
        ("unknown", "unauthenticated", "UNAUTHENTICATED"),
    ]
    assert reported[4:] == [
        (path.rpartition(".")[2], caller, "PERMISSION_DENIED")
        for path in ELSEWHERE
        for caller in ("reader", "ours")
    ]
    reasons = [line.get("reason") for line in lines()]
    assert reasons[:6] == [
        *[None] * 4,
        "the role write is missing",
        "the role write is missing for cluster 'theirs'",
    ]
    assert "secret" not in json.dumps(lines())


def test_a_denied_call_of_the_expander_has_a_line(tmp_path, lines):
    access = AccessFile(tmp_path / "access.yaml", ours=["decide@ours"])
    with (
        served(access_file=str(access), expander_cluster="theirs") as server,
        Peer(server.address) as peer,
    ):
        path = "/grpcplugin.Expander/BestOptions"
        code = refused(peer, path, access.bearer("ours"), b"")
    assert code is grpc.StatusCode.PERMISSION_DENIED
    (line,) = lines()
    assert (line["call"], line["caller"]) == ("Expander/BestOptions", "ours")


def test_pages_that_are_refused_have_one_line_each(with_authorization, lines):
    server, _, access = with_authorization
    with httpx.Client(base_url=f"http://{server.http_address}", trust_env=False) as browser:
        bearer = dict(access.bearer("ours"))
        for path in ("/metrics", "/made/up", "/extender/v1/filter", "/livez"):
            browser.get(path, timeout=PATIENCE)
        browser.get("/metrics", headers=bearer, timeout=PATIENCE)
        browser.post("/extender/v1/theirs/filter", headers=bearer, json={}, timeout=PATIENCE)
    assert [(line["call"], line["caller"], line["code"]) for line in lines()] == [
        ("HTTP /metrics", "unauthenticated", "UNAUTHENTICATED"),
        ("HTTP other", "unauthenticated", "UNAUTHENTICATED"),
        ("Extender", "unauthenticated", "UNAUTHENTICATED"),
        ("HTTP /metrics", "ours", "PERMISSION_DENIED"),
        ("Extender/filter", "ours", "PERMISSION_DENIED"),
    ]


def test_calls_past_the_rate_have_a_line(lines):
    with (
        served(rate_limit=0.001, rate_burst=1, http="127.0.0.1:0") as server,
        Peer(server.address) as peer,
    ):
        peer.apply(node("n", "a"))
        with pytest.raises(grpc.RpcError):
            peer.apply(node("m", "a"))
        page = httpx.get(f"http://{server.http_address}/metrics", timeout=PATIENCE, trust_env=False)
        assert page.status_code == 429
    _, call, page_line = lines()
    assert (call["call"], call["caller"]) == ("ClusterStateService/ApplyObjects", "anonymous")
    assert (page_line["call"], page_line["code"]) == ("HTTP /metrics", "RESOURCE_EXHAUSTED")
    assert call["reason"].startswith("more than 0.001 calls a second")


def test_refusals_cannot_fill_the_log(lines):
    now = 0.0
    denials = DenialLog(clock=lambda: now)

    def flood(*addresses: str) -> int:
        before = len(lines())
        for address in addresses:
            denials.log("Call", None, address, Unauthenticated())
        return len(lines()) - before

    assert flood(*["one"] * 1000) == LINES_PER_ADDRESS
    assert flood("two") == 1
    assert lines()[-1]["left_out"] == 1000 - LINES_PER_ADDRESS
    # A caller who calls again and again does not hide the others for long.
    assert flood(*map(str, range(1000))) == LINES_TOTAL - LINES_PER_ADDRESS - 1
    now += SECONDS_PER_ADDRESS
    assert flood(*["one"] * 1000) == 1
    assert flood("two") == 1


def test_only_denials_are_logged_and_never_at_length(lines):
    denials = DenialLog()
    denials.log("Call", ANONYMOUS, "a", NotFound("no such thing"))
    denials.log("Call", ANONYMOUS, "a", PermissionDenied("x" * 100_000))
    denials.log("Call", ANONYMOUS, "a", RateExceeded("too often", 1.0))
    first, second = lines()
    assert len(first["reason"]) == 200
    assert second["code"] == "RESOURCE_EXHAUSTED"
