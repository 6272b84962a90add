"""What is done for each call: admission, span, deadline, servicer, status, metrics."""

from __future__ import annotations

import logging
import math
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc

from topospread.access.callers import ANONYMOUS, Caller
from topospread.checkpoints import Beneficiary, computing_for
from topospread.errors import (
    CallerGone,
    DeadlineExceeded,
    QueueFull,
    ShuttingDown,
    StreamsFull,
    TopospreadError,
    Unauthenticated,
)
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.servicers.calls import (
    DEFAULT_DEADLINE,
    Call,
    ClientStreaming,
    Method,
    Response,
    ServerStreaming,
    Unary,
    UnaryBytes,
    parse,
)
from topospread.servicers.limits import decompressed
from topospread.servicers.status import RpcStatus, status_of
from topospread.threads.pool import arrival, away, overloaded
from topospread.threads.turns import decided
from topospread.transports.grpc.authorization import peer_address, permission_of
from topospread.transports.grpc.streams import (
    call_ended,
    missing_message,
    request_messages,
    send_headers,
)
from topospread.transports.grpc.transport import abort, end_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.telemetry.tracing import CallSpan
    from topospread.transports.grpc.pipeline import CallPipeline
    from topospread.transports.grpc.transport import Context, StreamContext

LOG: Final = logging.getLogger(__name__)

