"""Calls that are answered by the threads that take them from gRPC; see CompletionQueueTransport.

What is handed to gRPC as an event's tag is a bound method of the call, so the call lives until its
last event: gRPC cancels calls that nobody holds.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs

from topospread.access.callers import ANONYMOUS
from topospread.errors import QueueFull, TopospreadError
from topospread.transports.grpc.streams import call_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import grpc

    from topospread.transports.grpc.transport import Handler

LOG: Final = logging.getLogger(__name__)

_NO_FLAGS: Final = 0
_OK: Final = 0


class _AbortedError(Exception):
    """Raised to leave the answering of a call that ends with a status."""


class Reception(Protocol):
    """What calls ask of the transport that brought them.

    Attributes:
        awaited: calls whose message has not come, and since when on the monotonic clock, the
            longest silent first.
    """

    awaited: dict[IncomingCall, float]

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

    def withdraw(self, call: IncomingCall) -> bool:
        """Take a call out of the queue; returns whether it was in it."""
        ...


class IncomingCall:
    """A call with one request and one response.

    It is the pipeline's :class:`~topospread.transports.grpc.transport.Context`.

    Attributes:
        arrived: when it came in, on the clock of time.perf_counter.
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

    # ------------------------------ what the transport and its queue ask

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

    def carry_out(self) -> None:
        """Answer the call."""
        try:
            self._answer(call_ended(self) if self._gone else None)
        except Exception:
            LOG.exception("a call was dropped")
            self.drop()

    def turn_away(self) -> None:
        """Refuse the call: there is no room for it."""
        self._answer(QueueFull.of("decisions"))

    def watch(self) -> None:
        """Request an event from gRPC for the call's end, if that is not done yet."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._reception.begin(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """Note that the call is over: its caller has gone, or has its answer.

        One that waits in the queue is not begun.
        """
        self._gone = not event.success or event.batch_operations[0].cancelled()
        if self._gone and self._reception.withdraw(self):
            self._answer(call_ended(self))

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
                cygrpc.SendStatusFromServerOperation(
                    self._trailers, self._code, self._details, _NO_FLAGS
                ),
                # The operation for the call's end, unless it is under way.
                *(() if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)),
            ),
            self.ended,
        )

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the caller is gone."""
        self._run_callback()
