"""W3C trace context of calls and responses.

No tracing library is needed. Where the caller uses OpenTelemetry, its current span is the parent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from topospread_client._arguments import checked
from topospread_client._errors import invalid

if TYPE_CHECKING:
    from google.protobuf.message import Message

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
"""gRPC metadata of blocking and asyncio calls."""


def outgoing(traceparent: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata with the parent of the server's span.

    Args:
        traceparent: of the caller; None takes the current OpenTelemetry span, if any.

    Raises:
        InvalidRequest: a traceparent that cannot be sent.
    """
    if traceparent is not None:
        checked(str, traceparent, "traceparent")
        if not traceparent.isascii() or not traceparent.isprintable():
            raise invalid("traceparent", f"{traceparent!r} is no W3C trace context")
        return ((TRACEPARENT, traceparent),)
    # Unless OpenTelemetry was imported there is no span, and nothing to import for it.
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


def traceparent_of(answer: Message, metadata: Metadata | None) -> str | None:
    """Trace context of an answer: in its meta, or else in its call's metadata."""
    meta = getattr(answer, "meta", None)
    return getattr(meta, "traceparent", "") or traceparent_in(metadata)


def traceparent_in(metadata: Metadata | None) -> str | None:
    """Trace context that the server returned."""
    for key, value in metadata or ():
        if key == TRACEPARENT:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None


def trace_id(traceparent: str | None) -> str | None:
    """Trace id: 32 hexadecimal digits; None without a traceparent."""
    if traceparent is None:
        return None
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 else None
