"""The yardsticks: servers set up like ours whose EvaluatePod takes bytes and answers none.

`python -m bench.echo` is a process as `topospread serve` makes it, with the same
settings, clusters and thread pools. Only the handler is bare: no span, no metrics, no parsing.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import grpc
from typing_extensions import override

from bench.processes import started
from topospread.app import factories
from topospread.app.server import Server
from topospread.app.stop_event import StopEvent
from topospread.config.loading import load_settings
from topospread.servicers.calls import Call, Unary
from topospread.servicers.decision import SERVICE
from topospread.transports.grpc.pipeline import CallPipeline
from topospread.transports.grpc.server import GrpcServer
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.processes import Running
    from topospread.servicers.calls import Method
    from topospread.transports.grpc.transport import Handler


GRPCIO: Final = {
    "TOPOSPREAD_TRANSPORT": "grpcio-threads",
    "TOPOSPREAD_DECISION_THREADS": "2",
}
"""Calls are served by grpcio's own threads; two are the fastest there."""

COMPLETION_QUEUE: Final = {"TOPOSPREAD_TRANSPORT": "grpcio"}
"""Calls come as decisions do."""


def echo_server(store: str, way: Mapping[str, str]) -> AbstractContextManager[Running]:
    """Start one in a process of its own, on the store that the measured server follows.

    Args:
        store: its URL.
        way: how calls come, :data:`GRPCIO` or :data:`COMPLETION_QUEUE`.
    """
    return started(("-m", __name__), {"TOPOSPREAD_STORE": store, **way})


class _EchoGrpcServer(GrpcServer):
    """A gRPC server whose handlers do nothing."""

    @override
    def _handler(self, service: str, name: str, method: Method, pool: str) -> Any:
        return _Empty(name)


class _Empty:
    """Answers nothing, without looking."""

    guarded = streaming = False

    def __init__(self, name: str) -> None:
        self.name = name

    def respond(self, *arguments: Any) -> bytes:
        """See :class:`~topospread.transports.grpc.transport.Handler`."""
        return b""


class _ThreadEcho:
    """The transport of a grpcio server as its tutorial has it: one function on a pool's threads."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def register(self, server: grpc.Server, service: str, handlers: Sequence[Handler]) -> None:
        def empty(raw: bytes, context: grpc.ServicerContext) -> bytes:
            return b""

        empty.experimental_thread_pool = self._pool  # type: ignore[attr-defined] # grpcio's own hook
        methods: Any = {
            handler.name: grpc.unary_unary_rpc_method_handler(empty) for handler in handlers
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

    def start(self, on_broken: Callable[[], object]) -> None:
        """The server of grpcio brings the calls by itself."""

    def stop(self) -> None:
        """The server of grpcio brings the calls by itself."""


def _nothing(request: pb.EvaluatePodRequest, call: Call) -> bytes:
    raise NotImplementedError("the bare pipeline answers by itself")


class EchoServer(Server):
    """A server with one method that does nothing."""

    @override
    def _grpc_server(self) -> GrpcServer:
        pools = self.pools
        if self.settings.transport == factories.THREADS:
            pools = replace(pools, decision_transport=_ThreadEcho(pools.decisions))
        return _EchoGrpcServer(
            CallPipeline(self._tracing, self.metrics),
            {SERVICE: {"EvaluatePod": (Unary(pb.EvaluatePodRequest, _nothing), "decisions")}},
            pools,
            factories.grpc_options(self.settings),
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
