"""Calls that are answered by the threads that take them from gRPC; see CompletionQueueTransport.

What is handed to gRPC as an event's tag is a bound method of the call, so the call lives until its
last event: gRPC cancels calls that nobody holds.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs
from typing_extensions import override

from topospread.access.callers import ANONYMOUS
from topospread.errors import QueueFull, StreamsFull, TopospreadError
from topospread.transports.grpc.streams import call_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import grpc

    from topospread.transports.grpc.transport import Conversation, Handler

LOG: Final = logging.getLogger(__name__)

_NO_FLAGS: Final = 0
_OK: Final = 0


class _AbortedError(Exception):
    """Raised to leave the answering of a call that ends with a status."""


class Reception(Protocol):
    """What calls ask of the transport that brought them.

    Attributes:
        awaited: unary calls whose message has not come, and since when on the monotonic clock, the
            longest silent first.
        streams: that are open, and since when.
    """

    awaited: dict[UnaryCall, float]
    streams: dict[StreamCall, float]

    def may_enter(self, call: IncomingCall) -> bool:
        """Whether a call that has just come in may go on to be queued."""
        ...

    def bound_awaited(self) -> None:
        """End calls whose message does not come when there are too many of them."""
        ...

    def begin(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Start a gRPC operation of a call, unless all is over; `tag` is called when it is done."""
        ...

    def take_in(self) -> bool:
        """Handle the events that gRPC has by now; returns whether no more were there."""
        ...

    def note_request(self) -> None:
        """Note that a request has come on an open stream."""
        ...

    def withdraw(self, call: IncomingCall) -> bool:
        """Take a call out of the queue; returns whether it was in it."""
        ...

    def enter_stream(self, stream: StreamCall) -> bool:
        """Note an open stream; False: there are too many."""
        ...


class IncomingCall:
    """A call under way; the pipeline's :class:`~topospread.transports.grpc.transport.Context`.

    Attributes:
        arrived: when its latest request came in, on the clock of time.perf_counter.
    """

    __slots__ = (
        "_callback",
        "_caller",
        "_code",
        "_details",
        "_event",
        "_gone",
        "_handler",
        "_key",
        "_raw",
        "_reception",
        "_trailers",
        "_watched",
        "arrived",
    )

    def __init__(self, reception: Reception, handler: Handler, event: Any) -> None:
        """Take a call from gRPC.

        Args:
            reception: where it came in.
            handler: of its method.
            event: that brought it.
        """
        self.arrived = time.perf_counter()
        self._reception = reception
        self._handler = handler
        self._event = event
        self._caller = ANONYMOUS
        self._key: Hashable = None
        self._raw: bytes | None = None
        self._trailers: tuple[tuple[str, str | bytes], ...] | None = None
        self._code = _OK
        self._details = b""
        self._gone = False
        self._watched = False
        self._callback: Callable[[], None] | None = None

    @property
    def key(self) -> Hashable:
        """Whose turn the call is: its caller's credential, or else its connection."""
        if self._key is None:
            self._key = self._caller.credential or self._event.call.peer()
        return self._key

    # ------------------------------ what the queue asks

    def carry_out(self) -> None:
        """Answer the request; what goes wrong outside the pipeline ends the call, and no thread."""
        raise NotImplementedError

    def turn_away(self) -> None:
        """Refuse the request: there is no room for it."""
        raise NotImplementedError

    def watch(self) -> None:
        """Request an event from gRPC for the call's end, if that is not done yet."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._reception.begin(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """Note that the call is over: its caller has gone, or has its answer."""
        self._gone = not event.success or event.batch_operations[0].cancelled()

    # ------------------------------ what the pipeline asks

    def is_active(self) -> bool:
        """Whether the caller still waits; only for the thread that carries out the call.

        The event for the call's end is requested from gRPC at the first use of this method, so
        that calls that are answered at once need not wait for one more event.
        """
        self.watch()
        if not self._gone:
            # Other calls are no part of this one's context.
            Variables().run(self._reception.take_in)
        return not self._gone and self.time_remaining() > 0

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline."""
        left: float = self._event.call_details.deadline - time.time()
        return max(left, 0.0)

    def cancel(self) -> object:
        """End the call from this side."""
        return self._event.call.cancel()

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Add a callback for when the response is sent, or the caller is gone."""
        self._callback = callback
        return True

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the caller sent."""
        metadata: Sequence[tuple[str, str | bytes]] = self._event.invocation_metadata
        return metadata

    def peer(self) -> str:
        """The caller's address, as gRPC writes it."""
        peer: bytes = self._event.call.peer()
        return peer.decode()

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """The TLS properties of the caller."""
        known = cygrpc.auth_context(self._event.call) or {}
        return {key.decode(): values for key, values in known.items()}

    def set_trailing_metadata(
        self, trailing_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> None:
        """Set the metadata that is sent with the status."""
        self._trailers = trailing_metadata

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this status."""
        self._code, self._details = code.value[0], details.encode()
        raise _AbortedError

    def drop(self) -> None:
        """End a call that cannot be answered, for a reason that is in the log."""
        self.cancel()
        self._run_callback()

    def _run_callback(self) -> None:
        # Let go of it: it holds the call.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def _close(self) -> tuple[Any, ...]:
        """The operation for the call's end, unless it is under way."""
        return () if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)

    def _status(self) -> Any:
        return cygrpc.SendStatusFromServerOperation(
            self._trailers, self._code, self._details, _NO_FLAGS
        )


