"""Kinds of methods, the call that a servicer is given, and the part of gRPC's context in use.

Servicers are plain functions from a request message and a :class:`Call` to an answer; they raise
the errors of :mod:`topospread.errors` and never touch gRPC's context.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from topospread.access.callers import ANONYMOUS, Caller
from topospread.codec.parsing import check_repeats
from topospread.errors import InvalidRequest
from topospread.service.decisions.request import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from topospread.errors import TopospreadError
    from topospread.telemetry.tracing import Attribute, CallSpan


DEFAULT_DEADLINE: Final = 30.0
"""Seconds for callers that state no deadline; streams last."""

DEADLINE_MARGIN: Final = 0.5
"""Seconds before the deadline at which a call fails; a tenth of what is left if that is less."""

_Request = TypeVar("_Request", bound=Message)
Response = Message | bytes
"""What a servicer answers; bytes are a serialized message."""


@dataclass(slots=True)
class Call:
    """A call as its servicer sees it.

    Attributes:
        span: of the call.
        deadline: on the monotonic clock; infinite for a stream whose caller states none.
        active: whether the client still waits for a response.
        caller: who makes it, as authenticated.
        address: the client's, without the port.
        audit_refusal: records in the audit log that the caller was refused.
        permit: raises when the caller may not send the first request of a stream; takes its bytes.
        send_headers: tells the client of a stream that it was accepted, though the first response
            may be long in coming.
    """

    span: CallSpan
    deadline: float
    active: Callable[[], bool]
    caller: Caller = ANONYMOUS
    permit: Callable[[bytes], None] = lambda _: None
    address: Callable[[], str] = str
    audit_refusal: Callable[[TopospreadError], None] = lambda _: None
    send_headers: Callable[[], None] = lambda: None

    def time_left(self) -> float:
        """Seconds that may be spent on a response, at least a millisecond: a last try is made.

        A little less than there is until the deadline, so that the client learns why it failed.
        """
        left = self.deadline - time.monotonic()
        return max(0.001, left - min(DEADLINE_MARGIN, left / 10))


@dataclass(frozen=True, slots=True)
class Unary(Generic[_Request]):
    """A method with one request and one response."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Response]


@dataclass(frozen=True, slots=True)
class UnaryBytes:
    """A method with one request and one response that parses its request by itself."""

    serve: Callable[[bytes, Call], Response]


@dataclass(frozen=True, slots=True)
class ClientStreaming(Generic[_Request]):
    """A method with a stream of requests and one response."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request], Call], Response]


@dataclass(frozen=True, slots=True)
class ServerStreaming(Generic[_Request]):
    """A method with one request and a stream of responses."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Iterable[Response]]


Method = Unary[Any] | UnaryBytes | ClientStreaming[Any] | ServerStreaming[Any]


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


def store_spans(call: Call, cluster: str) -> Callable[[str, int], AbstractContextManager[object]]:
    """StateWriter to the store are child spans of the call."""
    call.span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)

    def child(operation: str, changes: int) -> AbstractContextManager[object]:
        attributes: dict[str, Attribute] = {
            "topospread.cluster": cluster or DEFAULT_CLUSTER,
            "topospread.store.operation": operation,
            "topospread.store.changes": changes,
        }
        return call.span.child(f"store {operation}", attributes)

    return child
