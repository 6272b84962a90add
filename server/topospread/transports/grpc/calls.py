"""The frame around every call: receive, span, serve, encode, count.

Servicers are plain functions from a request message and a :class:`Call` to an answer; they raise
the errors of :mod:`topospread.errors` and never touch gRPC's context. What is around them stands
here once, so that no handler keeps its own books.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from topospread.access.callers import ANYBODY, Caller
from topospread.errors import (
    CallerGone,
    DeadlineExceeded,
    InvalidRequest,
    LimitExceeded,
    NotOffered,
    TopospreadError,
    Unauthenticated,
    Unavailable,
)
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.transports.grpc.failures import Failure, failure_of
from topospread.transports.grpc.needs import address_of, caller_of, known_as, need_of
from topospread.transports.grpc.pool import Pool, away, overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.access.gate import Gate
    from topospread.access.rates import Rates
    from topospread.telemetry.metrics import CallMeter, Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for callers that state no deadline; streams last."""

LAST_WORDS: Final = 0.5
"""Seconds before the deadline at which a failure is told; a tenth of what is left if that is less.
"""

LONGEST_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline is none."""

_Request = TypeVar("_Request", bound=Message)
Answer = Message | bytes


@dataclass(slots=True)
class Call:
    """What a servicer may know of the call it serves.

    Attributes:
        span: of the call.
        deadline: on the monotonic clock; infinite for a stream whose caller states none.
        active: whether somebody still waits for what it answers; for long streams.
        question: starts the span of one question of a stream.
        caller: who makes it.
        address: where it comes from, without the port.
        permit: raises when the caller may not ask one question of a stream; takes its bytes.
    """

    span: CallSpan
    deadline: float
    active: Callable[[], bool]
    question: Callable[[], CallSpan] | None = None
    caller: Caller = ANYBODY
    permit: Callable[[bytes], None] | None = None
    address: Callable[[], str] = str

    def left(self) -> float:
        """Seconds that may be spent on an answer, never below a millisecond: a last try is made.

        A little less than there is until the deadline, so that the caller learns why it failed.
        """
        left = self.deadline - time.monotonic()
        return max(0.001, left - min(LAST_WORDS, left / 10))


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


@dataclass(frozen=True, slots=True)
class StreamBoth(Generic[_Request]):
    """A method with a stream of requests, each answered before the next one is read."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request], Call], Iterable[Answer]]


@dataclass(frozen=True, slots=True)
class Unoffered:
    """A method of the API that this version does not have; ``text`` says so to whoever calls it."""

    text: str


Method = Unary[Any] | UnaryBytes | StreamIn[Any] | StreamOut[Any] | StreamBoth[Any] | Unoffered


