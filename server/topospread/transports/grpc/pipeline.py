"""The pipeline of every gRPC call: admission, span, deadline, servicer, status, metrics."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from topospread.access.callers import ANONYMOUS, Caller
from topospread.checkpoints import Beneficiary, computing_for
from topospread.errors import (
    DeadlineExceeded,
    QueueFull,
    ShuttingDown,
    StreamsFull,
    TopospreadError,
    Unauthenticated,
)
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.transports.grpc.authorization import AccessControl, peer_address, permission_of
from topospread.transports.grpc.calls import (
    DEFAULT_DEADLINE,
    BidiStreaming,
    Call,
    ClientStreaming,
    Method,
    Response,
    ServerStreaming,
    Unary,
    UnaryBytes,
    parse,
)
from topospread.transports.grpc.limits import (
    MessageLimits,
    PendingResponses,
    SizeLimit,
    decompressed,
)
from topospread.transports.grpc.pool import Pool, Turns, away, decided, overloaded
from topospread.transports.grpc.status import RpcStatus, abort, status_of
from topospread.transports.grpc.streams import (
    OpenStreams,
    call_ended,
    missing_message,
    request_messages,
    send_headers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.telemetry.metrics import CallMeter, Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing
    from topospread.transports.grpc.calls import Context, StreamContext
    from topospread.transports.grpc.direct_call import Answers, DirectCall

MAX_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline counts as none."""

LARGE_CALLS: Final = 4
"""Calls of :data:`_LARGE` that are carried out at once."""

LARGE_QUEUE: Final = 48
"""Calls of :data:`_LARGE` that wait: fewer than the threads that a pool lends, so that other calls
find one.
"""

_LARGE: Final = frozenset({"ListObjects", "GetNodeTable", "ListReservations"})
"""Methods whose responses grow with the cluster: making one takes several times its size."""

UnaryResponse = Unary[Any] | UnaryBytes | ClientStreaming[Any]
"""Methods with one response."""

StreamedResponse = ServerStreaming[Any] | BidiStreaming[Any]
"""Methods with a stream of responses."""

_UNWATCHED: Final[AbstractContextManager[None]] = nullcontext()

_Received = tuple[Caller, bytes, TopospreadError | None]
"""The caller, the request, and why the call is not to be carried out."""


