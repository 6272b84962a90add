"""The frame around every call: parse, span, serve, encode, count.

Servicers are plain functions from a request message and a :class:`Call` to an answer; they raise
the errors of :mod:`topospread.errors` and never touch gRPC's context. What is around them stands
here once, so that no handler keeps its own books.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from topospread.errors import DeadlineExceeded, InvalidRequest, LimitExceeded
from topospread.transports.grpc.executor import BoundedExecutor, overloaded
from topospread.transports.grpc.failures import Failure, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.telemetry.metrics import CallMeter, Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for callers that state no deadline."""

LONGEST_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline is none."""

_Request = TypeVar("_Request", bound=Message)
Answer = Message | bytes


@dataclass(slots=True)
class Call:
    """What a servicer may know of the call it serves.

    Attributes:
        span: of the call.
        deadline: on the monotonic clock.
        active: whether the caller is still there; for long streams.
    """

    span: CallSpan
    deadline: float
    active: Callable[[], bool]

    def left(self) -> float:
        """Seconds until the deadline; never below a millisecond, so that a last try is made."""
        return max(0.001, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class Unary(Generic[_Request]):
    """A method with one request and one answer; bytes are a message serialized already."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Answer]


@dataclass(frozen=True, slots=True)
class UnaryBytes:
    """A method with one request and one answer that reads its request by itself."""

    serve: Callable[[bytes, Call], Answer]


@dataclass(frozen=True, slots=True)
class StreamIn(Generic[_Request]):
    """A method with a stream of requests and one answer."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request], Call], Answer]


@dataclass(frozen=True, slots=True)
class StreamOut(Generic[_Request]):
    """A method with one request and a stream of answers."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Iterable[Answer]]


Method = Unary[Any] | UnaryBytes | StreamIn[Any] | StreamOut[Any]


class Frame:
    """Wraps servicers' methods for a server.

    Args:
        tracing: starts spans.
        metrics: counts calls.
        clock: seconds that only grow; deadlines are on it.
    """

    def __init__(self, tracing: Tracing, metrics: Metrics) -> None:
        self._tracing = tracing
        self._metrics = metrics

    def wrap(
        self, service: str, name: str, method: Method, pool: BoundedExecutor, pool_name: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that runs on a pool.

        grpcio takes a method's pool from an attribute of the function it calls, which must be a
        closure: bound methods have no attributes.
        """
        framed = _Framed(self, f"/{service}/{name}", f"{service.rsplit('.')[-1]}/{name}", pool_name)
        if isinstance(method, Unary | UnaryBytes):

            def unary(raw: bytes, context: grpc.ServicerContext) -> bytes:
                return framed.unary(method, raw, context)

            unary.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.unary_unary_rpc_method_handler(unary)
        if isinstance(method, StreamIn):

            def stream_in(raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
                return framed.stream_in(method, raws, context)

            stream_in.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.stream_unary_rpc_method_handler(stream_in)

        def stream_out(raw: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return framed.stream_out(method, raw, context)

        stream_out.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.unary_stream_rpc_method_handler(stream_out)

    def begin(self, method: str, context: grpc.ServicerContext) -> CallSpan:
        """Start a call's span."""
        return self._tracing.start(method, context.invocation_metadata())

    def meter(self, label: str) -> CallMeter:
        """The meter of a method."""
        return self._metrics.call(label)

    def rejected(self, pool_name: str) -> None:
        """Count a call that found the line full."""
        self._metrics.rejection(pool_name)


class _Framed:
    """One method in its frame."""

    def __init__(self, frame: Frame, method: str, label: str, pool_name: str) -> None:
        self._frame = frame
        self._method = method
        self._meter = frame.meter(label)
        self._pool_name = pool_name

    def unary(
        self, method: Unary[Any] | UnaryBytes, raw: bytes, context: grpc.ServicerContext
    ) -> bytes:
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            call = self._admit(span, context)
            if isinstance(method, UnaryBytes):
                answer = method.serve(raw, call)
            else:
                answer = method.serve(parse(method.request, raw), call)
            payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)
        return payload

    def stream_in(
        self, method: StreamIn[Any], raws: Iterator[bytes], context: grpc.ServicerContext
    ) -> bytes:
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            call = self._admit(span, context)
            requests = (parse(method.request, raw) for raw in raws)
            answer = method.serve(requests, call)
            payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)
        return payload

    def stream_out(
        self, method: StreamOut[Any], raw: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            call = self._admit(span, context)
            for answer in method.serve(parse(method.request, raw), call):
                yield answer if isinstance(answer, bytes) else answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)

    def _admit(self, span: CallSpan, context: grpc.ServicerContext) -> Call:
        if overloaded():
            self._frame.rejected(self._pool_name)
            raise LimitExceeded(f"too many {self._pool_name} calls are in line: try again later")
        left = context.time_remaining()
        if left <= 0:
            raise DeadlineExceeded("the call's deadline passed before it was begun")
        # Without a deadline grpcio answers the years until the end of its clock.
        seconds = DEFAULT_DEADLINE if left > LONGEST_DEADLINE else left
        return Call(span, time.monotonic() + seconds, context.is_active)

    def _done(self, span: CallSpan, context: grpc.ServicerContext, started: float) -> None:
        context.set_trailing_metadata((("traceparent", span.traceparent),))
        span.end(0)
        self._meter.done("OK", time.perf_counter() - started)

    def _failed(
        self, error: Exception, span: CallSpan, context: grpc.ServicerContext, started: float
    ) -> NoReturn:
        failure = failure_of(error)
        span.end(failure.code.value[0], error)
        self._meter.done(failure.code.name, time.perf_counter() - started)
        end_with(failure, span, context)


def end_with(failure: Failure, span: CallSpan, context: grpc.ServicerContext) -> NoReturn:
    """End a call with a status, its details and the trace that tells more.

    The status goes out alone: after a message, even an empty one, no client's retry policy would
    repeat the call.
    """
    trailers: list[tuple[str, str | bytes]] = [("traceparent", span.traceparent)]
    if failure.details:
        trailers.append(("grpc-status-details-bin", failure.status().SerializeToString()))
    context.set_trailing_metadata(tuple(trailers))
    context.abort(failure.code, failure.message)


def parse(kind: type[_Request], raw: bytes) -> _Request:
    """Read a message.

    Raises:
        InvalidRequest: grpcio would answer INTERNAL if it parsed by itself.
    """
    try:
        return kind.FromString(raw)
    except DecodeError as cause:
        raise InvalidRequest(
            f"the request does not parse as {kind.DESCRIPTOR.full_name}"
        ) from cause


def handlers(
    frame: Frame, service: str, methods: Sequence[tuple[str, Method, BoundedExecutor, str]]
) -> grpc.GenericRpcHandler:
    """All methods of a service: (name, method, pool, the pool's name)."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: frame.wrap(service, name, method, pool, label)
            for name, method, pool, label in methods
        },
    )
