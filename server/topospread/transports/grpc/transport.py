"""The interface between the ways that calls come in and what answers them.

A :class:`Transport` brings the calls of methods: each is a :class:`Context` (metadata, deadline,
peer) and the bytes of its requests. A :class:`Handler` answers the calls of one method. Neither
knows what the other is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from topospread.servicers.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import grpc

    from topospread.access.callers import Caller
    from topospread.errors import TopospreadError
    from topospread.servicers.status import RpcStatus


class Context(Protocol):
    """A call: the part of grpcio's ServicerContext that is used here."""

    def is_active(self) -> bool:
        """Whether the client may still be waiting."""
        ...

    def time_remaining(self) -> float:
        """Seconds until the client's deadline; years when there is none."""
        ...

    def cancel(self) -> object:
        """End the call from this side."""
        ...

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Run a function when the call is over and its response sent; False: it is over."""
        ...

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the client sent."""
        ...

    def peer(self) -> str:
        """The client's address, as gRPC writes it."""
        ...

    def auth_context(self) -> Mapping[str, Any]:
        """The properties of the client's TLS connection."""
        ...

    def set_trailing_metadata(
        self, trailing_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> object:
        """Set the metadata that goes out with the status."""
        ...

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this status; the exception is to be let through."""
        ...


class StreamContext(Context, Protocol):
    """The same for a call with a stream of responses."""

    def send_initial_metadata(
        self, initial_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> object:
        """Send the metadata that comes before the first response, once."""
        ...


class Handler(Protocol):
    """Answers the calls of one method."""

    @property
    def name(self) -> str:
        """Of the method, without its service."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether its responses are a stream."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether callers must be admitted."""
        ...

    # ------------------------------ for a transport that brings the message itself

    def admit(self, context: Context) -> Caller:
        """Authenticate the caller, before a request is read.

        Raises:
            TopospreadError: the caller is unknown or lacks the permission.
        """
        ...

    def respond(
        self,
        context: Context,
        caller: Caller,
        raw: bytes | None,
        refused: TopospreadError | None,
        arrived: float,
    ) -> bytes:
        """The serialized response of a unary call, or Context.abort was called.

        Args:
            context: of the call.
            caller: as admitted.
            raw: the request, as it came; None: the caller sends none.
            refused: why the call is not to be carried out.
            arrived: when the call came in, on the clock of time.perf_counter.
        """
        ...

    # ------------------------------ for one that hands its messages over as an iterator

    def unary(self, raws: Iterator[bytes], context: Context) -> bytes:
        """The serialized response, or Context.abort was called."""
        ...

    def stream(self, raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
        """The serialized responses, until the call, its caller or the server ends."""
        ...


class Transport(Protocol):
    """A way that calls can take from the network to their handlers."""

    def register(self, server: grpc.Server, service: str, handlers: Sequence[Handler]) -> None:
        """Bring these methods' calls to their handlers; before the server starts."""
        ...

    def start(self, on_broken: Callable[[], object]) -> None:
        """Begin to bring calls; after the server has started.

        Args:
            on_broken: called when calls of a method are brought no more.
        """
        ...

    def stop(self) -> None:
        """Note that the server stops: that no more calls come is no failure from now on."""
        ...


def abort(context: Context, status: RpcStatus, traceparent: str = "") -> NoReturn:
    """End a call with a status, its details and its trace.

    The status goes out alone: after a message, even an empty one, no client's retry policy would
    repeat the call.
    """
    context.set_trailing_metadata(trailers_of(status, traceparent))
    context.abort(status.code, status.message)


def trailers_of(status: RpcStatus, traceparent: str = "") -> tuple[tuple[str, str | bytes], ...]:
    """The metadata that goes out with a status other than OK."""
    details = ("grpc-status-details-bin", status.proto().SerializeToString())
    return (("traceparent", traceparent), details) if traceparent else (details,)


def end_call(context: Context, error: TopospreadError) -> None:
    """End a call of grpcio's from a thread that does not carry it out, with an error's status.

    grpcio's own way to do so ends each call as CANCELLED, as if its caller had. What is used
    instead is not public; where it is missing, that way remains.
    """
    status = status_of(error)
    with suppress(AttributeError, TypeError):
        context._rpc_event.call.cancel(  # type: ignore[attr-defined] # noqa: SLF001 - see above
            status.code.value[0], status.message
        )
        return
    context.cancel()
