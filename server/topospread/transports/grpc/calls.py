"""What a servicer's method is to the frame around it: its kind, and the call it is given.

Servicers are plain functions from a request message and a :class:`Call` to an answer; they raise
the errors of :mod:`topospread.errors` and never touch gRPC's context.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from topospread.access.callers import ANYBODY, Caller
from topospread.codec.bounds import check_repeats
from topospread.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from topospread.errors import TopospreadError
    from topospread.telemetry.tracing import CallSpan
    from topospread.transports.grpc.packing import Limit

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for callers that state no deadline; streams last."""

LAST_WORDS: Final = 0.5
"""Seconds before the deadline at which a failure is told; a tenth of what is left if that is less.
"""

_Request = TypeVar("_Request", bound=Message)
Answer = Message | bytes


@dataclass(slots=True)
class Call:
    """What a servicer may know of the call it serves.

    Attributes:
        span: of the call.
        deadline: on the monotonic clock; infinite for a stream whose caller states none.
        active: whether somebody still waits for what it answers; for long streams.
        question: starts the span of one question of a stream, under its own traceparent and
            tracestate; under the stream's where the first is empty.
        caller: who makes it.
        address: where it comes from, without the port.
        tell_refused: tells the audit log that the caller was refused what it asked for.
        permit: raises when the caller may not ask one question of a stream; takes its bytes, or
            None where they are not looked at.
        accepted: tells a caller who waits for a stream of answers that there is one, though the
            first may be long in coming.
    """

    span: CallSpan
    deadline: float
    active: Callable[[], bool]
    question: Callable[[str, str], CallSpan] | None = None
    caller: Caller = ANYBODY
    permit: Callable[[bytes | None], None] | None = None
    address: Callable[[], str] = str
    tell_refused: Callable[[TopospreadError], None] = lambda _: None
    accepted: Callable[[], None] = lambda: None

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
class Unread:
    """A question of a stream that is too large to be looked at.

    Attributes:
        beginning: its first bytes.
        limit: that it exceeds.
    """

    beginning: bytes
    limit: Limit


@dataclass(frozen=True, slots=True)
class StreamBoth(Generic[_Request]):
    """A method with a stream of requests, each answered before the next one is read."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request | Unread], Call], Iterable[Answer]]


@dataclass(frozen=True, slots=True)
class Unoffered:
    """A method of the API that this version does not have; ``text`` says so to whoever calls it."""

    text: str


Method = Unary[Any] | UnaryBytes | StreamIn[Any] | StreamOut[Any] | StreamBoth[Any] | Unoffered


def parse(kind: type[_Request], raw: bytes) -> _Request:
    """Read a message.

    Raises:
        InvalidRequest: a field is repeated more often than its limit, or the bytes do not parse:
            grpcio would answer INTERNAL if it parsed by itself.
    """
    check_repeats(kind, raw)
    try:
        return kind.FromString(raw)
    except DecodeError as cause:
        # A frame stands for the request of the same name; callers know the latter.
        name = kind.DESCRIPTOR.full_name.replace("Frame", "Request").replace(".internal.", ".")
        raise InvalidRequest(f"the request does not parse as {name}") from cause
