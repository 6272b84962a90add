"""Calls that grpcio's own server hands to a pool: public API alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.threads.executor import BoundedExecutor, StreamExecutor
    from topospread.transports.grpc.transport import Context, Handler, StreamContext


class ThreadTransport:
    """A :class:`~topospread.transports.grpc.transport.Transport` whose calls hold a thread each.

    Args:
        pool: of calls with one response.
        streams: of calls with a stream of them.
    """

    def __init__(self, pool: BoundedExecutor, streams: StreamExecutor) -> None:
        self._pool = pool
        self._streams = streams

    def register(self, server: grpc.Server, service: str, handlers: Sequence[Handler]) -> None:
        """See :class:`~topospread.transports.grpc.transport.Transport`."""
        methods = {handler.name: self._method(handler) for handler in handlers}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

    def start(self, on_broken: Callable[[], object]) -> None:
        """The server of grpcio brings the calls by itself."""

    def stop(self) -> None:
        """The server of grpcio brings the calls by itself."""

    def _method(self, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler as grpcio has it.

        It takes a stream of requests also where there is only one: the call is then ours before its
        message is there, so that a full queue is reported at once and a silent caller is noticed.

        grpcio takes a method's pool from an attribute of the function it calls, which must be a
        closure: bound methods have no attributes.
        """
        if handler.streaming:

            def stream(raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
                return handler.stream(raws, context)

            stream.experimental_thread_pool = self._streams  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.stream_stream_rpc_method_handler(stream)

        def single(raws: Iterator[bytes], context: Context) -> bytes:
            return handler.unary(raws, context)

        single.experimental_thread_pool = self._pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.stream_unary_rpc_method_handler(single)
