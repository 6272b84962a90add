"""W3C trace context on the way to the server and back.

No tracing library is needed. Where the caller uses OpenTelemetry, its current span is the parent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final, TypeAlias

from topospread_client._errors import invalid
from topospread_client._given import expect

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
"""gRPC metadata as both kinds of gRPC call give it."""


def outgoing(traceparent: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that names the parent of the server's span.

    Args:
        traceparent: given by the caller; None takes the current OpenTelemetry span, if any.

    Raises:
        InvalidRequest: it cannot be sent.
    """
    if traceparent is not None:
        expect(str, traceparent, "traceparent")
        if not traceparent.isascii() or not traceparent.isprintable():
            raise invalid("traceparent", f"{traceparent!r} is no W3C trace context")
        return ((TRACEPARENT, traceparent),)
    # Where nobody has imported OpenTelemetry there can be no span: looking is then free.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ()
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ()
    ids = f"{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    state: str = context.trace_state.to_header()
    parent = (TRACEPARENT, f"00-{ids}")
    return (parent, (TRACESTATE, state)) if state else (parent,)


def traceparent_in(metadata: Metadata | None) -> str | None:
    """The trace context that the server returned."""
    for key, value in metadata or ():
        if key == TRACEPARENT:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None


def trace_id(traceparent: str | None) -> str | None:
    """The 32 hexadecimal digits under which a trace is looked up; None when there is no trace."""
    if traceparent is None:
        return None
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 else None