class UnaryCall(IncomingCall):
    """A call with one request and one response."""

    __slots__ = ()

    def begin(self) -> None:
        """Check whether the call may be made, and request its message from gRPC."""
        try:
            if self._handler.guarded:
                # Before anything is read: strangers learn nothing, and send nothing.
                self._caller = self._handler.admit(self)
        except TopospreadError as refused:
            self._answer(refused)
            return
        if not self._reception.may_enter(self):
            self.turn_away()
            return
        self._reception.awaited[self] = time.monotonic()
        self._reception.bound_awaited()
        receive = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        self._reception.begin(self._event.call, receive, self.received)

    def received(self, event: Any) -> IncomingCall | None:
        """Take the message; the call is ready, unless it was turned away meanwhile."""
        if self._reception.awaited.pop(self, None) is None:
            return None
        self._raw = event.batch_operations[0].message()
        return self

    @override
    def carry_out(self) -> None:
        """Answer the call."""
        try:
            self._answer(call_ended(self) if self._gone else None)
        except Exception:
            LOG.exception("a call was dropped")
            self.drop()

    @override
    def turn_away(self) -> None:
        """Refuse the call: there is no room for it."""
        self._answer(QueueFull.of("decisions"))

    @override
    def closed(self, event: Any) -> None:
        """Note that the call is over; one that waits in the queue is not begun."""
        super().closed(event)
        if self._gone and self._reception.withdraw(self):
            self._answer(call_ended(self))

    def _answer(self, refused: TopospreadError | None) -> None:
        """Carry out the call and send its answer or status."""
        message: tuple[Any, ...] = ()
        with suppress(_AbortedError):
            payload = Variables().run(
                self._handler.respond, self, self._caller, self._raw, refused, self.arrived
            )
            message = (cygrpc.SendMessageOperation(payload, _NO_FLAGS),)
        self._reception.begin(
            self._event.call,
            (
                *message,
                cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
                self._status(),
                *self._close(),
            ),
            self.ended,
        )

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the caller is gone."""
        self._run_callback()


class StreamCall(IncomingCall):
    """A stream of requests, each answered before the next one is read.

    Each request is queued and answered as a unary call is, so that streams and unary calls take
    turns.
    """

    __slots__ = (
        "_conversation",
        "_last",
        "_lock",
        "_over",
        "_sending",
        "_started",
        "_succeeds",
        "_unsent",
    )

    def __init__(self, reception: Reception, handler: Handler, event: Any) -> None:
        """Take a stream from gRPC; see :class:`IncomingCall`."""
        super().__init__(reception, handler, event)
        self._conversation: Conversation | None = None
        self._lock = threading.Lock()
        self._started = False
        self._sending = False
        # Requests whose response is not sent: one, or two while the first one's is on its way.
        self._unsent = 0
        # Why the stream ends when its last response is sent; () while it goes on.
        self._last: tuple[Exception | None] | tuple[()] = ()
        self._over = False
        self._succeeds = False

    def begin(self) -> None:
        """Check whether the stream may be opened, and request its first message from gRPC."""
        try:
            if self._handler.guarded:
                self._caller = self._handler.admit(self)
            if not self._reception.enter_stream(self):
                raise StreamsFull()
        except TopospreadError as refused:
            self._end(refused)
            return
        conversation = self._handler.converse(self, self._caller, self.arrived)
        with self._lock:
            self._conversation = conversation
            over = self._over
        if over:  # the server stops
            conversation.note_end(call_ended(self))
            return
        self.watch()
        self._receive()

    def received(self, event: Any) -> IncomingCall | None:
        """Take a request, or the end of them; the stream is ready when its last answer is sent."""
        raw = event.batch_operations[0].message()
        if raw is None:
            # The end of the requests, or of the call: which, is known when the status is sent.
            self.finish(None)
            return None
        self._reception.note_request()
        self.arrived = time.perf_counter()
        with self._lock:
            self._raw = raw
            self._unsent += 1
            return None if self._sending else self

    @property
    def silent(self) -> bool:
        """Whether no request has come yet."""
        return self._conversation is not None and not self._started and not self._unsent

    @override
    def carry_out(self) -> None:
        """Answer the request."""
        self._answer(None)

    @override
    def turn_away(self) -> None:
        """Answer the request with an error: there is no room for it."""
        self._answer(QueueFull.of("decisions"))

    def _answer(self, refused: TopospreadError | None) -> None:
        raw, self._raw = self._raw, None
        if self._over or self._conversation is None or raw is None:
            return
        try:
            payload = Variables().run(self._conversation.answer, raw, self.arrived, refused)
            self._handler.track(self, len(payload))
        except Exception as error:  # noqa: BLE001 - every failure becomes the stream's status
            self._end(error)
            return
        first: tuple[Any, ...] = ()
        if not self._started:
            self._started = True
            first = (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        self._sending = True
        send = (*first, cygrpc.SendMessageOperation(payload, _NO_FLAGS))
        self._reception.begin(self._event.call, send, self.sent)
        if not self._last:
            self._receive()

    def sent(self, event: Any) -> IncomingCall | None:
        """Note that a response is sent; a request that waited for that is ready."""
        self._run_callback()
        with self._lock:
            self._sending = False
            self._unsent -= 1
            if self._unsent:
                return self
            last = self._last
        for error in last:
            self._end(error)
        return None

    def finish(self, error: Exception | None) -> None:
        """End the stream when the requests that have come are answered."""
        with self._lock:
            self._last = (error,)
            if self._unsent:
                return
        self._end(error)

    @override
    def closed(self, event: Any) -> None:
        """Note that the stream is over."""
        super().closed(event)
        if self._gone:
            self._end(call_ended(self))

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the call was over before."""
        self._run_callback()
        if self._succeeds and self._conversation is not None:
            self._conversation.note_end(None if event.success else call_ended(self))

    @override
    def drop(self) -> None:
        """End a stream that cannot be answered, for a reason that is in the log."""
        self._reception.streams.pop(self, None)
        super().drop()

    def _end(self, error: Exception | None) -> None:
        """Send the stream's status: an error's, or OK."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._reception.streams.pop(self, None)
        self._reception.withdraw(self)
        self._succeeds = error is None
        try:
            with suppress(_AbortedError):
                Variables().run(self._end_conversation, error)
        except Exception:
            LOG.exception("a stream was dropped")
            self.drop()
            return
        first = () if self._started else (cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),)
        operations = (*first, self._status(), *self._close())
        self._reception.begin(self._event.call, operations, self.ended)

    def _end_conversation(self, error: Exception | None) -> None:
        if self._conversation is not None:
            self._conversation.end(error)
        elif isinstance(error, TopospreadError):
            self._handler.respond(self, self._caller, b"", error, self.arrived)

    def _receive(self) -> None:
        receive = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        self._reception.begin(self._event.call, receive, self.received)
