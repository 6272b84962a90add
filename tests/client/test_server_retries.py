"""What a server does so that a client's retry policy can work."""

from __future__ import annotations

import json

import grpc
import pytest

from tests.servers import served
from topospread_client import _rpcs as rpcs
from topospread_proto.v1.decision_service_pb2 import EvaluatePodRequest

POLICY = {
    "maxAttempts": 3,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.01s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["NOT_FOUND"],
}


def test_a_failed_call_can_be_repeated_by_grpc_itself():
    """gRPC repeats a call only if its failure came without any message before it."""
    config = {"methodConfig": [{"name": [{}], "retryPolicy": POLICY}]}
    options = [("grpc.service_config", json.dumps(config))]
    with (
        served() as server,
        grpc.insecure_channel(server.address, options=options) as channel,
    ):
        evaluate: grpc.UnaryUnaryMultiCallable = channel.unary_unary(
            rpcs.EVALUATE_POD.path, request_serializer=EvaluatePodRequest.SerializeToString
        )
        request = EvaluatePodRequest(cluster="missing")
        request.pod.object.metadata.name = "incoming"
        with pytest.raises(grpc.RpcError) as failed:
            evaluate(request, timeout=60)
        metrics = server.metrics.expose()[0].decode()
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    labels = '{code="NOT_FOUND",method="DecisionService/EvaluatePod"}'
    assert f"topospread_calls_total{labels} 3.0" in metrics.splitlines()
