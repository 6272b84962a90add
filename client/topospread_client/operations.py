"""The seam between what a client does and how its calls are made.

An operation is a generator: it yields the calls it needs, is sent their replies and returns its
answer. It is written once; :mod:`topospread_client.client` runs it with blocking calls and
:mod:`topospread_client.aio` with awaited ones. A failed call is thrown into it as an error of
:mod:`topospread_client.errors`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from topospread_client.answers import NodeTable, Page
from topospread_client.connection import DEFAULT_TIMEOUT
from topospread_client.errors import Unavailable
from topospread_client.rpcs import RequestT, ResponseT, Rpc

if TYPE_CHECKING:
    from google.protobuf.message import Message

_T = TypeVar("_T")

_PAUSES: Final = (0.1, 0.2, 0.4, 0.8)
"""Seconds before each repeat, as gRPC's own: see connection."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to make.

    Attributes:
        rpc: which.
        request: its message, or an iterable of messages for a client stream.
        pause: seconds to wait before it.
        timeout: seconds after the pause; None takes the client's own.
        traceparent: parent of the server's span; None takes the current one, if there is one.
        bulk: whether the client's time-out for bulk work holds.
    """

    rpc: Rpc[Any, Any]
    request: Message | Iterable[Message]
    timeout: float | None = None
    traceparent: str | None = None
    bulk: bool = False
    pause: float = 0.0


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


@dataclass(frozen=True, slots=True)
class Session:
    """What operations of one client share.

    Attributes:
        cluster: the cluster of calls that name none.
        timeout: seconds for a call that names none.
        retries: whether calls are repeated when the server was out of reach.
        tables: the newest node table seen of each cluster. An entry is swapped as a whole, so
            threads may share them.
    """

    cluster: str = "default"
    timeout: float = DEFAULT_TIMEOUT
    retries: bool = True
    tables: dict[str, NodeTable] = field(default_factory=dict)


def call(
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT | Iterable[RequestT],
    timeout: float | None,
    traceparent: str | None,
    *,
    bulk: bool = False,
) -> Generator[Ask, Reply[Any], Reply[ResponseT]]:
    """Make one call within an operation; its types follow the RPC's."""
    ask = Ask(rpc, cast("Message | Iterable[Message]", request), timeout, traceparent, bulk)
    try:
        reply = yield ask
    except Unavailable as failed:
        if rpc.safe or not _was_sent(failed):
            raise
        raise _unknown(failed) from failed.__cause__
    return cast("Reply[ResponseT]", reply)


def call_again(
    session: Session,
    rpc: Rpc[RequestT, ResponseT],
    request: RequestT,
    timeout: float | None,
    traceparent: str | None,
    before_repeat: Callable[[], None] = lambda: None,
) -> Generator[Ask, Reply[Any], Reply[ResponseT]]:
    """Make one call, and make it again while the server is out of reach, within its time-out.

    For requests that may be made twice though not all of their RPC may: gRPC knows only methods.

    Args:
        session: what the client's operations share.
        rpc: which call; one that gRPC itself does not repeat.
        request: its message.
        timeout: seconds for all tries together; None takes the client's.
        traceparent: parent of the server's spans.
        before_repeat: marks the message as one that was sent before.
    """
    ends = time.monotonic() + (timeout or session.timeout)
    ask = Ask(rpc, request, timeout, traceparent)
    pauses = iter(_PAUSES if session.retries else ())
    sent = False
    while True:
        try:
            reply = yield ask
        except Unavailable as failed:
            sent = sent or _was_sent(failed)
            pause = next(pauses, math.inf) * random.uniform(0.8, 1.2)
            left = ends - time.monotonic() - pause
            if left <= 0:
                if not sent:
                    raise
                raise _unknown(failed) from failed.__cause__
            before_repeat()
            ask = replace(ask, timeout=left, pause=pause)
        else:
            return cast("Reply[ResponseT]", reply)


_UNSENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS",
)
"""How gRPC begins to say that there was no connection to send a call over."""


def _was_sent(failed: Unavailable) -> bool:
    """Whether a call that got no answer may have come to a server."""
    return not failed.reached and not str(failed).startswith(_UNSENT)


def _unknown(failed: Unavailable) -> Unavailable:
    """What is said of a write whose answer was lost."""
    return Unavailable(
        f"{failed}; whether the call was carried out is not known: look before you make it again",
        retry_after=failed.retry_after,
        reached=failed.reached,
        traceparent=failed.traceparent,
    )
