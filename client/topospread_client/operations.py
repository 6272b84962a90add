"""The seam between what a client does and how its calls are made.

An operation is a generator: it yields the calls it needs, is sent their replies and returns its
answer. It is written once; :mod:`topospread_client.client` runs it with blocking calls and
:mod:`topospread_client.aio` with awaited ones. A failed call is thrown into it as an error of
:mod:`topospread_client.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from topospread_client.answers import NodeTable, Page
from topospread_client.errors import ServerFault
from topospread_client.rpcs import RequestT, ResponseT, Rpc

if TYPE_CHECKING:
    from google.protobuf.message import Message

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to make.

    Attributes:
        rpc: which.
        request: its message, or an iterable of messages for a client stream.
        timeout: seconds for all tries together; None takes the client's own.
        traceparent: parent of the server's span; None takes the current one, if there is one.
        bulk: whether the client's time-out for bulk work holds.
        repeated: whether it is made again while the server is out of reach.
        before_repeat: marks the message as one that was sent before.
    """

    rpc: Rpc[Any, Any]
    request: Message | Iterable[Message]
    timeout: float | None = None
    traceparent: str | None = None
    bulk: bool = False
    repeated: bool = False
    before_repeat: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Reply(Generic[ResponseT]):
    """A call's answer and the trace context it came with."""

    message: ResponseT
    traceparent: str | None


Operation: TypeAlias = Generator[Ask, Reply[Any], _T]
"""Something a client does: calls to make, then an answer."""

Pages: TypeAlias = Generator[Operation[Page], Page, None]
"""A list fetched page by page: operations to run one after the other, each sent its page."""


@dataclass(frozen=True, slots=True)
class Subscription(Generic[_T]):
    """A server stream: the call that opens it, and how one of its messages is read."""

    ask: Ask
    decode: Callable[[Any], _T]

    def read(self, message: Any) -> _T:
        """A message of the stream.

        Raises:
            ServerFault: it cannot be read.
        """
        try:
            return self.decode(message)
        except ValueError as error:
            raise _unreadable(error) from error


@dataclass(frozen=True, slots=True)
class Session:
    """What operations of one client share.

    Attributes:
        cluster: the cluster of calls that name none.
        tables: the newest node table seen of each cluster. An entry is swapped as a whole, so
            threads may share them.
    """

    cluster: str = "default"
    tables: dict[str, NodeTable] = field(default_factory=dict)


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
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT | Iterable[RequestT],
    timeout: float | None,
    traceparent: str | None,
    *,
    bulk: bool = False,
) -> Generator[Ask, Reply[Any], Reply[ResponseT]]:
    """Make one call within an operation; its types follow the RPC's."""
    asked = cast("Message | Iterable[Message]", request)
    reply = yield Ask(rpc, asked, timeout, traceparent, bulk, repeated=rpc.safe)
    return cast("Reply[ResponseT]", reply)


def call_again(
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT,
    timeout: float | None,
    traceparent: str | None,
    before_repeat: Callable[[], None] = lambda: None,
) -> Generator[Ask, Reply[Any], Reply[ResponseT]]:
    """The same for a request that may be made twice though not all of its RPC may.

    Args:
        rpc: which call.
        request: its message.
        timeout: seconds for all tries together; None takes the client's.
        traceparent: parent of the server's spans.
        before_repeat: marks the message as one that was sent before.
    """
    reply = yield Ask(
        rpc, request, timeout, traceparent, repeated=True, before_repeat=before_repeat
    )
    return cast("Reply[ResponseT]", reply)
