"""Operations: the methods of both clients, written without making calls.

An operation is a generator: it yields the calls it needs, is sent their replies and returns its
response. :mod:`topospread_client._client` runs it with blocking calls and
:mod:`topospread_client._aio` with awaited ones. A failed call is thrown into it as an error of
:mod:`topospread_client._errors`.

Most programs use few methods of a client, so a method is made of its operation at first use, and
modules with rarely used operations are imported then.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from topospread_client._errors import ServerFault

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from topospread_client._answers import GetNodeTableResponse, ServerLimits
    from topospread_client._rpcs import Rpc


_F = TypeVar("_F", bound="Callable[..., Any]")
_T = TypeVar("_T")


# Calls and replies are not frozen: that would take longer to make than the rest of an operation.
@dataclass(slots=True)
class RpcCall:
    """One call to make.

    Attributes:
        rpc: the method.
        request: its message, or an iterable of messages for a client stream.
        timeout: seconds for all tries together; None takes the client's own.
        traceparent: parent of the server's span; None takes the current one, if there is one.
        bulk: whether the client's time-out for bulk work holds.
        extra_timeout: seconds to add to the client's own time-out.
        retried: whether it is made again while the server is out of reach.
        before_retry: called before a retry of a call that may have arrived.
    """

    rpc: Rpc
    request: Message | Iterable[Message]
    timeout: float | None = None
    traceparent: str | None = None
    bulk: bool = False
    extra_timeout: float = 0.0
    retried: bool = False
    before_retry: Callable[[], None] = lambda: None


@dataclass(slots=True)
class RpcReply(Generic[_T]):
    """Response message of a call, and its trace context."""

    message: _T
    traceparent: str | None


Operation: TypeAlias = Generator[RpcCall, RpcReply[Any], _T]
"""Generator of calls that returns a response."""


@dataclass(frozen=True, slots=True)
class PagedList(Generic[_T]):
    """List in pages.

    Attributes:
        fetch: operation that gets the page of a token.
        items: of a page.
    """

    fetch: Callable[[str | None], Operation[Any]]
    items: Callable[[Any], Iterable[_T]]


@dataclass(frozen=True, slots=True)
class ServerStream(Generic[_T]):
    """A server stream.

    Attributes:
        call: opens the stream.
        decode: converts one of its messages.
        after: the call that continues after a message; None where none can.
    """

    call: RpcCall
    decode: Callable[[Any], _T]
    after: Callable[[_T], RpcCall | None]

    def read(self, message: Any) -> _T:
        """Convert a message of the stream.

        Raises:
            ServerFault: the message cannot be read.
        """
        try:
            return self.decode(message)
        except ValueError as error:
            raise _unreadable(error) from error


@dataclass(slots=True)
class ClientSession:
    """State that the operations of one client share, also between threads.

    Attributes:
        cluster: the cluster of calls that name none.
        tables: the newest node table seen of each cluster; replaced as a whole.
        limits: the server's; None while they are not known.
    """

    cluster: str = "default"
    tables: dict[str, GetNodeTableResponse] = field(default_factory=dict)
    limits: ServerLimits | None = None


def resume(operation: Operation[_T], reply: RpcReply[Any]) -> RpcCall:
    """Send an operation the reply to its call.

    Returns:
        The next call.

    Raises:
        StopIteration: the operation has its response.
        ServerFault: the reply cannot be read.
    """
    try:
        return operation.send(reply)
    except ValueError as error:
        raise _unreadable(error) from error


def _unreadable(error: ValueError) -> ServerFault:
    """Error for a value of a newer server, for example of an enum, that this client lacks."""
    return ServerFault(f"the server's answer cannot be read: {error}")


def call(
    rpc: Rpc,
    request: Message | Iterable[Message],
    timeout: float | None,
    traceparent: str | None,
    *,
    bulk: bool = False,
    extra_timeout: float = 0.0,
) -> Operation[RpcReply[Any]]:
    """Make one call within an operation."""
    return (
        yield RpcCall(
            rpc, request, timeout, traceparent, bulk, extra_timeout, retried=rpc.idempotent
        )
    )


def call_with_retry(
    rpc: Rpc,
    request: Message,
    timeout: float | None,
    traceparent: str | None,
    before_retry: Callable[[], None] = lambda: None,
) -> Operation[RpcReply[Any]]:
    """Make a call that is retried although its RPC is not idempotent: its request makes it so.

    Args:
        rpc: the method.
        request: its message.
        timeout: seconds for all tries together; None takes the client's.
        traceparent: parent of the server's spans.
        before_retry: called before a retry of a call that may have arrived.
    """
    return (
        yield RpcCall(rpc, request, timeout, traceparent, retried=True, before_retry=before_retry)
    )


class LazyModule:
    """A module of operations that is imported at first use."""

    def __init__(self, module: str) -> None:
        self._module: Final = module

    def __getattr__(self, name: str) -> _LazyOperation:
        return _LazyOperation(self._module, name)


class _LazyOperation:
    def __init__(self, module: str, name: str) -> None:
        self._module: Final = module
        self._name: Final = name

    def load(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)


class _LazyMethod:
    """Descriptor that replaces itself with the method at first use."""

    def __init__(self, make: Callable[[Any], Any], operation: Any) -> None:
        self._make: Final = make
        self._operation: Final = operation

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        operation = self._operation
        if isinstance(operation, _LazyOperation):
            operation = operation.load()
        method = self._make(operation)
        method.__name__ = self._name
        method.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def lazy_method(answer: str) -> Callable[[_F], _F]:
    """Decorate a function that makes a method of an operation, so that it runs at first use.

    Args:
        answer: return type of the method, with {} for that of the operation.
    """

    def decorate(make: _F) -> _F:
        def made(operation: Any) -> Any:
            method = make(operation)
            signature = _signature(operation, answer)
            method.__signature__ = signature
            method.__annotations__ = {
                each.name: each.annotation for each in signature.parameters.values() if each.kind
            } | {"return": signature.return_annotation}
            return method

        @wraps(make)
        def making(operation: Any) -> Any:
            return _LazyMethod(made, operation)

        return making  # type: ignore[return-value] # in whose place it stands

    return decorate


def _signature(operation: Callable[..., Any], answer: str) -> inspect.Signature:
    """Signature of a method: that of the operation with `self` in place of the session."""
    signature = inspect.signature(operation)
    _, *taken = signature.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    _, _, answered = str(signature.return_annotation).partition("[")
    return inspect.Signature(
        [own, *taken], return_annotation=answer.format(answered.removesuffix("]"))
    )
