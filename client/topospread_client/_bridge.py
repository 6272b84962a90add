"""A client over calls that are made in this process; goes when the command line calls by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from typing_extensions import override

from topospread_client._client import Client
from topospread_client._operations import ClientSession, RpcCall, RpcReply, ServerStream
from topospread_client._tracing import traceparent_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from google.protobuf.message import Message

_T = TypeVar("_T")


class Caller(Protocol):
    """Makes calls by the names of methods."""

    def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """Answer to a request."""

    def stream(self, method: str, request: Message) -> Iterator[Any]:
        """Answers to a request."""


class BridgeClient(Client):
    """A client of a caller."""

    def __init__(self, caller: Caller, *, cluster: str, timeout: float) -> None:
        """See `Client`."""
        self._caller = caller
        self._session = ClientSession(cluster)  # type: ignore[misc] # Client's is not made
        self._timeout = timeout

    @override
    def close(self) -> None:
        """There is no connection."""

    @override
    def _call(self, call: RpcCall) -> RpcReply[Any]:
        timeout = call.timeout or self._timeout + call.extra_timeout
        request = cast("Message", call.request)
        answer = self._caller.call(call.rpc.method.name, request, timeout=timeout)
        return RpcReply(answer, traceparent_of(answer, ()))

    @override
    def _follow(self, stream: ServerStream[_T]) -> Generator[_T, None, None]:
        request = cast("Message", stream.call.request)
        for message in self._caller.stream(stream.call.rpc.method.name, request):
            yield stream.read(message)
