"""Compressed requests, and requests that are too large for their method."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.servers import Peer, evaluate_request, node, served, two_zones
from tests.waiting import PATIENCE
from topospread.calls.sizes import SizeLimit, decompressed
from topospread.errors import InvalidRequest, LimitExceeded
from topospread.generated.internal.v1 import frames_pb2
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

CODE = grpc.StatusCode
MIB = 1 << 20
MODULES = (
    cluster_state_service_pb2,
    frames_pb2,
    placement_service_pb2,
    planner_service_pb2,
    decision_service_pb2,
    inspector_service_pb2,
)
EVALUATE = "/topospread.v1.DecisionService/EvaluatePod"
EXPLAIN = "/topospread.v1.DecisionService/ExplainPod"
CHECK = "/grpc.health.v1.Health/Check"
BATCH = "/topospread.v1.DecisionService/BatchEvaluatePods"


@pytest.fixture(scope="module", params=["grpcio", "grpcio-threads"])
def server(request):
    with served(transport=request.param) as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        yield server


@pytest.fixture(params=[grpc.Compression.Gzip, grpc.Compression.Deflate], ids=["gzip", "deflate"])
def packing(server, request):
    """A channel that compresses all that it sends."""
    with grpc.insecure_channel(server.address, compression=request.param) as channel:
        yield channel


def padded(request: Any, size: int) -> bytes:
    """A request with an unknown field of so many bytes."""
    field = b"\x82\x7d"
    content = bytes(size)
    while size > 0x7F:
        field, size = field + bytes((size & 0x7F | 0x80,)), size >> 7
    serialized: bytes = request.SerializeToString()
    return serialized + field + bytes((size,)) + content


def called(channel: grpc.Channel, method: str, raw: bytes) -> Any:
    """The answer's bytes, or the error."""
    call: Any = channel.unary_unary(method)
    try:
        return call(raw, timeout=PATIENCE)
    except grpc.RpcError as error:
        return error


def test_compressed_request_is_answered(packing):
    raw = called(packing, EVALUATE, padded(evaluate_request(), 10_000))
    assert decision_service_pb2.EvaluatePodResponse.FromString(raw).feasible_node_count == 1


def test_compressed_write_is_written(packing):
    request = cluster_state_service_pb2.ApplyObjectsRequest(
        objects=[node(f"n{i}", "a") for i in range(100)]
    )
    raw = called(
        packing, "/topospread.v1.ClusterStateService/ApplyObjects", request.SerializeToString()
    )
    assert len(cluster_state_service_pb2.ApplyObjectsResponse.FromString(raw).results) == 100


def test_compressed_health_check_is_answered(packing):
    raw = called(packing, CHECK, padded(health_pb2.HealthCheckRequest(), 5000))
    assert health_pb2.HealthCheckResponse.FromString(raw).status == 1


@pytest.mark.parametrize("compression", list(grpc.Compression), ids=lambda each: each.name)
def test_request_about_one_pod_is_bounded(server, compression):
    with grpc.insecure_channel(server.address, compression=compression) as channel:
        error = called(channel, EVALUATE, padded(evaluate_request(), 4 * MIB))
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert (
            error.details() == f"the request is larger than {4 * MIB} bytes (--max-decision-bytes)"
        )
        raw = called(channel, EVALUATE, padded(evaluate_request(), 3 * MIB))
        assert decision_service_pb2.EvaluatePodResponse.FromString(raw).feasible_node_count == 1
        explain = decision_service_pb2.ExplainPodRequest(pod=evaluate_request().pod)
        error = called(channel, EXPLAIN, padded(explain, 4 * MIB))
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        raw = called(channel, EXPLAIN, padded(explain, 3 * MIB))
        explained = decision_service_pb2.ExplainPodResponse.FromString(raw).explanation
        assert explained.feasible_node_count == 1
        batch = decision_service_pb2.BatchEvaluatePodsRequest(pods=[evaluate_request().pod])
        raw = called(channel, BATCH, padded(batch, 12 * MIB))
        assert decision_service_pb2.BatchEvaluatePodsResponse.FromString(raw).results


@pytest.mark.parametrize("compression", list(grpc.Compression), ids=lambda each: each.name)
def test_health_check_request_is_bounded(server, compression):
    with grpc.insecure_channel(server.address, compression=compression) as channel:
        error = called(channel, CHECK, padded(health_pb2.HealthCheckRequest(), 17_000))
        assert error.code() is CODE.RESOURCE_EXHAUSTED


def test_compressed_message_is_decompressed_within_the_limit():
    content = bytes(1000)
    for packed in (gzip.compress(content), zlib.compress(content)):
        assert decompressed(packed, SizeLimit(1000)) == content
        with pytest.raises(LimitExceeded, match="larger than 999 bytes"):
            decompressed(packed, SizeLimit(999))
    # gzip's own word for its size is not believed.
    lying = gzip.compress(content)[:-4] + b"\1\0\0\0"
    with pytest.raises((LimitExceeded, InvalidRequest)):
        decompressed(lying, SizeLimit(999))


def test_broken_compression_is_an_invalid_request():
    packed = zlib.compress(bytes(1000))
    with pytest.raises(InvalidRequest, match="cut short"):
        decompressed(packed[:-5], SizeLimit(1000))
    for packed in (gzip.compress(bytes(1000)), zlib.compress(bytes(1000))):
        with pytest.raises(InvalidRequest, match="broken"):
            decompressed(packed[:12] + b"\xff" * 10 + packed[12:], SizeLimit(1000))


def test_no_request_begins_like_a_compressed_one():
    requests = [
        method.input_type
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    frames = frames_pb2.DESCRIPTOR.message_types_by_name.values()
    for message in (*requests, *frames):
        # Field 15 as a varint is 0x78. 0x1f, gzip's first byte, is a wire type that does not exist.
        field = message.fields_by_number.get(15)
        assert field is None or field.message_type or field.type in {9, 12}  # text or bytes
