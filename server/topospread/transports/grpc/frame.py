"""The frame around every call: receive, span, serve, encode, count.

What is around the servicers' methods stands here once, so that no handler keeps its own books.
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message

from topospread.access.callers import ANYBODY, Caller
from topospread.access.refusals import REFUSED, Refusals
from topospread.checkpoints import Beneficiary, computing_for
from topospread.errors import (
    CallerGone,
    DeadlineExceeded,
    InvalidRequest,
    NotOffered,
    QueueFull,
    ShuttingDown,
    StreamsFull,
    TooLarge,
    TopospreadError,
    Unauthenticated,
)
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.transports.grpc.calls import (
    DEFAULT_DEADLINE,
    Answer,
    Call,
    Method,
    StreamBoth,
    StreamIn,
    StreamOut,
    Unary,
    UnaryBytes,
    Unoffered,
    Unread,
    parse,
)
from topospread.transports.grpc.failures import Failure, end, failure_of
from topospread.transports.grpc.needs import address_of, caller_of, known_as, need_of
from topospread.transports.grpc.packing import Limit, RequestBytes, beginning, plain
from topospread.transports.grpc.pool import Pool, Turns, away, decided, overloaded
from topospread.transports.grpc.streams import OpenStreams
from topospread.transports.grpc.untaken import Untaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.access.gate import Gate
    from topospread.access.rates import Rates
    from topospread.telemetry.metrics import CallMeter, Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing
    from topospread.transports.grpc.context import Context, StreamContext
    from topospread.transports.grpc.direct_call import Answers, DirectCall

LONGEST_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline is none."""

LARGE_ANSWERS: Final = 4
"""Calls of :data:`_LARGE` that are carried out at once."""

LARGE_WAITING: Final = 48
"""Of them that wait for their turn: fewer than the threads that a pool lends, so that others find
one.
"""

_LARGE: Final = frozenset({"ListObjects", "GetNodeTable", "ListReservations"})
"""Methods whose answers grow with the cluster: making one takes several times its size."""

BEGINNING: Final = 16
"""Bytes of a question that is too large in which its number is looked for."""

_Request = TypeVar("_Request", bound=Message)


