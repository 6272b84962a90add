"""What differs between blocking and asyncio calls: threads or a loop, and what gRPC raises."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import grpc.aio

from topospread_client._arguments import checked
from topospread_client._connection import CLOSED, Channels, Connection
from topospread_client._credentials import token_files
from topospread_client._errors import Closed, TopospreadClientError, invalid
from topospread_client._status import GrpcFailure, error_of, had_started, stream_ended

if TYPE_CHECKING:
    from topospread_client._methods import Method


def options_of(connection: Connection | str) -> Connection:
    """Options of a connection to an address."""
    if isinstance(connection, str):
        return Connection(connection)
    return checked(Connection, connection, "connection")


def trace_metadata(traceparent: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata with the parent of the server's span; None takes the current OpenTelemetry span."""
    if traceparent is not None:
        checked(str, traceparent, "traceparent")
        if not traceparent.isascii() or not traceparent.isprintable():
            raise invalid("traceparent", f"{traceparent!r} is no W3C trace context")
        return (("traceparent", traceparent),)
    # Unless OpenTelemetry was imported there is no span, and nothing to import for it.
    trace = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return ()
    ids = f"{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    state: str = context.trace_state.to_header()
    return (("traceparent", f"00-{ids}"), *([("tracestate", state)] if state else []))


class _Transport:
    """What both have in common."""

    END: Final = grpc.aio.EOF
    """What is read at the end of a stream."""

    had_started = staticmethod(had_started)
    stream_ended = staticmethod(stream_ended)

    def __init__(self, connection: Connection, library: Any, closing: Any) -> None:
        self._token = token_files(connection.token, connection.token_file)
        self._channels = Channels(connection, library)
        self._closing = closing

    def begin(
        self, method: Method, request: Any, timeout: float | None, traceparent: str | None
    ) -> Any:
        """Make a call: its answer, or the stream that has its messages."""
        stub = self._channels.current().of(method)
        self._token.changed()
        metadata = trace_metadata(traceparent) + self._token.value
        return stub(request, timeout=timeout, metadata=metadata)

    def _error(self, failed: BaseException) -> TopospreadClientError:
        closed = self._channels.closed
        error: TopospreadClientError
        if isinstance(failed, grpc.RpcError):
            error = error_of(cast("GrpcFailure", failed))
            if closed and error.code is grpc.StatusCode.CANCELLED:
                error = Closed(CLOSED)
        else:
            error = Closed(CLOSED) if closed else invalid("metadata", str(failed))
        error.__cause__ = failed
        return error


class Transport(_Transport):
    """Blocking calls. Threads may share it."""

    failures: Final = (grpc.RpcError, ValueError)
    """What gRPC raises: for a failed call, and for a closed channel or wrong metadata."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, grpc, threading.Event())

    def read(self, stream: Any) -> Any:
        """The next message of a stream, or END."""
        return next(stream, self.END)

    def pause(self, seconds: float) -> None:
        """Wait, and no longer than until this is closed."""
        self._closing.wait(seconds)

    def cancels(self) -> int:
        """How often the caller's task was cancelled; threads are not."""
        return 0

    def error(self, failed: BaseException, cancels: int = 0) -> TopospreadClientError:
        """Error to raise for an exception of gRPC."""
        return self._error(failed)

    def close(self) -> None:
        """End all calls, from any thread."""
        channels = self._channels.close()
        self._closing.set()
        for channel in channels:
            channel.close()


class AsyncTransport(_Transport):
    """Awaited calls, in the event loop that this is made in; methods are those of `Transport`."""

    failures: Final = (
        *(grpc.aio.AioRpcError, grpc.aio.UsageError, ValueError),
        asyncio.CancelledError,
    )

    def __init__(self, connection: Connection) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(connection, grpc.aio, asyncio.Event())

    async def read(self, stream: Any) -> Any:
        return await stream.read()

    async def pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def cancels(self) -> int:
        task = asyncio.current_task()
        return 0 if task is None else task.cancelling()

    def error(self, failed: BaseException, cancels: int = 0) -> TopospreadClientError:
        """Error to raise, but for a task that is itself cancelled more often than before."""
        # gRPC raises CancelledError, too, in tasks that wait for a call that another ended.
        if isinstance(failed, asyncio.CancelledError) and (
            not self._channels.closed or self.cancels() > cancels
        ):
            raise failed
        return self._error(failed)

    async def close(self) -> None:
        """End all calls, from any event loop."""
        # A loop that does not run would never close it.
        if asyncio.get_running_loop() is self._loop or not self._loop.is_running():
            await self._close()
        else:
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
            await asyncio.wrap_future(closing)

    async def _close(self) -> None:
        channels = self._channels.close()
        # Nothing can be woken in a closed loop: to try raises RuntimeError.
        refused = (RuntimeError,) if self._loop.is_closed() else ()
        with suppress(*refused):
            self._closing.set()
        for channel in channels:
            while True:
                try:
                    await channel.close()
                except refused:
                    continue  # with the next call: this one is cancelled, though not woken
                break