MAX_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline counts as none."""

_LARGE: Final = frozenset({"ListObjects", "GetNodeTable", "ListReservations"})
"""Methods whose responses grow with the cluster: making one takes several times its size."""

_UNWATCHED: Final[AbstractContextManager[None]] = nullcontext()

_NO_MESSAGES: Final[Iterator[bytes]] = iter(())

_Received = tuple[Caller, bytes, TopospreadError | None]
"""The caller, the request, and why the call is not to be carried out."""


class MethodHandler:
    """The :class:`~topospread.transports.grpc.transport.Handler` of one method.

    Args:
        pipeline: of its server.
        service: of the method, its full name.
        name: of the method.
        method: what it does.
        pool: whose threads carry its calls out, by name.
    """

    def __init__(
        self, pipeline: CallPipeline, service: str, name: str, method: Method, pool: str
    ) -> None:
        self.name: Final = name
        self.streaming: Final = isinstance(method, ServerStreaming)
        self._served = method
        self._pipeline = pipeline
        self._access = pipeline.access
        self._method = f"/{service}/{name}"
        self._label = f"{service.rsplit('.')[-1]}/{name}"
        self._meter = pipeline.meter(self._label)
        self._pool = pool
        self._queue_wait = pipeline.queue_wait(pool)
        self._decides = pool == "decisions"
        self._permission = permission_of(service, name)
        self._limit = pipeline.message_limits.of(name)
        self._large = name in _LARGE
        # Bytes of a response, as far as they are known beforehand: as many as the last one had.
        self._expected = 1

    @property
    def guarded(self) -> bool:
        """Whether callers must be admitted."""
        return self._access.enabled

    def admit(self, context: Context) -> Caller:
        """Authenticate a call; see :meth:`AccessControl.admit`."""
        return self._access.admit(self._permission, self._label, context)

    def _authorize(self, caller: Caller, raw: bytes, context: Context) -> None:
        self._access.check(self._permission, self._label, caller, raw, context)

    # ------------------------------ for a transport that brings the message itself

    def respond(
        self,
        context: Context,
        caller: Caller,
        raw: bytes | None,
        refused: TopospreadError | None,
        arrived: float,
    ) -> bytes:
        """See :class:`~topospread.transports.grpc.transport.Handler`."""
        if refused is None or isinstance(refused, CallerGone | DeadlineExceeded):
            self._queue_wait.observe(time.perf_counter() - arrived)
        try:
            if refused is None:
                if raw is None:
                    raise missing_message(context)
                raw = decompressed(raw, self._limit)
                self._authorize(caller, raw, context)
        except TopospreadError as error:
            refused = error
        return self._carry_out((caller, raw or b"", refused), _NO_MESSAGES, context, arrived)

    # ------------------------------ for one that hands its messages over as an iterator

    def unary(self, raws: Iterator[bytes], context: Context) -> bytes:
        """See :class:`~topospread.transports.grpc.transport.Handler`."""
        arrived = self._begun()
        return self._carry_out(self._receive(raws, context), raws, context, arrived)

    def stream(self, raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
        """See :class:`~topospread.transports.grpc.transport.Handler`."""
        arrived = self._begun()
        return self._responses(self._receive(raws, context), context, arrived)

    def _begun(self) -> float:
        """When the call of this thread came in; notes how long it was queued."""
        arrived = arrival()
        if not overloaded():
            self._queue_wait.observe(time.perf_counter() - arrived)
        return arrived

    # ------------------------------ a call

    def _carry_out(
        self, received: _Received, raws: Iterator[bytes], context: Context, arrived: float
    ) -> bytes:
        """The response to what was received, or the status of why there is none."""
        caller, raw, refused = received
        pipeline = self._pipeline
        span = pipeline.start_span(self._method, context, arrived)
        try:
            if refused is not None:
                raise refused
            pipeline.pending_responses.admit(context, self._expected)
            call = self._new_call(caller, span, context, context.is_active, DEFAULT_DEADLINE)
            around = _UNWATCHED
            if isinstance(self._served, ClientStreaming):
                around = self._watched(caller, context)
            elif self._large:
                around = self._in_turn(call, context)
            serve = partial(self._payload, raw, raws, call, context)
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
            self._fail(error, span, context, arrived)
        self._succeed(span, context, arrived)
        return payload

    def _responses(
        self, received: _Received, context: StreamContext, arrived: float
    ) -> Iterator[bytes]:
        """The responses of a call, until it, its caller or the server ends."""
        caller, raw, refused = received
        pipeline = self._pipeline
        span = pipeline.start_span(self._method, context, arrived)
        try:
            if refused is not None:
                raise refused
            call = self._new_call(
                caller, span, context, lambda: self._goes_on(caller, context), math.inf
            )
            call.send_headers = partial(send_headers, context, span)
            method: Any = self._served
            request = parse(method.request, raw)
            if span.recording:
                _describe_request(span, request)
            with self._watched(caller, context):
                for response in method.serve(request, call):
                    self._check_valid(caller, context)
                    payload = self._serialized(response)
                    with pipeline.pending_responses.sending(context, len(payload)):
                        yield payload
                self._check_valid(caller, context)
            if not context.is_active():
                raise call_ended(context)
            if pipeline.stopping:
                raise ShuttingDown()
        except GeneratorExit:
            # The caller went away while a response was sent.
            self._note_end(status_of(call_ended(context)), None, span, arrived)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            self._fail(error, span, context, arrived)
        self._succeed(span, context, arrived)

    def _payload(self, raw: bytes, raws: Iterator[bytes], call: Call, context: Context) -> bytes:
        """The serialized response of a call with one."""
        response: Response
        method: Any = self._served
        recording = call.span.recording
        if isinstance(method, Unary):
            request = parse(method.request, raw)
            if recording:
                _describe_request(call.span, request)
            response = method.serve(request, call)
        elif isinstance(method, UnaryBytes):
            response = method.serve(raw, call)
        else:
            requests = request_messages(
                method.request, raws, context, self._limit, permit=call.permit
            )
            response = method.serve(requests, call)
        if recording:
            _describe_response(call.span, response)
        return self._serialized(response)

    def _serialized(self, response: Response) -> bytes:
        payload = response if isinstance(response, bytes) else response.SerializeToString()
        self._pipeline.message_limits.check_response(payload)
        return payload

    def _receive(self, raws: Iterator[bytes], context: Context) -> _Received:
        """The caller, and the first message or why there is none; no message of a stream."""
        caller = ANONYMOUS
        try:
            # Before anything else: an unknown caller learns nothing, and holds no thread.
            caller = self.admit(context)
            raw = self._first_message(raws, context)
            if not isinstance(self._served, ClientStreaming):
                self._authorize(caller, raw, context)
        except TopospreadError as refused:
            return caller, b"", refused
        return caller, raw, None

    def _first_message(self, raws: Iterator[bytes], context: Context) -> bytes:
        if overloaded():
            if self.streaming:
                raise StreamsFull()
            raise QueueFull.of(self._pool)
        if isinstance(self._served, ClientStreaming):
            return b""
        try:
            with away(partial(end_call, context)):
                raw = next(raws)
            return decompressed(raw, self._limit)
        except StopIteration:
            raise missing_message(context) from None
        except grpc.RpcError:
            raise call_ended(context) from None

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
        """Check that the credential of a stream's caller still is valid.

        Raises:
            Unauthenticated: it is not.
        """
        if not self._access.is_valid(caller):
            expired = Unauthenticated()
            self._audit(caller, context, expired)
            raise expired

    def _goes_on(self, caller: Caller, context: Context) -> bool:
        """Whether a stream of responses does: its caller still waits, and may."""
        pipeline, access = self._pipeline, self._access
        return not pipeline.stopping and context.is_active() and access.is_valid(caller)

    def _new_call(
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
        return Call(
            span,
            time.monotonic() + seconds,
            active,
            caller=caller,
            permit=partial(self._authorize, caller, context=context),
            address=partial(peer_address, context),
            audit_refusal=partial(self._audit, caller, context),
        )

    def _succeed(self, span: CallSpan, context: Context, arrived: float) -> None:
        context.set_trailing_metadata((("traceparent", span.traceparent),))
        span.end(0)
        self._done("OK", arrived)

    def _fail(self, error: Exception, span: CallSpan, context: Context, arrived: float) -> NoReturn:
        """End a call with an error's status; one for which there was no room is counted."""
        if isinstance(error, StreamsFull):
            self._pipeline.count_rejection("streams")
        elif isinstance(error, QueueFull):
            self._pipeline.count_rejection(self._pool)
        status = status_of(error, span.traceparent)
        self._note_end(status, error, span, arrived)
        abort(context, status, span.traceparent)

    def _note_end(
        self, status: RpcStatus, error: Exception | None, span: CallSpan, arrived: float
    ) -> None:
        """Note that a call has ended with a status other than OK."""
        span.end(status.code.value[0], error)
        self._done(status.code.name, arrived)

    def _done(self, code: str, arrived: float) -> None:
        seconds = time.perf_counter() - arrived
        self._meter.done(code, seconds)
        LOG.debug("%s %s in %.1f ms", self.name, code, 1000 * seconds)


def _describe_request(span: CallSpan, request: object) -> None:
    cluster = getattr(request, "cluster", None)
    if isinstance(cluster, str):
        span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)


def _describe_response(span: CallSpan, response: object) -> None:
    meta = getattr(response, "meta", None)
    if meta is not None and meta.revision:
        span.set("topospread.revision", meta.revision)
