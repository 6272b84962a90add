"""What a server does so that gRPC's own retries work for callers in other languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.client.manifests import node, pod
from tests.client.scripted import Failure, evaluation
from tests.servers import served
from tests.waiting import PATIENCE
from topospread.api import placement as api
from topospread.calls.status import status_of, trailers
from topospread.errors import NotFound, QueueFull, StoreUnavailable, TooLarge
from topospread.service.placement import place as service
from topospread_client import Client, pod_from_manifest
from topospread_client._methods import METHODS
from topospread_proto.v1.cluster_state_service_pb2 import DeleteObjectsRequest
from topospread_proto.v1.common_pb2 import PodSource
from topospread_proto.v1.decision_service_pb2 import EvaluatePodRequest
from topospread_proto.v1.placement_service_pb2 import ReserveNodeRequest

CONFIG = (Path(__file__).parents[2] / "docs/service-config.json").read_text()
GONE = Failure(grpc.StatusCode.UNAVAILABLE, "gone")


def method(channel: grpc.Channel, name: str) -> Any:
    found = METHODS[name]
    return channel.unary_unary(
        found.path, found.request.SerializeToString, found.response.FromString
    )


@pytest.mark.parametrize(
    ("error", "pushback"),
    [
        (QueueFull.of("decisions"), "positive"),
        (StoreUnavailable("away", 0.25), "250"),
        (TooLarge("too large", "x", 1), "-1"),
        (NotFound("gone", "Pod", "p", "c"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_when_to_try_again(error, pushback):
    sent = dict[str, Any](trailers(status_of(error), "", error)).get("grpc-retry-pushback-ms")
    if pushback == "positive":
        assert int(sent or "") > 0
    else:
        assert sent == pushback


def test_grpc_repeats_what_the_service_config_names(script):
    script.answer(METHODS["EvaluatePod"], GONE, evaluation("r"))
    script.answer(METHODS["DeleteObjects"], GONE)
    options = [("grpc.service_config", CONFIG)]
    with grpc.insecure_channel(script.address, options=options) as channel:
        answer = method(channel, "EvaluatePod")(EvaluatePodRequest(), timeout=PATIENCE)
        assert answer.meta.revision == "r"
        with pytest.raises(grpc.RpcError):
            method(channel, "DeleteObjects")(DeleteObjectsRequest(), timeout=PATIENCE)
    assert script.calls(METHODS["EvaluatePod"]) == 2
    assert script.calls(METHODS["DeleteObjects"]) == 1


def test_a_repeat_by_grpc_itself_is_a_repeat(monkeypatch):
    """Another call reserves a node between the two tries: that reservation stays."""
    really, losses = service.reserve, [StoreUnavailable("away", 0.01)]
    request = ReserveNodeRequest(
        pod=PodSource(object=pod_from_manifest(pod("p"))), node="n-a", request_id="mine"
    )
    config = json.loads(CONFIG)
    config["methodConfig"][0]["name"].append({"service": "topospread.v1.PlacementService"})
    options = [("grpc.service_config", json.dumps(config))]
    with (
        served() as server,
        Client(server.address) as other,
        grpc.insecure_channel(server.address, options=options) as channel,
    ):
        other.apply_objects([node("n-a", "a"), node("n-b", "b")])
        other.reserve_node(pod("p"), "n-b")

        def reserve(*args: Any) -> Any:
            if losses:
                raise losses.pop()
            return really(*args)

        monkeypatch.setattr(api, "reserve", reserve)
        with pytest.raises(grpc.RpcError) as refused:
            method(channel, "ReserveNode")(request, timeout=PATIENCE)
        assert refused.value.code() is grpc.StatusCode.ABORTED
        assert [each.node for each in other.list_reservations()] == ["n-b"]
