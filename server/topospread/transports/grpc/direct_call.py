"""One call that is answered by the thread that took it from gRPC; see DirectCalls."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs

from topospread.access.callers import ANONYMOUS
from topospread.errors import CallerGone, QueueFull, TopospreadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import grpc

    from topospread.access.callers import Caller

LOG: Final = logging.getLogger(__name__)

_NO_FLAGS: Final = 0

WAITED: Final = 0.005
"""Seconds in line after which it is worth asking whether a caller is still there."""


class Answers(Protocol):
    """Functions that answer the calls of one method: see :meth:`CallPipeline.direct_handler`.

    Attributes:
        guarded: whether callers must be admitted.
    """

    guarded: bool

    def admit(self, call: DirectCall) -> Caller:
        """Authenticate the caller, before the request is read.

        Raises:
            TopospreadError: the caller is unknown or lacks the permission.
        """
        ...

    def respond(
        self, call: DirectCall, caller: Caller, raw: bytes | None, refused: TopospreadError | None
    ) -> bytes:
        """The serialized answer, or :meth:`DirectCall.abort` was called.

        Args:
            call: stands in for grpcio's context.
            caller: as admitted.
            raw: the request; None: the caller sends none.
            refused: why the call is not to be carried out.
        """
        ...

    def rejected(self) -> None:
        """Count a call that found the line full."""
        ...


class _AbortedError(Exception):
    """Raised to leave the answering of a call that ends with a status."""


class Reception(Protocol):
    """Receives the calls of a server's methods.

    Attributes:
        awaited: calls whose message has not come, and since when, the longest silent first.
    """

    awaited: dict[DirectCall, float]

    def note(self, call: DirectCall) -> bool:
        """Note an incoming call; returns whether it is accepted."""
        ...

    def start(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Start a gRPC operation of a call, unless all is over; `tag` is called when it is done."""
        ...

    def take_in(self) -> None:
        """Handle the events that gRPC has by now; calls that are ready stand in line."""
        ...


class DirectCall:
    """A call under way; the pipeline's :class:`~topospread.transports.grpc.calls.Context`.

    What is handed to gRPC as an event's tag is a bound method of the call, so the call lives until
    its last event: gRPC cancels calls that nobody holds.
    """

    __slots__ = (
        "_answers",
        "_callback",
        "_caller",
        "_code",
        "_details",
        "_event",
        "_gone",
        "_raw",
        "_reception",
        "_since",
        "_trailers",
        "_watched",
    )

    def __init__(self, reception: Reception, answers: Answers, event: Any) -> None:
        """Take a call from gRPC.

        Args:
            reception: where it came in.
            answers: of its method.
            event: that brought it.
        """
        self._reception = reception
        self._answers = answers
        self._event = event
        self._caller = ANONYMOUS
        self._raw: bytes | None = None
        self._trailers: tuple[tuple[str, str | bytes], ...] | None = None
        self._code = 0
        self._details = b""
        self._gone = False
        self._watched = False
        self._since = 0.0
        self._callback: Callable[[], None] | None = None

    # ------------------------------ its way

    def begin(self) -> None:
        """Check whether the call may be made, and request its message from gRPC."""
        answers = self._answers
        if not self._reception.note(self):
            self.turn_away()
            return
        try:
            if answers.guarded:
                # Before anything is read: strangers learn nothing, and send nothing.
                self._caller = answers.admit(self)
        except TopospreadError as refused:
            self._reception.awaited.pop(self, None)
            self.answer(refused)
            return
        except Exception:
            self._reception.awaited.pop(self, None)
            self.cancel()
            raise
        receive = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        self._reception.start(self._event.call, receive, self.received)

    def turn_away(self) -> None:
        """Reject the call: the line is full."""
        self._answers.rejected()
        self.answer(QueueFull.of("decisions"))

    def received(self, event: Any) -> DirectCall:
        """Take the message; the thread that took the event answers."""
        self._reception.awaited.pop(self, None)
        self._raw = event.batch_operations[0].message()
        return self

    def stand_in_line(self) -> None:
        """Note that the call is in line; it is carried out if its caller is still there then."""
        self._since = time.monotonic()
        self._watch()

    def carry_out(self) -> None:
        """Answer the call; what goes wrong outside the pipeline ends the call, and no thread."""
        try:
            self.answer(self._left())
        except Exception:
            LOG.exception("a call was dropped")
            self.cancel()

    def _left(self) -> TopospreadError | None:
        """Whether the caller has gone while the call stood in line for long."""
        if not self._since or time.monotonic() - self._since < WAITED:
            return None
        # A deadline that has passed is the pipeline's to report.
        if self.is_active() or not self.time_remaining():
            return None
        return CallerGone("the caller cancelled the call or went away")

    def answer(self, refused: TopospreadError | None = None) -> None:
        """Carry out the call and send its answer or status."""
        respond = self._answers.respond
        message: tuple[Any, ...] = ()
        with suppress(_AbortedError):
            payload = Variables().run(respond, self, self._caller, self._raw, refused)
            message = (cygrpc.SendMessageOperation(payload, _NO_FLAGS),)
        self._reception.start(
            self._event.call,
            (
                *message,
                cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
                cygrpc.SendStatusFromServerOperation(
                    self._trailers, self._code, self._details, _NO_FLAGS
                ),
                *(() if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)),
            ),
            self.ended,
        )

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the caller is gone."""
        # Let go of it: it holds the call.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    # ------------------------------ what the pipeline asks

    def is_active(self) -> bool:
        """Whether the caller still waits; only for the thread that carries out the call.

        The event for the call's end is requested from gRPC at the first use of this method, so
        that calls that are answered at once need not wait for one more event.
        """
        self._watch()
        if not self._gone:
            # Other calls are no part of this one's context.
            Variables().run(self._reception.take_in)
        return not self._gone and self.time_remaining() > 0

    def _watch(self) -> None:
        """Request an event from gRPC for the call's end."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._reception.start(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """Note that the call is over: its caller has gone, or has its answer."""
        self._gone = not event.success or event.batch_operations[0].cancelled()

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline."""
        left: float = self._event.call_details.deadline - time.time()
        return max(left, 0.0)

    def cancel(self) -> object:
        """End the call from this side."""
        return self._event.call.cancel()

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Add a callback for when the answer is sent, or the caller is gone."""
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
