"""The span of a call, which every call has; OpenTelemetry is imported where one is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from opentelemetry.trace import Span, Tracer


Attribute = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]

# Statuses that are the server's fault, after OpenTelemetry's conventions for server spans: UNKNOWN,
# DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
_SERVER_FAULTS: Final = frozenset({2, 4, 12, 13, 14, 15})
_HTTP_SERVER_FAULT: Final = 500

CURRENT: Final[ContextVar[CallSpan | None]] = ContextVar("topospread_call", default=None)
"""The span of the call that a thread works for."""

_NO_CHILD: Final = nullcontext(None)


def format_traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """The header for a span."""
    # Twice as fast as the format specification 032x.
    return f"00-{trace_id.to_bytes(16).hex()}-{span_id.to_bytes(8).hex()}-{flags:02x}"


def current_call() -> CallSpan | None:
    """The call that this thread works for, if any: for logs and for decorators around the store."""
    return CURRENT.get()


class ChildSpan:
    """A step of a call with a span of its own, such as a write to the store; a context manager.

    An exception that leaves the block marks the span as failed with the exception's type; its text
    may hold what a driver says and stays out of traces.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def set(self, key: str, value: Attribute) -> None:
        """Set an attribute."""
        self._span.set_attribute(key, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)
            _set_failed(self._span)
        self._span.end()


class CallSpan:
    """The server span of one call; all but its ids is without effect unless ``recording``.

    Attributes:
        recording: whether attributes are kept and exported. Ask it before computing costly ones.
    """

    __slots__ = (
        "_attributes",
        "_flags",
        "_span",
        "_span_id",
        "_trace_id",
        "_traceparent",
        "_tracer",
        "recording",
    )

    def __init__(
        self, trace_id: int, span_id: int, flags: int, recorded: tuple[Tracer, Span] | None = None
    ) -> None:
        self._trace_id = trace_id
        self._span_id = span_id
        self._flags = flags
        self._traceparent = ""
        self.recording = recorded is not None
        if recorded is not None:
            self._tracer, self._span = recorded
            self._attributes: dict[str, Attribute] = {}

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._trace_id:032x}"

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return f"{self._span_id:016x}"

    @property
    def traceparent(self) -> str:
        """The W3C header that continues this trace; goes back to the caller, too."""
        if not self._traceparent:
            self._traceparent = format_traceparent(self._trace_id, self._span_id, self._flags)
        return self._traceparent

    def set(self, key: str, value: Attribute) -> None:
        """Set an attribute."""
        if self.recording:
            self._attributes[key] = value

    def set_many(self, attributes: Mapping[str, Attribute]) -> None:
        """Set several attributes."""
        if self.recording:
            self._attributes.update(attributes)

    def stage(self, name: str, seconds: float) -> None:
        """Note how long a stage took: attribute ``topospread.stage.NAME_us``, microseconds."""
        if self.recording:
            self._attributes[f"topospread.stage.{name}_us"] = round(seconds * 1e6, 1)

    def child(
        self, name: str, attributes: Mapping[str, Attribute] | None = None
    ) -> AbstractContextManager[ChildSpan | None]:
        """A client span below this one for a ``with`` block, which gets None when not recording."""
        if not self.recording:
            return _NO_CHILD
        from opentelemetry.trace import SpanKind, set_span_in_context

        below = set_span_in_context(self._span)
        return ChildSpan(self._tracer.start_span(name, below, SpanKind.CLIENT, attributes))

    def end(self, grpc_code: int, error: BaseException | None = None) -> None:
        """Close the span, exactly once, on the thread that started it.

        Args:
            grpc_code: number of the status the call ends with.
            error: why, when it is not OK.
        """
        self._close("rpc.grpc.status_code", grpc_code, grpc_code in _SERVER_FAULTS, error)

    def end_http(self, status: int, error: BaseException | None = None) -> None:
        """The same for a call over HTTP.

        Args:
            status: of the answer.
            error: why, when there is none.
        """
        self._close("http.response.status_code", status, status >= _HTTP_SERVER_FAULT, error)

    def _close(self, key: str, code: int, fault: bool, error: BaseException | None) -> None:
        if CURRENT.get() is self:
            CURRENT.set(None)
        if not self.recording:
            return
        self.recording = False
        self._attributes[key] = code
        if error is not None:
            self._attributes["error.type"] = type(error).__name__
        self._span.set_attributes(self._attributes)
        if fault:
            _set_failed(self._span)
        self._span.end()


def _set_failed(span: Span) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))
