"""The yardsticks: servers set up like ours whose EvaluatePod takes bytes and answers none.

`python -m bench.echo` is a process as `topospread serve` makes it, with the same
settings, clusters and thread pools. Only the handler is bare: no span, no metrics, no parsing.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc
from typing_extensions import override

from bench.processes import started
from topospread.access.callers import ANONYMOUS
from topospread.app import factories
from topospread.app.server import Server
from topospread.app.stop_event import StopEvent
from topospread.config.loading import load_settings
from topospread.transports.grpc.calls import Call, Unary
from topospread.transports.grpc.decision import SERVICE
from topospread.transports.grpc.pipeline import CallPipeline
from topospread.transports.grpc.server import GrpcServer
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from bench.processes import Running
    from topospread.access.callers import Caller
    from topospread.transports.grpc.direct_call import Answers, DirectCall


GRPCIO: Final = {"TOPOSPREAD_DIRECT_CALLS": "false", "TOPOSPREAD_DECISION_THREADS": "2"}
"""Calls are served by grpcio's own threads; two are the fastest there."""

DIRECT: Final = {"TOPOSPREAD_DIRECT_CALLS": "true"}
"""Calls take the way that decisions take."""


def echo_server(store: str, way: Mapping[str, str]) -> AbstractContextManager[Running]:
    """Start one in a process of its own, on the store that the measured server follows.

    Args:
        store: its URL.
        way: how calls are served, :data:`GRPCIO` or :data:`DIRECT`.
    """
    return started(("-m", __name__), {"TOPOSPREAD_STORE": store, **way})


class _Bare(CallPipeline):
    """A pipeline that does nothing."""

    @override
    def handler(self, *arguments: Any, **named: Any) -> grpc.RpcMethodHandler[Any, Any]:
        pool = arguments[3]

        def empty(raw: bytes, context: grpc.ServicerContext) -> bytes:
            return b""

        empty.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.unary_unary_rpc_method_handler(empty)

    @override
    def direct_handler(self, *arguments: Any, **named: Any) -> Answers:
        return _Empty()


class _Empty:
    """Answers nothing, without looking."""

    guarded = False

    def admit(self, call: DirectCall) -> Caller:
        return ANONYMOUS

    def respond(self, *arguments: Any) -> bytes:
        return b""

    def rejected(self) -> None:
        raise NotImplementedError("the bench asks for no more than a line takes")


def _nothing(request: pb.EvaluatePodRequest, call: Call) -> bytes:
    raise NotImplementedError("the bare pipeline answers by itself")


class EchoServer(Server):
    """A server with one method that does nothing."""

    @override
    def _grpc_server(self) -> GrpcServer:
        return GrpcServer(
            _Bare(self._tracing, self.metrics),
            {SERVICE: {"EvaluatePod": (Unary(pb.EvaluatePodRequest, _nothing), "decisions")}},
            self.pools,
            factories.grpc_options(self.settings, reuse_port=False),
        )


def main() -> None:
    """Serve until SIGTERM."""
    flags = {"listen": "127.0.0.1:0", "http": "off", "preload": "default", "log_level": "warning"}
    done = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    with EchoServer(load_settings(flags, os.environ)) as server:
        sys.stdout.write(f"echo listens on {server.address}\n")
        sys.stdout.flush()
        done.wait()


if __name__ == "__main__":
    main()
