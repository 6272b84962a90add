"""The yardsticks: servers set up like ours whose EvaluatePod takes bytes and answers none.

`python -m bench.echo` is a process as `topospread serve` makes it, with the same
settings, clusters and threads. Only the handler is bare: no span, no metrics, no parsing.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc
from typing_extensions import override

from bench.processes import started
from topospread.app.listeners import grpc_options
from topospread.app.server import Server
from topospread.app.stop_event import StopEvent
from topospread.calls.call import Call, Unary
from topospread.calls.pipeline import Pipeline
from topospread.config.loading import load_settings
from topospread.rpc.server import GrpcServer
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from bench.processes import Running
    from topospread.calls.call import Method

GRPCIO: Final = "grpcio"
"""Calls are served by grpcio's own threads; two are the fastest there."""

COMPLETION_QUEUE: Final = "completion-queue"
"""Calls come as decisions do."""


SERVICE: Final = "topospread.v1.DecisionService"


def echo_server(store: str, way: str) -> AbstractContextManager[Running]:
    """Start one in a process of its own, on the store that the measured server follows.

    Args:
        store: its URL.
        way: how calls come, :data:`GRPCIO` or :data:`COMPLETION_QUEUE`.
    """
    return started(("-m", __name__, way), {"TOPOSPREAD_STORE": store})


class _BarePipeline(Pipeline):
    """Answers nothing, without looking."""

    @override
    def respond(self, call: Call) -> bytes:
        return b""


class _GrpcioServer(GrpcServer):
    """A grpcio server as its tutorial has it: one function on a pool's threads."""

    @override
    def _serve(self, service: str, methods: Mapping[str, Method], pipeline: Pipeline) -> None:
        if service != SERVICE:
            super()._serve(service, methods, pipeline)
            return

        def empty(raw: bytes, context: grpc.ServicerContext) -> bytes:
            return b""

        empty.experimental_thread_pool = ThreadPoolExecutor(2)  # type: ignore[attr-defined] # grpcio's own hook
        handlers: Any = {name: grpc.unary_unary_rpc_method_handler(empty) for name in methods}
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server.add_generic_rpc_handlers((generic,))


def _nothing(request: pb.EvaluatePodRequest, call: Call) -> bytes:
    raise NotImplementedError("the bare pipeline answers by itself")


class EchoServer(Server):
    """A server with one method that does nothing.

    Attributes:
        way: how calls come.
    """

    way = COMPLETION_QUEUE

    @override
    def _grpc_server(self) -> GrpcServer:
        kind = _GrpcioServer if self.way == GRPCIO else GrpcServer
        return kind(
            _BarePipeline(self.parts.calls),
            {f"{SERVICE}/EvaluatePod": Unary(pb.EvaluatePodRequest, _nothing)},
            self.pools,
            grpc_options(self.settings),
        )


def main(way: str) -> None:
    """Serve until SIGTERM."""
    flags = {"listen": "127.0.0.1:0", "http": "off", "preload": "default", "log_level": "warning"}
    done = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    EchoServer.way = way
    with EchoServer(load_settings(flags, os.environ)) as server:
        sys.stdout.write(f"echo listens on {server.address}\n")
        sys.stdout.flush()
        done.wait()


if __name__ == "__main__":
    main(sys.argv[1])