class Frame:
    """Wraps servicers' methods for a server.

    Args:
        tracing: starts spans.
        metrics: counts calls.
        gate: tells who calls; without one anybody may do anything.
        rates: how often each caller may call; None: as often as it likes.
        refusals: told of who was not let in.
        largest: how large requests may be.
        untaken: bounds the answers that callers do not take.

    Attributes:
        large: calls with large answers, whose turns come one after the other.
        stopping: open streams are to end.
        streams: that are open.
    """

    def __init__(
        self,
        tracing: Tracing,
        metrics: Metrics,
        gate: Gate | None = None,
        rates: Rates | None = None,
        refusals: Refusals | None = None,
        largest: RequestBytes | None = None,
        untaken: Untaken | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = metrics
        self.gate = gate
        self.rates = rates
        self.refusals = refusals or Refusals()
        self.largest = largest or RequestBytes()
        self.untaken = untaken or Untaken()
        self.large = Turns(LARGE_ANSWERS, LARGE_WAITING, "calls with large answers")
        self.stopping = False
        self.streams = OpenStreams()

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

            def stream(raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
                return framed.stream_out(method, raws, context)

            stream.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.stream_stream_rpc_method_handler(stream)

        def single(raws: Iterator[bytes], context: Context) -> bytes:
            return framed.answer(method, raws, context)

        single.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.stream_unary_rpc_method_handler(single)

    def direct(
        self, service: str, name: str, method: Unary[Any] | UnaryBytes, pool_name: str
    ) -> Answers:
        """What answers a method's calls on the threads that take them from gRPC."""
        return _Direct(_Framed(self, service, name, pool_name), method)

    def begin(self, method: str, context: Context) -> CallSpan:
        """Start a call's span."""
        return self._tracing.start(method, context.invocation_metadata())

    def begin_question(
        self, method: str, context: Context, traceparent: str, tracestate: str
    ) -> CallSpan:
        """Start the span of one question of a stream."""
        if not traceparent:
            return self.begin(method, context)
        own = (("traceparent", traceparent), ("tracestate", tracestate))
        return self._tracing.start(method, own)

    def meter(self, label: str) -> CallMeter:
        """The meter of a method."""
        return self._metrics.call(label)

    def rejected(self, pool_name: str) -> None:
        """Count a call that found the line full."""
        self._metrics.rejection(pool_name)


_UNWATCHED: Final[AbstractContextManager[None]] = nullcontext()

_Received = tuple[Caller, bytes, TopospreadError | None]
"""Who calls, the request, and why the call is not to be carried out."""


class _Direct:
    """One method in its frame, for calls whose message is brought before they are carried out."""

    def __init__(self, framed: _Framed, method: Unary[Any] | UnaryBytes) -> None:
        self._framed = framed
        self._method = method
        self.guarded = framed.guarded
        self.admit = framed.admit
        self.rejected = framed.rejected

    def respond(
        self, call: DirectCall, caller: Caller, raw: bytes | None, refused: TopospreadError | None
    ) -> bytes:
        """See :class:`~topospread.transports.grpc.direct.Answers`."""
        try:
            if refused is None:
                if raw is None:
                    raise _silence(call)
                raw = plain(raw, self._framed.limit)
                self._framed.check(caller, raw, call)
        except TopospreadError as error:
            refused = error
        return self._framed.carry_out(self._method, (caller, raw or b"", refused), iter(()), call)


class _Framed:
    """One method in its frame."""

    def __init__(self, frame: Frame, service: str, name: str, pool_name: str) -> None:
        self._frame = frame
        self._method = f"/{service}/{name}"
        self._label = f"{service.rsplit('.')[-1]}/{name}"
        self._meter = frame.meter(self._label)
        self._pool_name = pool_name
        self._decides = pool_name == "decisions"
        self._need = need_of(service, name)
        self.limit = frame.largest.of(name)
        self._large = name in _LARGE
        # Bytes of an answer, as far as that can be said beforehand: as many as the last one had.
        self._expected = 1

    @property
    def guarded(self) -> bool:
        """Whether callers must be admitted."""
        return self._frame.gate is not None or self._frame.rates is not None

    def rejected(self) -> None:
        """Count a call that found the line full."""
        self._frame.rejected(self._pool_name)

    def answer(
        self,
        method: Unary[Any] | UnaryBytes | StreamIn[Any] | Unoffered,
        raws: Iterator[bytes],
        context: Context,
    ) -> bytes:
        """Carry out a call with one answer."""
        return self.carry_out(method, self._receive(method, raws, context), raws, context)

    def carry_out(
        self,
        method: Unary[Any] | UnaryBytes | StreamIn[Any] | Unoffered,
        received: _Received,
        raws: Iterator[bytes],
        context: Context,
    ) -> bytes:
        """The answer to what was received, or the status of why there is none."""
        caller, raw, refused = received
        started = time.perf_counter()
        span = self._frame.begin(self._method, context)
        try:
            if refused is not None:
                raise refused
            self._frame.untaken.admit(context, self._expected)
            call = self._call(caller, span, context, context.is_active, DEFAULT_DEADLINE)
            around = _UNWATCHED
            if isinstance(method, StreamIn):
                around = self._watched(caller, context)
            elif self._large:
                around = self._in_turn(call, context)
            serve = partial(self._payload, method, raw, raws, call, context)
            with around:
                if self._decides:
                    payload = decided(serve, call.left, call.deadline, call.active, len(raw))
                else:
                    with computing_for(Beneficiary(call.deadline, call.active)):
                        payload = serve()
                if self._large:
                    self._expected = max(1, len(payload))
                self._frame.untaken.note(context, len(payload))
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)
        return payload

    def _payload(
        self,
        method: Unary[Any] | UnaryBytes | StreamIn[Any] | Unoffered,
        raw: bytes,
        raws: Iterator[bytes],
        call: Call,
        context: Context,
    ) -> bytes:
        """The serialized answer."""
        answer = _served(method, raw, raws, call, context, self.limit)
        if call.span.recording:
            _describe_answer(call.span, answer)
        payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
        self._frame.largest.check_answer(payload)
        return payload

    def stream_out(
        self,
        method: StreamOut[Any] | StreamBoth[Any],
        raws: Iterator[bytes],
        context: StreamContext,
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
            call.question = partial(self._frame.begin_question, self._method, context)
            call.accepted = partial(_accept, context, span)
            if isinstance(method, StreamBoth):
                asked = _messages(method.request, raws, context, self.limit, patient=True)
                answers = method.serve(asked, call)
            else:
                request = parse(method.request, raw)
                if span.recording:
                    _describe_request(span, request)
                answers = method.serve(request, call)
            with self._watched(caller, context):
                for answer in answers:
                    self._check_stands(caller, context)
                    payload = answer if isinstance(answer, bytes) else answer.SerializeToString()
                    self._frame.largest.check_answer(payload)
                    with self._frame.untaken.sending(context, len(payload)):
                        yield payload
                self._check_stands(caller, context)
            if not context.is_active():
                raise _gone(context)
            if self._frame.stopping:
                raise ShuttingDown("the server is going away: try another one")
        except GeneratorExit:
            # The caller went away while an answer was sent.
            self._end(failure_of(_gone(context)), None, span, started)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._failed(error, span, context, started)
        self._done(span, context, started)

    def _receive(self, method: Method, raws: Iterator[bytes], context: Context) -> _Received:
        """Who calls, and the first message or why there is none; nothing of a stream in."""
        caller = ANYBODY
        try:
            # Before anything else: strangers learn nothing, and hold no thread.
            caller = self.admit(context)
            raw = self._first(method, raws, context)
            if not isinstance(method, StreamIn | StreamBoth):
                self.check(caller, raw, context)
        except TopospreadError as refused:
            return caller, b"", refused
        return caller, raw, None

    def admit(self, context: Context) -> Caller:
        """Who calls, if that is somebody who may call at all.

        Raises:
            Unauthenticated, PermissionDenied, RateExceeded: nobody, not this, or too often.
        """
        caller, frame = ANYBODY, self._frame
        try:
            if frame.gate is not None:
                caller = caller_of(frame.gate, context)
                caller.clusters(self._need.role)
            if frame.rates is not None:
                frame.rates.take(known_as(caller, context))
        except REFUSED as refused:
            self._tell(caller, context, refused)
            raise
        return caller

    def check(self, caller: Caller, raw: bytes, context: Context) -> None:
        """See whether this caller may send this request.

        Raises:
            PermissionDenied, InvalidRequest: see :meth:`Need.check`.
        """
        if self._frame.gate is not None:
            try:
                self._need.check(caller, raw)
            except REFUSED as refused:
                self._tell(caller, context, refused)
                raise

    def _first(self, method: Method, raws: Iterator[bytes], context: Context) -> bytes:
        if overloaded():
            self.rejected()
            if self._pool_name == "streams":
                raise StreamsFull("too many open streams: try again later")
            raise QueueFull.of(self._pool_name)
        if isinstance(method, Unoffered):
            raise NotOffered(method.text)
        if isinstance(method, StreamIn | StreamBoth):
            return b""
        try:
            with away(context.cancel):
                raw = next(raws)
            return plain(raw, self.limit)
        except StopIteration:
            raise _silence(context) from None
        except grpc.RpcError:
            raise _gone(context) from None

    def _permit(self, caller: Caller, context: Context, raw: bytes | None) -> None:
        """For what comes in on a stream: its first message, or each of its questions.

        None is one that is not looked at.
        """
        try:
            if self._frame.rates is not None:
                self._frame.rates.take(known_as(caller, context))
            if raw is not None:
                self._need.check(caller, raw)
        except REFUSED as refused:
            self._tell(caller, context, refused)
            raise

    def _tell(self, caller: Caller, context: Context, refused: TopospreadError) -> None:
        """Tell the audit log of a call that was refused."""
        who = None if isinstance(refused, Unauthenticated) else caller
        self._frame.refusals.tell(self._label, who, address_of(context), refused)

    @contextmanager
    def _in_turn(self, call: Call, context: Context) -> Iterator[None]:
        """Around a call with a large answer, of which there may be too many by then."""
        with self._frame.large.turn(call.left, call.active):
            self._frame.untaken.admit(context, self._expected)
            yield

    def _watched(self, caller: Caller, context: Context) -> AbstractContextManager[None]:
        """Around a stream, so that it ends with what its caller may, also while it is idle."""
        if self._frame.gate is None:
            return _UNWATCHED
        return self._frame.streams.watched(partial(self._stands, caller), context.cancel)

    def _check_stands(self, caller: Caller, context: Context) -> None:
        if not self._stands(caller):
            gone = Unauthenticated()
            self._tell(caller, context, gone)
            raise gone

    def _goes_on(self, caller: Caller, context: Context) -> bool:
        return context.is_active() and not self._frame.stopping and self._stands(caller)

    def _stands(self, caller: Caller) -> bool:
        gate = self._frame.gate
        return gate is None or gate.stands(caller)

    def _call(
        self,
        caller: Caller,
        span: CallSpan,
        context: Context,
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
        if self.guarded:
            permit = partial(self._permit, caller, context)
        return Call(
            *(span, time.monotonic() + seconds, active),
            caller=caller,
            permit=permit,
            address=partial(address_of, context),
            tell_refused=partial(self._tell, caller, context),
        )

    def _done(self, span: CallSpan, context: Context, started: float) -> None:
        context.set_trailing_metadata((("traceparent", span.traceparent),))
        span.end(0)
        self._meter.done("OK", time.perf_counter() - started)

    def _failed(
        self, error: Exception, span: CallSpan, context: Context, started: float
    ) -> NoReturn:
        failure = failure_of(error, span.traceparent)
        self._end(failure, error, span, started)
        end(context, failure, span.traceparent)

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
    context: Context,
    limit: Limit,
) -> Answer:
    if isinstance(method, UnaryBytes):
        return method.serve(raw, call)
    if isinstance(method, Unary):
        request = parse(method.request, raw)
        if call.span.recording:
            _describe_request(call.span, request)
        return method.serve(request, call)
    assert isinstance(method, StreamIn), "what is not offered was refused"
    asked = _messages(method.request, raws, context, limit, permit=call.permit)
    return method.serve(asked, call)


def _describe_request(span: CallSpan, request: object) -> None:
    """What every request of a cluster says."""
    cluster = getattr(request, "cluster", None)
    if isinstance(cluster, str):
        span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)


def _describe_answer(span: CallSpan, answer: object) -> None:
    meta = getattr(answer, "meta", None)
    if meta is not None and meta.revision:
        span.set("topospread.revision", meta.revision)


def _messages(
    kind: type[_Request],
    raws: Iterator[bytes],
    context: Context,
    limit: Limit,
    *,
    patient: bool = False,
    permit: Callable[[bytes], None] | None = None,
) -> Iterator[_Request | Unread]:
    """The messages of a stream, as they come.

    A patient one, whose messages are questions, lets them wait after the first, and goes on after
    one that is too large.

    The first one says what the stream is about, and must be permitted.

    That there are no more does not mean that the caller has sent all it wanted to: a call that was
    cut can look the same. A method for which that matters wants to be told by a message.
    """
    idle = False
    while True:
        try:
            with away(context.cancel, patient=idle):
                raw = next(raws)
        except StopIteration:
            # The end of what the caller has sent, or of the call: gRPC does not always tell which.
            if not context.is_active():
                raise _gone(context) from None
            return
        except grpc.RpcError as cause:
            raise _gone(context) from cause
        idle = patient
        unread = None
        try:
            raw = plain(raw, limit)
        except TooLarge:
            if not patient:
                raise
            # Without the error, whose traceback would keep the message.
            unread = Unread(beginning(raw, BEGINNING), limit)
        if unread is not None:
            raw = b""
            yield unread
            continue
        if permit is not None:
            permit(raw)
            permit = None
        yield parse(kind, raw)


def _accept(context: StreamContext, span: CallSpan) -> None:
    try:
        context.send_initial_metadata((("traceparent", span.traceparent),))
    except grpc.RpcError as cause:
        raise _gone(context) from cause


def _silence(context: Context) -> TopospreadError:
    """Why the message of a call does not come."""
    if context.is_active():
        return InvalidRequest("the call has no request message")
    return _gone(context)


def _gone(context: Context) -> TopospreadError:
    """Why nobody waits for the answer any more."""
    if context.time_remaining() <= 0:
        return DeadlineExceeded("the call's deadline passed")
    return CallerGone("the caller cancelled the call or went away")


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
