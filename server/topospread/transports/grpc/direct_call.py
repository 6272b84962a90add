"""One call that is answered by the thread that took it from gRPC; see DirectCalls."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs

from topospread.access.callers import ANYBODY
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
    """What answers the calls of one method; see :class:`~topospread.transports.grpc.frame.Frame`.

    Attributes:
        guarded: whether callers must be admitted.
    """

    guarded: bool

    def admit(self, call: DirectCall) -> Caller:
        """Who calls, before anything is read.

        Raises:
            TopospreadError: nobody who may.
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
    """Leaves the answering of a call that ends with a status."""


class Reception(Protocol):
    """Where calls come in.

    Attributes:
        awaited: calls whose message has not come, and since when, the longest silent first.
    """

    awaited: dict[DirectCall, float]

    def note(self, call: DirectCall) -> bool:
        """A call came in; returns whether there is room for it."""
        ...

    def start(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Have gRPC do something for a call, unless all is over; `tag` is told when it is done."""
        ...

    def take_in(self) -> None:
        """Handle what gRPC has to tell by now; calls that are ready stand in line."""
        ...


class DirectCall:
    """A call under way; the frame's :class:`~topospread.transports.grpc.context.Context`.

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
        self._caller = ANYBODY
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
        """See whether the call may be made, and have its message brought."""
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
        """Tell the caller that the line is full."""
        self._answers.rejected()
        self.answer(QueueFull.of("decisions"))

    def received(self, event: Any) -> DirectCall:
        """The message came, or will not come; whoever took the event is to answer."""
        self._reception.awaited.pop(self, None)
        self._raw = event.batch_operations[0].message()
        return self

    def stand_in_line(self) -> None:
        """The call will be carried out later, if its caller is still there then."""
        self._since = time.monotonic()
        self._watch()

    def carry_out(self) -> None:
        """Answer the call; what goes wrong outside the frame ends the call, and no thread."""
        try:
            self.answer(self._left())
        except Exception:
            LOG.exception("a call was dropped")
            self.cancel()

    def _left(self) -> TopospreadError | None:
        """Whether the caller has gone while the call stood in line for long."""
        if not self._since or time.monotonic() - self._since < WAITED:
            return None
        # Of a deadline that has passed the frame tells.
        if self.is_active() or not self.time_remaining():
            return None
        return CallerGone("the caller cancelled the call or went away")

    def answer(self, refused: TopospreadError | None = None) -> None:
        """Carry out the call and send what comes of it."""
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
        """The status is sent, or nobody is there to take it."""
        # Let go of it: it holds the call.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    # ------------------------------ what the frame asks

    def is_active(self) -> bool:
        """Whether the caller still waits; only for the thread that carries out the call.

        gRPC is asked to tell of the caller's end the first time that somebody wants to know, so
        that calls that are answered at once need not wait for one more event.
        """
        self._watch()
        if not self._gone:
            # Other calls are no part of this one's context.
            Variables().run(self._reception.take_in)
        return not self._gone and self.time_remaining() > 0

    def _watch(self) -> None:
        """Have gRPC tell of the call's end."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._reception.start(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """The call is over: its caller has gone, or has its answer."""
        self._gone = not event.success or event.batch_operations[0].cancelled()

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline."""
        left: float = self._event.call_details.deadline - time.time()
        return max(left, 0.0)

    def cancel(self) -> object:
        """End the call from this side."""
        return self._event.call.cancel()

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Have something done when the answer is sent, or nobody is there to take it."""
        self._callback = callback
        return True

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """What came along with the call."""
        metadata: Sequence[tuple[str, str | bytes]] = self._event.invocation_metadata
        return metadata

    def peer(self) -> str:
        """Where the call comes from, as gRPC writes it."""
        peer: bytes = self._event.call.peer()
        return peer.decode()

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """What TLS knows of the caller."""
        known = cygrpc.auth_context(self._event.call) or {}
        return {key.decode(): values for key, values in known.items()}

    def set_trailing_metadata(
        self, trailing_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> None:
        """What goes back with the status."""
        self._trailers = trailing_metadata

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this status."""
        self._code, self._details = code.value[0], details.encode()
        raise _AbortedError
