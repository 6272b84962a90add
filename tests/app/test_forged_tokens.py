"""Tokens that nobody gave out: refused as input or as out of range, on every method and store."""

from __future__ import annotations

import base64
import io
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from tests.redis_server import RedisProcess
from tests.servers import Peer, evaluate_request, served, two_zones
from tests.waiting import PATIENCE
from topospread.telemetry.logs import start_logging
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import (
    common_pb2,
    decision_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

REFUSED = {grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.INVALID_ARGUMENT}
CYCLES = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION}
NUMBERS = [
    *("-1", "-9223372036854775809", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551615", "18446744073709551616", "9" * 4300, "9" * 5000, "-" + "9" * 4300),
    *("1_0", "+1", " 1", "1\n", "01", "1.0", "1e3", "", "0x1", "nan"),
]
ODD = ["\u0661", "\u00b2", "\uff11"]


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


FILES = (decision_service_pb2, pb, placement_service_pb2, planner_service_pb2)
FIELDS = {"consistency", "page_token", "revision", "cycle"}
METHODS = [
    method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if FIELDS & set(method.input_type.fields_by_name)
]


@pytest.fixture(scope="module", params=["sqlite", "redis", "memory"])
def peer(request, tmp_path_factory):
    """A server of a store that nobody else writes to: its log has nothing to tell but of tokens."""
    directory = tmp_path_factory.mktemp("forged")
    with ExitStack() as running:
        store = "memory:"
        if request.param == "sqlite":
            store = f"sqlite:///{directory}/state.db"
        elif request.param == "redis":
            binary = request.getfixturevalue("redis_binary")
            store = running.enter_context(RedisProcess(directory, binary=binary)).url
        server = running.enter_context(served(store=store))
        peer = running.enter_context(Peer(server.address))
        peer.apply(*two_zones())
        peer.await_revision(peer.apply(*two_zones()))
        yield peer


def forged(peer: Peer) -> list[str]:
    """Tokens with the identity and the tag of a real one, and others."""
    real = peer.apply(*two_zones())
    text = base64.urlsafe_b64decode(real + "=" * (-len(real) % 4)).decode()
    identity, _, tag = text.split(".")
    made = [f"{identity}.{number}.{tag}" for number in (*NUMBERS, *ODD)]
    beside = ["", ".", "..", f"{identity}.1", f"{identity}.1.{tag}.x", f"x.1.{tag}"]
    return [*map(encoded, made + beside[1:]), "!", "\u0661", "\0", "A" * 1_000_000]


def requests(method: Any, token: str) -> list[Any]:
    """The request of a method, otherwise as it should be, with a token wherever it takes one."""
    kind = method.input_type._concrete_class
    made = []
    for field in FIELDS & set(method.input_type.fields_by_name):
        request = kind()
        for name, value in (("kind", common_pb2.KIND_POD), ("name", "web-0")):
            if name in method.input_type.fields_by_name:
                setattr(request, name, value)
        if isinstance(getattr(request, "pod", None), common_pb2.PodReference):
            request.pod.name = "web-0"
        elif "pod" in method.input_type.fields_by_name and field != "cycle":
            request.pod.MergeFrom(evaluate_request().pod)
        if field == "consistency":
            request.consistency.at_least_as_fresh = token
        else:
            setattr(request, field, token)
        made.append(request)
    return made


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_forged_token_is_refused_and_is_no_fault_of_the_server(peer, method):
    stream = io.StringIO()
    output = start_logging("warning", "json", stream)
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any = peer.channel.stream_stream(path)
    try:
        for token in forged(peer):
            for request in requests(method, token):
                raw = request.SerializeToString()
                with pytest.raises(grpc.RpcError) as refused:
                    list(call(iter([raw]), timeout=PATIENCE))
                known = REFUSED | CYCLES if getattr(request, "cycle", "") else REFUSED
                assert refused.value.code() in known, (token[:80], refused.value.details())
    finally:
        output.close()
    assert stream.getvalue() == ""
