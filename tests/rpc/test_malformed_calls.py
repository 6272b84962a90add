"""Malformed calls: each ends with a status that names the mistake."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Peer, evaluate_request, pod, replacement, served, two_zones
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)
from topospread_proto.v1.cluster_state_service_pb2 import DeleteClusterRequest

CODE = grpc.StatusCode
FILES = (
    decision_service_pb2,
    inspector_service_pb2,
    cluster_state_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)
METHODS = [
    (service.full_name, method.name)
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
OFFERED = [
    *METHODS,
    ("grpc.health.v1.Health", "Check"),
    ("grpc.health.v1.Health", "Watch"),
    ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"),
]
GARBAGE = [b"\xff", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\x0f", b"{}"]
EXPECTED = {CODE.OK, CODE.INVALID_ARGUMENT, CODE.NOT_FOUND, CODE.FAILED_PRECONDITION}


@pytest.fixture(scope="module")
def server():
    with served(max_request_bytes="1MiB") as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        yield server


@pytest.fixture(scope="module")
def peer(server):
    with Peer(server.address) as peer:
        yield peer


def ended(peer: Peer, service: str, name: str, *raws: bytes, timeout: float = PATIENCE):
    """The status of a call with these messages, after at most one answer."""
    method: Any = peer.channel.stream_stream(f"/{service}/{name}")
    call = method(iter(raws), timeout=timeout)
    try:
        next(call, None)
    except grpc.RpcError:
        pass
    else:
        call.cancel()
    return call


@pytest.mark.parametrize("raw", GARBAGE)
@pytest.mark.parametrize(("service", "name"), OFFERED)
def test_unparsable_bytes_are_an_invalid_argument(peer, service, name, raw):
    call = ended(peer, service, name, raw)
    assert call.code() is CODE.INVALID_ARGUMENT
    assert "does not parse as" in call.details()


@pytest.mark.parametrize(("service", "name"), OFFERED)
def test_call_without_a_message_is_an_invalid_argument(peer, service, name):
    call = ended(peer, service, name)
    if name == "ServerReflectionInfo":
        # No questions, no answers.
        assert call.code() is CODE.OK
    elif name == "ReplaceObjects":
        assert call.code() is CODE.ABORTED
        assert "without a commit" in call.details()
    else:
        assert call.code() is CODE.INVALID_ARGUMENT
        assert "message" in call.details()


def test_stream_with_unparsable_bytes_changes_nothing(peer):
    start, batch, commit = replacement(pod("new", "a1"), kind=common_pb2.KIND_POD)
    raws = (
        start.SerializeToString(),
        batch.SerializeToString(),
        b"\xff",
        commit.SerializeToString(),
    )
    call = ended(peer, "topospread.v1.ClusterStateService", "ReplaceObjects", *raws)
    assert call.code() is CODE.INVALID_ARGUMENT
    assert peer.evaluate().feasible_node_count == 1


@pytest.mark.parametrize(("service", "name"), OFFERED)
def test_oversized_message_is_refused_with_the_limit(peer, service, name):
    # An unknown field of bytes, so that it would parse.
    raw = b"\x82\x7d" + b"\x80\x80\x80\x01" + bytes(2 * 1024 * 1024)
    call = ended(peer, service, name, raw)
    assert call.code() is CODE.RESOURCE_EXHAUSTED
    assert "1048576" in call.details()


@pytest.mark.parametrize(
    "path", ["topospread.v1.DecisionService/Nothing", "topospread.v1.Nothing/EvaluatePod", "a/b/c"]
)
def test_an_unknown_method_is_unimplemented(peer, path):
    service, _, name = path.partition("/")
    assert ended(peer, service, name, b"").code() is CODE.UNIMPLEMENTED


def test_reflection_lists_the_served_services(peer):
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(peer.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE)
    assert {service.name for service in next(iter(answers)).list_services_response.service} == {
        "topospread.v1.DecisionService",
        "topospread.v1.ClusterStateService",
        "topospread.v1.PlacementService",
        "topospread.v1.PlannerService",
        "topospread.v1.InspectorService",
        "topospread.v1.ServerService",
        "grpcplugin.Expander",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize(
    "traceparent", ["", "00", "00-0-0-00", "ff" * 100, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_broken_traceparent_begins_a_new_trace(peer, traceparent):
    request = evaluate_request()
    answer = peer.engine.EvaluatePod(
        request, timeout=PATIENCE, metadata=(("traceparent", traceparent),)
    )
    answered = answer.meta.traceparent
    assert len(answered) == 55
    assert answered != traceparent


def test_repeated_traceparent_is_harmless(peer):
    twice = (("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-00"),) * 2
    assert (
        peer.engine.EvaluatePod(evaluate_request(), timeout=PATIENCE, metadata=twice).node_count
        == 3
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(OFFERED), data=st.data())
def test_mutated_requests_never_end_as_internal(peer, server, place, data):
    """Messages that almost are what the method takes."""
    service, name = place
    whole = evaluate_request().SerializeToString()
    at = data.draw(st.integers(0, len(whole)), label="where")
    raw = whole[:at] + data.draw(st.binary(max_size=8), label="what") + whole[at:][:200]
    call = ended(peer, service, name, raw)
    # A watch, once it is open, ends by our own hand.
    assert call.code() in EXPECTED | {CODE.CANCELLED, CODE.OUT_OF_RANGE}


def test_no_malformed_call_was_counted_as_internal(peer, server):
    """At the end of the module: no call ended in a way that means a bug."""
    codes = {
        dict(labels)["code"]
        for (name, labels), count in samples(server.metrics.expose()[0]).items()
        if name == "topospread_calls_total" and count
    }
    assert not codes & {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
    # What is meant for one method may be read as a write by another.
    peer.state.DeleteCluster(DeleteClusterRequest(cluster="default"), timeout=PATIENCE)
    peer.apply(*two_zones())
    assert peer.evaluate().node_count == 3


@pytest.mark.parametrize("method", ["Filter", "Score", "EvaluatePod"])
def test_ten_thousand_candidates_are_answered_though_most_are_unknown(peer: Peer, method: str):
    """Each is judged, or refused with an error that names a few; the next caller is served."""
    names = [*(f"no-such-node-{number}" for number in range(9998)), "a1", "b1"]
    request = getattr(decision_service_pb2, f"{method}Request")(
        pod=evaluate_request().pod,
        candidates=common_pb2.NodeSelection(names=common_pb2.NodeNames(names=names)),
    )
    call = getattr(peer.engine, method)
    if method == "Score":
        with pytest.raises(grpc.RpcError) as refused:
            call(request)
        assert refused.value.code() is CODE.INVALID_ARGUMENT
        text = refused.value.details() or ""
        assert len(text) < 1000
        assert "no-such-node-0" in text
    elif method == "Filter":
        answer = call(request)
        unknown = [
            v
            for v in answer.verdicts
            if answer.verdict_table[v].code == common_pb2.VERDICT_CODE_ERROR
        ]
        assert len(answer.verdicts) == len(names)
        assert len(unknown) == len(names) - 2
    else:
        assert call(request).node_count == len(names)
    assert peer.engine.EvaluatePod(evaluate_request()).node_count