class Frame:
    """Wraps servicers' methods for a server.

    Args:
        tracing: starts spans.
        metrics: counts calls.
        gate: tells who calls; without one anybody may do anything.
        rates: how often each caller may call; None: as often as it likes.

    Attributes:
        stopping: open streams are to end.
    """

    def __init__(
        self,
        tracing: Tracing,
        metrics: Metrics,
        gate: Gate | None = None,
        rates: Rates | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = metrics
        self.gate = gate
        self.rates = rates
        self.stopping = False

    def wrap(
        self, service: str, name: str, method: Method, pool: Pool, pool_name: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that runs on a pool.

        It takes a stream of requests also where there is only one: the call is then ours before its
        message is there, so that a full line is told at once and a silent caller is noticed.

        grpcio takes a method's pool from an attribute of the function it calls, which must be a
        closure: bound methods have no attributes.
        """
        framed = _Framed(self, service, name, pool_name)
        if isinstance(method, StreamOut | StreamBoth):

            def stream(raws: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
                return framed.stream_out(method, raws, context)

            stream.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.stream_stream_rpc_method_handler(stream)

        def single(raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            return framed.answer(method, raws, context)

        single.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.stream_unary_rpc_method_handler(single)

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

    def __init__(self, frame: Frame, service: str, name: str, pool_name: str) -> None:
        self._frame = frame
        self._method = f"/{service}/{name}"
        self._meter = frame.meter(f"{service.rsplit('.')[-1]}/{name}")
        self._pool_name = pool_name
        self._need = need_of(service, name)

    def answer(
        self,
        method: Unary[Any] | UnaryBytes | StreamIn[Any] | Unoffered,
        raws: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> bytes:
        """Carry out a call with one answer."""
        caller, raw, refused = self._receive(method, raws, context)
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            if refused is not None:
                raise refused
            call = self._call(caller, span, context, context.is_active, DEFAULT_DEADLINE)
            answer = _served(method, raw, raws, call, context)
            if span.recording:
                _describe_answer(span, answer)
            payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)
        return payload

    def stream_out(
        self,
        method: StreamOut[Any] | StreamBoth[Any],
        raws: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> Iterator[bytes]:
        """Carry out a call with a stream of answers, until it ends, or the caller or we go."""
        caller, raw, refused = self._receive(method, raws, context)
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            if refused is not None:
                raise refused
            call = self._call(
                caller, span, context, lambda: self._goes_on(caller, context), math.inf
            )
            call.question = lambda: self._frame.begin(self._method, context)
            if isinstance(method, StreamBoth):
                asked = _messages(method.request, raws, context, patient=True)
                answers = method.serve(asked, call)
            else:
                request = parse(method.request, raw)
                if span.recording:
                    _describe_request(span, request)
                answers = method.serve(request, call)
            for answer in answers:
                yield answer if isinstance(answer, bytes) else answer.SerializeToString()
            if not context.is_active():
                raise _gone(context)
            if self._frame.stopping:
                raise Unavailable("the server is going away: try another one")
            if not self._stands(caller):
                raise Unauthenticated
        except GeneratorExit:
            # The caller went away while an answer was sent.
            self._end(failure_of(_gone(context)), None, span, started)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)

    def _receive(
        self, method: Method, raws: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[Caller, bytes, TopospreadError | None]:
        """Who calls, and the first message or why there is none; nothing of a stream in."""
        caller = ANYBODY
        try:
            if self._frame.gate is not None:
                # Before anything else: strangers learn nothing, and hold no thread.
                caller = caller_of(self._frame.gate, context)
                caller.clusters(self._need.role)
            if self._frame.rates is not None:
                self._frame.rates.take(known_as(caller, context))
            raw = self._first(method, raws, context)
            if self._frame.gate is not None and not isinstance(method, StreamIn | StreamBoth):
                self._need.check(caller, raw)
        except TopospreadError as refused:
            return caller, b"", refused
        return caller, raw, None

    def _first(self, method: Method, raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        if overloaded():
            self._frame.rejected(self._pool_name)
            raise LimitExceeded(f"too many {self._pool_name} calls at once: try again later")
        if isinstance(method, Unoffered):
            raise NotOffered(method.text)
        if isinstance(method, StreamIn | StreamBoth):
            return b""
        try:
            with away(context.cancel):
                return next(raws)
        except StopIteration:
            if not context.is_active():
                raise _gone(context) from None
            raise InvalidRequest("the call has no request message") from None
        except grpc.RpcError:
            raise _gone(context) from None

    def _permit(self, caller: Caller, context: grpc.ServicerContext, raw: bytes) -> None:
        """For what comes in on a stream: its first message, or each of its questions."""
        if self._frame.rates is not None:
            self._frame.rates.take(known_as(caller, context))
        self._need.check(caller, raw)

    def _goes_on(self, caller: Caller, context: grpc.ServicerContext) -> bool:
        return context.is_active() and not self._frame.stopping and self._stands(caller)

    def _stands(self, caller: Caller) -> bool:
        gate = self._frame.gate
        return gate is None or gate.stands(caller)

    def _call(
        self,
        caller: Caller,
        span: CallSpan,
        context: grpc.ServicerContext,
        active: Callable[[], bool],
        unlimited: float,
    ) -> Call:
        """What the servicer may know; a caller without a deadline gets ``unlimited`` seconds."""
        left = context.time_remaining()
        if left <= 0:
            raise DeadlineExceeded("the call's deadline passed before it was begun")
        # Without a deadline grpcio answers the years until the end of its clock.
        seconds = unlimited if left > LONGEST_DEADLINE else left
        permit = None
        if self._frame.gate is not None or self._frame.rates is not None:
            permit = partial(self._permit, caller, context)
        return Call(
            *(span, time.monotonic() + seconds, active),
            caller=caller,
            permit=permit,
            address=partial(address_of, context),
        )

    def _done(self, span: CallSpan, context: grpc.ServicerContext, started: float) -> None:
        context.set_trailing_metadata((("traceparent", span.traceparent),))
        span.end(0)
        self._meter.done("OK", time.perf_counter() - started)

    def _failed(
        self, error: Exception, span: CallSpan, context: grpc.ServicerContext, started: float
    ) -> NoReturn:
        failure = failure_of(error)
        self._end(failure, error, span, started)
        end_with(failure, span, context)

    def _end(
        self, failure: Failure, error: Exception | None, span: CallSpan, started: float
    ) -> None:
        span.end(failure.code.value[0], error)
        self._meter.done(failure.code.name, time.perf_counter() - started)


def _served(
    method: Unary[Any] | UnaryBytes | StreamIn[Any] | Unoffered,
    raw: bytes,
    raws: Iterator[bytes],
    call: Call,
    context: grpc.ServicerContext,
) -> Answer:
    if isinstance(method, UnaryBytes):
        return method.serve(raw, call)
    if isinstance(method, Unary):
        request = parse(method.request, raw)
        if call.span.recording:
            _describe_request(call.span, request)
        return method.serve(request, call)
    assert isinstance(method, StreamIn), "what is not offered was refused"
    return method.serve(_messages(method.request, raws, context, permit=call.permit), call)


def _describe_request(span: CallSpan, request: object) -> None:
    """What every request of a cluster says."""
    cluster = getattr(request, "cluster", None)
    if isinstance(cluster, str):
        span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)


def _describe_answer(span: CallSpan, answer: object) -> None:
    revision = getattr(answer, "revision", None)
    if isinstance(revision, str) and revision:
        span.set("topospread.revision", revision)


def _messages(
    kind: type[_Request],
    raws: Iterator[bytes],
    context: grpc.ServicerContext,
    *,
    patient: bool = False,
    permit: Callable[[bytes], None] | None = None,
) -> Iterator[_Request]:
    """The messages of a stream, as they come; after the first, a patient one lets them wait.

    The first one says what the stream is about, and must be permitted.
    """
    idle = False
    while True:
        try:
            with away(context.cancel, patient=idle):
                raw = next(raws)
        except StopIteration:
            return
        except grpc.RpcError as cause:
            raise _gone(context) from cause
        idle = patient
        if permit is not None:
            permit(raw)
            permit = None
        yield parse(kind, raw)


def _gone(context: grpc.ServicerContext) -> TopospreadError:
    """Why nobody waits for the answer any more."""
    if context.time_remaining() <= 0:
        return DeadlineExceeded("the call's deadline passed")
    return CallerGone("the caller cancelled the call or went away")


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
        # A frame stands for the request of the same name; callers know the latter.
        name = kind.DESCRIPTOR.full_name.replace("Frame", "Request")
        raise InvalidRequest(f"the request does not parse as {name}") from cause


def handlers(
    frame: Frame, service: str, methods: Sequence[tuple[str, Method, Pool, str]]
) -> grpc.GenericRpcHandler:
    """All methods of a service: (name, method, pool, the pool's name)."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: frame.wrap(service, name, method, pool, label)
            for name, method, pool, label in methods
        },
    )
