"""The seam between what a client does and how its calls are made.

An operation is a generator: it yields the calls it needs, is sent their replies and returns its
answer. It is written once; :mod:`topospread_client._client` runs it with blocking calls and
:mod:`topospread_client._aio` with awaited ones. A failed call is thrown into it as an error of
:mod:`topospread_client._errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from topospread_client._errors import ServerFault

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from topospread_client._answers import GetNodeTableResponse, ServerLimits
    from topospread_client._rpcs import Rpc

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to make.

    Attributes:
        rpc: which.
        request: its message, or an iterable of messages for a client stream.
        timeout: seconds for all tries together; None takes the client's own.
        traceparent: parent of the server's span; None takes the current one, if there is one.
        beside: seconds that the client's own time-out is longer by.
        bulk: whether the client's time-out for bulk work holds.
        repeated: whether it is made again while the server is out of reach.
        before_repeat: marks the message as one that was sent before.
    """

    rpc: Rpc
    request: Message | Iterable[Message]
    timeout: float | None = None
    traceparent: str | None = None
    bulk: bool = False
    beside: float = 0.0
    repeated: bool = False
    before_repeat: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Reply(Generic[_T]):
    """A call's answer and the trace context it came with."""

    message: _T
    traceparent: str | None


Operation: TypeAlias = Generator[Ask, Reply[Any], _T]
"""Something a client does: calls to make, then an answer."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[_T]):
    """A list: what fetches the page of a token, and what is in a page."""

    fetch: Callable[[str | None], Operation[Any]]
    items: Callable[[Any], Iterable[_T]]


@dataclass(frozen=True, slots=True)
class Subscription(Generic[_T]):
    """A server stream.

    Attributes:
        ask: the call that opens it.
        decode: how one of its messages is read.
        after: the call that goes on after a message; None where none can.
    """

    ask: Ask
    decode: Callable[[Any], _T]
    after: Callable[[_T], Ask | None]

    def read(self, message: Any) -> _T:
        """A message of the stream.

        Raises:
            ServerFault: it cannot be read.
        """
        try:
            return self.decode(message)
        except ValueError as error:
            raise _unreadable(error) from error


@dataclass(slots=True)
class Session:
    """What operations of one client share; threads may, too: what changes is swapped as a whole.

    Attributes:
        cluster: the cluster of calls that name none.
        tables: the newest node table seen of each cluster.
        limits: the server's; None while they are not known.
    """

    cluster: str = "default"
    tables: dict[str, GetNodeTableResponse] = field(default_factory=dict)
    limits: ServerLimits | None = None


def resume(operation: Operation[_T], reply: Reply[Any]) -> Ask:
    """Give an operation the reply to its call.

    Returns:
        Its next call.

    Raises:
        StopIteration: it has its answer.
        ServerFault: the reply cannot be read.
    """
    try:
        return operation.send(reply)
    except ValueError as error:
        raise _unreadable(error) from error


def _unreadable(error: ValueError) -> ServerFault:
    """Of what only a newer server says, for example a code that this client does not have."""
    return ServerFault(f"the server's answer cannot be read: {error}")


def call(
    rpc: Rpc,
    request: Message | Iterable[Message],
    timeout: float | None,
    traceparent: str | None,
    *,
    bulk: bool = False,
    beside: float = 0.0,
) -> Operation[Reply[Any]]:
    """Make one call within an operation."""
    return (yield Ask(rpc, request, timeout, traceparent, bulk, beside, repeated=rpc.safe))


def call_again(
    rpc: Rpc,
    request: Message,
    timeout: float | None,
    traceparent: str | None,
    before_repeat: Callable[[], None] = lambda: None,
) -> Operation[Reply[Any]]:
    """The same for a request that may be made twice though not all of its RPC may.

    Args:
        rpc: which call.
        request: its message.
        timeout: seconds for all tries together; None takes the client's.
        traceparent: parent of the server's spans.
        before_repeat: marks the message as one that was sent before.
    """
    return (
        yield Ask(rpc, request, timeout, traceparent, repeated=True, before_repeat=before_repeat)
    )
