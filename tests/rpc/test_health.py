"""Health watches block no call: neither those that end nor those that nobody reads."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.campaigns.attacker import Line, short
from tests.servers import Peer, served
from tests.waiting import PATIENCE, until

CODE = grpc.StatusCode
STATUS = health_pb2.HealthCheckResponse
WATCH = "/grpc.health.v1.Health/Watch"


def stub(peer: Peer) -> Any:
    return health_pb2_grpc.HealthStub(peer.channel)


def asked(service: str = "") -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def answered(health: Any) -> bool:
    return bool(health.Check(asked(), timeout=PATIENCE).status == STATUS.SERVING)


def test_health_watches_that_end_at_once_block_no_call():
    with served() as server, ExitStack() as stack:
        callers = [stub(stack.enter_context(Peer(server.address))) for _ in range(3)]
        for _ in range(200):
            watches = [health.Watch(asked()) for _ in range(20) for health in callers]
            for watch in watches:
                watch.cancel()
            assert answered(callers[0])
        assert next(callers[1].Watch(asked(), timeout=PATIENCE)).status == STATUS.SERVING


def test_unread_health_watches_block_no_call():
    with served() as server, Peer(server.address) as peer, ExitStack() as stack:
        line = Line(server.address, takes=0)
        stack.callback(line.close)
        for _ in range(20):
            line.call(WATCH, short())

        def some_are_open() -> bool:
            line.pump()
            return bool(server.grpc.health._sent)

        until(some_are_open, "some are open")
        honest = stub(peer).Watch(asked(), timeout=PATIENCE)
        assert next(honest).status == STATUS.SERVING
        assert answered(stub(peer))
        stopping = threading.Thread(target=server.stop, daemon=True)
        stopping.start()
        assert next(honest).status == STATUS.NOT_SERVING
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


def test_health_of_an_unknown_service():
    with served() as server, Peer(server.address) as peer:
        with pytest.raises(grpc.RpcError) as refused:
            stub(peer).Check(asked("no.Service"), timeout=PATIENCE)
        assert refused.value.code() is CODE.NOT_FOUND
        watch = stub(peer).Watch(asked("no.Service"), timeout=PATIENCE)
        assert next(watch).status == STATUS.SERVICE_UNKNOWN
        watch.cancel()
        assert (
            next(stub(peer).Watch(asked("topospread.v1.PlacementService"))).status == STATUS.SERVING
        )
