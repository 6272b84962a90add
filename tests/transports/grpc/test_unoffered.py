"""Calls of the API that a version does not have say so, however they are made."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.servers import PATIENCE, settings
from topospread.app import parts
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.metrics import Metrics
from topospread.transports.grpc.frame import Frame
from topospread.transports.grpc.server import GrpcServer
from topospread.transports.grpc.unoffered import completed

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = version("topospread")


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """A server that offers nothing of the API."""
    chosen = settings()
    pools = parts.make_pools(chosen)
    tracing = tracing_from_environment(VERSION)
    server = GrpcServer(
        Frame(tracing, Metrics(VERSION)),
        completed({}, VERSION),
        pools,
        parts.grpc_options(chosen, reuse_port=False),
    )
    port = server.listen("127.0.0.1:0", None)
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(0)
    pools.shutdown()
    tracing.close()


@pytest.mark.parametrize("name", ["DecisionService/EvaluatePod", "PlannerService/PlanRebalance"])
@pytest.mark.parametrize("raw", [b"", b"\xff"])
def test_what_a_version_does_not_have_says_so(channel, name, raw):
    call: Any = channel.unary_unary(f"/topospread.v1.{name}")
    with pytest.raises(grpc.RpcError) as failed:
        call(raw, timeout=PATIENCE)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED
    text = f"{name.replace('/', '.')} is not part of topospread {VERSION}"
    assert failed.value.details() == text
