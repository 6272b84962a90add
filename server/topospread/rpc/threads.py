"""Calls that grpcio's own server hands to an executor: each holds a thread."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from topospread.access.certificates import NO_NAMES, names_of_pem
from topospread.calls.call import Call, call_ended
from topospread.calls.executor import current_work
from topospread.calls.sizes import decompressed
from topospread.calls.status import code_number, status_of, trailers
from topospread.checkpoints import Preempted
from topospread.errors import QueueFull, StreamsFull, code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from topospread.access.certificates import CertificateNames
    from topospread.calls.call import Metadata, ServedMethod
    from topospread.calls.executor import Executor
    from topospread.calls.memory import Sweeper
    from topospread.calls.pipeline import Pipeline
    from topospread.calls.sizes import SizeLimit
    from topospread.errors import TopospreadError
    from topospread.telemetry.spans import CallSpan


class ThreadContext:
    """The :class:`~topospread.calls.call.Context` of a call of grpcio's.

    Args:
        raws: its messages.
        context: grpcio's.
        sweeper: ends it when a message does not come.
        executor: whose thread waits for them.
        streaming: its answers are a stream: it may idle between its messages.
    """

    def __init__(
        self,
        raws: Iterator[bytes],
        context: grpc.ServicerContext,
        sweeper: Sweeper,
        executor: Executor,
        *,
        streaming: bool = False,
    ) -> None:
        self._raws = raws
        self._context = context
        self._sweeper = sweeper
        self._executor = executor
        self._awaits_request = True
        self._streaming = streaming
        self._ended: TopospreadError | None = None
        self._last = b""
        self.is_active = context.is_active
        self.time_remaining = context.time_remaining
        self.add_callback: Callable[[Callable[[], None]], bool] = context.add_callback
        self.peer = context.peer

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the caller sent."""
        return self._context.invocation_metadata()

    def names(self) -> CertificateNames:
        """The names in the caller's verified certificate."""
        return certificate_names(self._context.auth_context())

    def receive(self, limit: SizeLimit) -> bytes | None:
        """Wait for the next message, and unpack it."""
        sweeper = self._sweeper
        reads = self._awaits_request
        # Where each message has its answer, the next one is a request again.
        self._awaits_request = self._streaming
        try:
            with sweeper.read(self.end, self._wanted) if reads else sweeper.wait(self.end):
                self._last = next(self._raws)
        except StopIteration:
            # The end of what the caller has sent, or of the call: gRPC does not always say which.
            if self._ended is not None:
                raise self._ended from None
            if not self._context.is_active():
                raise call_ended(self) from None
            return None
        except grpc.RpcError as cause:
            raise self._ended or call_ended(self) from cause
        return decompressed(self._last, limit)

    def rewind(self) -> None:
        """Receive the last message again, and no more after it."""
        self._raws = iter((self._last,))

    def _wanted(self) -> bool:
        return self._executor.depth > 0

    def end(self, error: TopospreadError) -> None:
        """End the call.

        grpcio's own way to do so from another thread ends each as CANCELLED, as if its caller had.
        What is used instead is not public; where it is missing, that way remains.
        """
        self._ended = error
        status = status_of(error)
        with suppress(AttributeError, TypeError):
            self._context._rpc_event.call.cancel(  # type: ignore[attr-defined] # noqa: SLF001 - see above
                status.code, status.message
            )
            return
        self._context.cancel()

    def send_headers(self, headers: Metadata) -> None:
        """Send the metadata before the first answer."""
        try:
            self._context.send_initial_metadata(headers)
        except grpc.RpcError as cause:
            raise call_ended(self) from cause

    def end_span(self, span: CallSpan, error: Exception | None) -> None:
        """End the call's span."""
        span.end(code_number(error), error)

    def close(self, call: Call) -> None:
        """End a call that failed with its status, by grpcio's exception; others go on.

        The status goes out alone: after a message, even an empty one, no client's retry policy
        would repeat the call.
        """
        error = call.take_error()
        if error is None:
            return
        status = status_of(error, call.span.traceparent)
        self._context.set_trailing_metadata(trailers(status, call.span.traceparent, error))
        self._context.abort(grpc.StatusCode[code_of(error)], status.message)


def certificate_names(certificate: Mapping[str, Any]) -> CertificateNames:
    """The names in a certificate that gRPC has verified.

    Its own texts of them end at a NUL and hold the first common name only.
    """
    shown = certificate.get("x509_pem_cert", ())
    return names_of_pem(shown[0]) if len(shown) == 1 else NO_NAMES


def thread_handler(
    method: ServedMethod, pipeline: Pipeline, executor: Executor
) -> grpc.RpcMethodHandler[Any, Any]:
    """A method's handler as grpcio has it, whose calls run on an executor.

    It takes a stream of requests also where there is only one: the call is then ours before its
    message is there, so that a full queue is reported at once and a silent caller is noticed.

    grpcio takes a method's executor from an attribute of the function it calls.
    """
    sweeper = pipeline.parts.sweeper

    def begin(raws: Iterator[bytes], context: grpc.ServicerContext) -> tuple[Call, ThreadContext]:
        of = ThreadContext(raws, context, sweeper, executor, streaming=method.streaming)
        work = current_work()
        call = Call(method, of, time.perf_counter() if work is None else work.arrived)
        if work is None or work.refused:
            call.refused = StreamsFull() if method.streaming else QueueFull.of(method.executor)
        return call, of

    def single(raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        call, of = begin(raws, context)
        # A decision that is short waits for no turn.
        call.brief = method.turn is not None and not method.shares_turn
        try:
            payload = pipeline.respond(call)
        except Preempted:
            call.brief, call.admitted = False, True  # and has paid its rate
            of.rewind()
            payload = pipeline.respond(call)
        of.close(call)
        return payload

    def stream(raws: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        call, of = begin(raws, context)
        yield from pipeline.responses(call)
        of.close(call)

    if method.streaming:
        stream.experimental_thread_pool = executor  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.stream_stream_rpc_method_handler(stream)
    single.experimental_thread_pool = executor  # type: ignore[attr-defined] # grpcio's own hook
    return grpc.stream_unary_rpc_method_handler(single)