class CallPipeline:
    """Makes gRPC's handlers of servicers' methods, for one server.

    Args:
        tracing: starts spans.
        metrics: counts calls.

    Attributes:
        access: authenticates and authorizes callers.
        message_limits: how large requests and responses may be.
        pending_responses: bounds the responses that clients do not take.
        large_calls: turns of the calls with large responses.
        stopping: open streams are to end.
        open_streams: the streams of authenticated callers.
    """

    def __init__(
        self,
        tracing: Tracing,
        metrics: Metrics,
        access: AccessControl | None = None,
        message_limits: MessageLimits | None = None,
        pending_responses: PendingResponses | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = metrics
        self.access = access or AccessControl()
        self.message_limits = message_limits or MessageLimits()
        self.pending_responses = pending_responses or PendingResponses()
        self.large_calls = Turns(LARGE_CALLS, LARGE_QUEUE, "calls with large answers")
        self.stopping = False
        self.open_streams = OpenStreams()

    def handler(
        self, service: str, name: str, method: Method, pool: Pool, pool_name: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that runs on a pool.

        It takes a stream of requests also where there is only one: the call is then ours before its
        message is there, so that a full queue is reported at once and a silent caller is noticed.

        grpcio takes a method's pool from an attribute of the function it calls, which must be a
        closure: bound methods have no attributes.
        """
        handler = _MethodHandler(self, service, name, pool_name)
        if isinstance(method, ServerStreaming | BidiStreaming):

            def stream(raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
                return handler.stream(method, raws, context)

            stream.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
            return grpc.stream_stream_rpc_method_handler(stream)

        def single(raws: Iterator[bytes], context: Context) -> bytes:
            return handler.unary(method, raws, context)

        single.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        return grpc.stream_unary_rpc_method_handler(single)

    def direct_handler(
        self, service: str, name: str, method: Unary[Any] | UnaryBytes, pool_name: str
    ) -> Answers:
        """A handler that runs on the threads that take calls from gRPC."""
        return _DirectHandler(_MethodHandler(self, service, name, pool_name), method)

    def service_handler(
        self, service: str, methods: Sequence[tuple[str, Method, Pool, str]]
    ) -> grpc.GenericRpcHandler:
        """The handler of a service's methods: (name, method, pool, the pool's name)."""
        return grpc.method_handlers_generic_handler(
            service,
            {
                name: self.handler(service, name, method, pool, pool_name)
                for name, method, pool, pool_name in methods
            },
        )

    def start_span(self, method: str, context: Context) -> CallSpan:
        """Start a call's span."""
        return self._tracing.start(method, context.invocation_metadata())

    def start_request_span(
        self, method: str, context: Context, traceparent: str, tracestate: str
    ) -> CallSpan:
        """Start the span of one request of a stream."""
        if not traceparent:
            return self.start_span(method, context)
        own = (("traceparent", traceparent), ("tracestate", tracestate))
        return self._tracing.start(method, own)

    def meter(self, label: str) -> CallMeter:
        """The meter of a method."""
        return self._metrics.call(label)

    def count_rejection(self, pool_name: str) -> None:
        """Count a call that found a pool's queue full."""
        self._metrics.rejection(pool_name)


class _DirectHandler:
    """A method's handler for calls whose message is there before they are carried out."""

    def __init__(self, handler: _MethodHandler, method: Unary[Any] | UnaryBytes) -> None:
        self._handler = handler
        self._method = method
        self.guarded = handler.guarded
        self.admit = handler.admit
        self.rejected = handler.count_rejection

    def respond(
        self, call: DirectCall, caller: Caller, raw: bytes | None, refused: TopospreadError | None
    ) -> bytes:
        """See :class:`~topospread.transports.grpc.direct_call.Answers`."""
        try:
            if refused is None:
                if raw is None:
                    raise missing_message(call)
                raw = decompressed(raw, self._handler.limit)
                self._handler.authorize(caller, raw, call)
        except TopospreadError as error:
            refused = error
        return self._handler.carry_out(self._method, (caller, raw or b"", refused), iter(()), call)


class _MethodHandler:
    """A method's handler: what is done for each of its calls."""

    def __init__(self, pipeline: CallPipeline, service: str, name: str, pool_name: str) -> None:
        self._pipeline = pipeline
        self._access = pipeline.access
        self._method = f"/{service}/{name}"
        self._label = f"{service.rsplit('.')[-1]}/{name}"
        self._meter = pipeline.meter(self._label)
        self._pool_name = pool_name
        self._decides = pool_name == "decisions"
        self._permission = permission_of(service, name)
        self.limit = pipeline.message_limits.of(name)
        self._large = name in _LARGE
        # Bytes of a response, as far as they are known beforehand: as many as the last one had.
        self._expected = 1

    @property
    def guarded(self) -> bool:
        """Whether callers must be admitted."""
        return self._access.enabled

    def count_rejection(self) -> None:
        """Count a call that found the queue full."""
        self._pipeline.count_rejection(self._pool_name)

    def admit(self, context: Context) -> Caller:
        """Authenticate a call; see :meth:`AccessControl.admit`."""
        return self._access.admit(self._permission, self._label, context)

    def authorize(self, caller: Caller, raw: bytes, context: Context) -> None:
        """Check that a caller may send this request; see :meth:`AccessControl.check`."""
        self._access.check(self._permission, self._label, caller, raw, context)

    def unary(self, method: UnaryResponse, raws: Iterator[bytes], context: Context) -> bytes:
        """Carry out a call with one response."""
        return self.carry_out(method, self._receive(method, raws, context), raws, context)

    def carry_out(
        self, method: UnaryResponse, received: _Received, raws: Iterator[bytes], context: Context
    ) -> bytes:
        """The response to what was received, or the status of why there is none."""
        caller, raw, refused = received
        started = time.perf_counter()
        pipeline = self._pipeline
        span = pipeline.start_span(self._method, context)
        try:
            if refused is not None:
                raise refused
            pipeline.pending_responses.admit(context, self._expected)
            call = self._call(caller, span, context, context.is_active, DEFAULT_DEADLINE)
            around = _UNWATCHED
            if isinstance(method, ClientStreaming):
                around = self._watched(caller, context)
            elif self._large:
                around = self._in_turn(call, context)
            serve = partial(self._payload, method, raw, raws, call, context)
            with around:
                if self._decides:
                    payload = decided(serve, call.time_left, call.deadline, call.active, len(raw))
                else:
                    with computing_for(Beneficiary(call.deadline, call.active)):
                        payload = serve()
                if self._large:
                    self._expected = max(1, len(payload))
                pipeline.pending_responses.track(context, len(payload))
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._fail(error, span, context, started)
        self._succeed(span, context, started)
        return payload

    def stream(
        self, method: StreamedResponse, raws: Iterator[bytes], context: StreamContext
    ) -> Iterator[bytes]:
        """Carry out a call with a stream of responses, until it, its caller or the server ends."""
        caller, raw, refused = self._receive(method, raws, context)
        started = time.perf_counter()
        pipeline = self._pipeline
        span = pipeline.start_span(self._method, context)
        try:
            if refused is not None:
                raise refused
            call = self._call(
                caller, span, context, lambda: self._goes_on(caller, context), math.inf
            )
            call.start_request_span = partial(pipeline.start_request_span, self._method, context)
            call.send_headers = partial(send_headers, context, span)
            if isinstance(method, BidiStreaming):
                requests = request_messages(
                    method.request, raws, context, self.limit, conversation=True
                )
                responses = method.serve(requests, call)
            else:
                request = parse(method.request, raw)
                if span.recording:
                    _describe_request(span, request)
                responses = method.serve(request, call)
            with self._watched(caller, context):
                for response in responses:
                    self._check_valid(caller, context)
                    payload = self._serialized(response)
                    with pipeline.pending_responses.sending(context, len(payload)):
                        yield payload
                self._check_valid(caller, context)
            if not context.is_active():
                raise call_ended(context)
            if pipeline.stopping:
                raise ShuttingDown("the server is going away: try another one")
        except GeneratorExit:
            # The caller went away while a response was sent.
            self._end(status_of(call_ended(context)), None, span, started)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._fail(error, span, context, started)
        self._succeed(span, context, started)

    def _payload(
        self,
        method: UnaryResponse,
        raw: bytes,
        raws: Iterator[bytes],
        call: Call,
        context: Context,
    ) -> bytes:
        """The serialized response."""
        response = _serve(method, raw, raws, call, context, self.limit)
        if call.span.recording:
            _describe_response(call.span, response)
        return self._serialized(response)

    def _serialized(self, response: Response) -> bytes:
        payload = response if isinstance(response, bytes) else response.SerializeToString()
        self._pipeline.message_limits.check_response(payload)
        return payload

    def _receive(self, method: Method, raws: Iterator[bytes], context: Context) -> _Received:
        """The caller, and the first message or why there is none; no message of a stream."""
        caller = ANONYMOUS
        try:
            # Before anything else: an unknown caller learns nothing, and holds no thread.
            caller = self.admit(context)
            raw = self._first_message(method, raws, context)
            if not isinstance(method, ClientStreaming | BidiStreaming):
                self.authorize(caller, raw, context)
        except TopospreadError as refused:
            return caller, b"", refused
        return caller, raw, None

    def _first_message(self, method: Method, raws: Iterator[bytes], context: Context) -> bytes:
        if overloaded():
            self.count_rejection()
            if self._pool_name == "streams":
                raise StreamsFull("too many open streams: try again later")
            raise QueueFull.of(self._pool_name)
        if isinstance(method, ClientStreaming | BidiStreaming):
            return b""
        try:
            with away(context.cancel):
                raw = next(raws)
            return decompressed(raw, self.limit)
        except StopIteration:
            raise missing_message(context) from None
        except grpc.RpcError:
            raise call_ended(context) from None

    def _check_message(self, caller: Caller, context: Context, raw: bytes | None) -> None:
        self._access.check_message(self._permission, self._label, caller, raw, context)

    def _audit(self, caller: Caller, context: Context, refused: TopospreadError) -> None:
        self._access.audit(self._label, caller, context, refused)

    @contextmanager
    def _in_turn(self, call: Call, context: Context) -> Iterator[None]:
        """Around a call with a large response: after its wait there may be too many pending."""
        with self._pipeline.large_calls.turn(call.time_left, call.active):
            self._pipeline.pending_responses.admit(context, self._expected)
            yield

    def _watched(self, caller: Caller, context: Context) -> AbstractContextManager[None]:
        """Around a stream, which ends when its caller's credential does, also while it is idle."""
        if self._access.authenticator is None:
            return _UNWATCHED
        valid = partial(self._access.is_valid, caller)
        return self._pipeline.open_streams.watched(valid, context.cancel)

    def _check_valid(self, caller: Caller, context: Context) -> None:
        if not self._access.is_valid(caller):
            expired = Unauthenticated()
            self._audit(caller, context, expired)
            raise expired

    def _goes_on(self, caller: Caller, context: Context) -> bool:
        if self._pipeline.stopping or not context.is_active():
            return False
        return self._access.is_valid(caller)

    def _call(
        self,
        caller: Caller,
        span: CallSpan,
        context: Context,
        active: Callable[[], bool],
        default_deadline: float,
    ) -> Call:
        """The call as its servicer sees it; ``default_deadline`` is in seconds."""
        left = context.time_remaining()
        if left <= 0:
            raise DeadlineExceeded("the call's deadline passed before it was begun")
        # Without a deadline grpcio answers the years until the end of its clock.
        seconds = default_deadline if left > MAX_DEADLINE else left
        permit = partial(self._check_message, caller, context) if self._access.enabled else None
        return Call(
            span,
            time.monotonic() + seconds,
            active,
            caller=caller,
            permit=permit,
            address=partial(peer_address, context),
            audit_refusal=partial(self._audit, caller, context),
        )

    def _succeed(self, span: CallSpan, context: Context, started: float) -> None:
        context.set_trailing_metadata((("traceparent", span.traceparent),))
        span.end(0)
        self._meter.done("OK", time.perf_counter() - started)

    def _fail(self, error: Exception, span: CallSpan, context: Context, started: float) -> NoReturn:
        status = status_of(error, span.traceparent)
        self._end(status, error, span, started)
        abort(context, status, span.traceparent)

    def _end(
        self, status: RpcStatus, error: Exception | None, span: CallSpan, started: float
    ) -> None:
        span.end(status.code.value[0], error)
        self._meter.done(status.code.name, time.perf_counter() - started)


def _serve(
    method: UnaryResponse,
    raw: bytes,
    raws: Iterator[bytes],
    call: Call,
    context: Context,
    limit: SizeLimit,
) -> Response:
    if isinstance(method, UnaryBytes):
        return method.serve(raw, call)
    if isinstance(method, Unary):
        request = parse(method.request, raw)
        if call.span.recording:
            _describe_request(call.span, request)
        return method.serve(request, call)
    requests = request_messages(method.request, raws, context, limit, permit=call.permit)
    return method.serve(requests, call)


def _describe_request(span: CallSpan, request: object) -> None:
    cluster = getattr(request, "cluster", None)
    if isinstance(cluster, str):
        span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)


def _describe_response(span: CallSpan, response: object) -> None:
    meta = getattr(response, "meta", None)
    if meta is not None and meta.revision:
        span.set("topospread.revision", meta.revision)
