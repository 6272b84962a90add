"""What the frame asks of gRPC about a call, whichever way the call came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import grpc


class Context(Protocol):
    """The part of grpcio's ServicerContext that is used here."""

    def is_active(self) -> bool:
        """Whether the caller may still be waiting."""
        ...

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline; years when there is none."""
        ...

    def cancel(self) -> object:
        """End the call from this side."""
        ...

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Have something done when the call is over and its answer sent; False: it is over."""
        ...

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """What came along with the call."""
        ...

    def peer(self) -> str:
        """Where the call comes from, as gRPC writes it."""
        ...

    def auth_context(self) -> Mapping[str, Any]:
        """What TLS knows of the caller."""
        ...

    def set_trailing_metadata(
        self, trailing_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> object:
        """What goes back with the status."""
        ...

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this status; the exception is to be let through."""
        ...


class StreamContext(Context, Protocol):
    """The same of a call with a stream of answers."""

    def send_initial_metadata(
        self, initial_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> object:
        """What the caller gets before the first answer, once."""
        ...
