"""One server span a call, started by hand; whether it is sampled is decided before any span exists.

Recording a span costs ten times what a call's ids cost, and even an SDK span that is not sampled
twice of that, so the samplers of the specification are computed here from the trace id and the
caller's flag, and the SDK is only asked when a span will be exported (bench/telemetry.py
measures it). Every call has ids all the same: they go back to the caller and into the logs.

The standard variables apply: ``OTEL_SDK_DISABLED``, ``OTEL_SERVICE_NAME`` (default ``topospread``),
``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_TRACES_EXPORTER`` (``otlp`` or ``none``),
``OTEL_TRACES_SAMPLER`` and ``_ARG``, and all of ``OTEL_EXPORTER_OTLP_*`` (protocol ``grpc``) and
``OTEL_BSP_*``. Two defaults are not the specification's, for the sake of throughput: without
``OTEL_TRACES_SAMPLER`` one call in a hundred that has no caller's trace is recorded, and spans are
exported in smaller batches (see ``_batching`` in :mod:`topospread.telemetry.export`).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache
from random import getrandbits
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from opentelemetry.trace import SpanKind, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from topospread.errors import ConfigError
from topospread.telemetry.spans import CURRENT, CallSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

_propagator = TraceContextTextMapPropagator()

SAMPLED: Final = 0x01
RANDOM: Final = 0x02
"""Flag: the trace id is random in its lower 56 bits, so that a sampler may go by it."""

_usual = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})").fullmatch

DEFAULT_RATIO: Final = 0.01


class Parent(NamedTuple):
    """The caller's span."""

    trace_id: int
    span_id: int
    flags: int


def parse_traceparent(traceparent: str | bytes) -> Parent | None:
    """The caller's span, or None when malformed: the call then begins a trace of its own."""
    if not isinstance(traceparent, str):
        return None
    if (match := _usual(traceparent)) is None:
        return _parse_unusual(traceparent)
    trace_id, span_id = int(match[1], 16), int(match[2], 16)
    if not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, int(match[3], 16))


def _parse_unusual(traceparent: str) -> Parent | None:
    """Later versions of the header, and blanks around it."""
    context = _propagator.extract({"traceparent": traceparent})
    span = get_current_span(context).get_span_context()
    return Parent(span.trace_id, span.span_id, int(span.trace_flags)) if span.is_valid else None


@dataclass(frozen=True, slots=True)
class Sampling:
    """A sampler of the specification, as numbers.

    Attributes:
        bound: a call is sampled when the lower 64 bits of its trace id are below it: 0 never,
            2**64 always.
        parent_based: a caller's own decision goes before it.
    """

    bound: int
    parent_based: bool

    @classmethod
    def ratio(cls, ratio: float, *, parent_based: bool = True) -> Sampling:
        """Sample this share of the traces, 0 to 1."""
        return cls(round(ratio * 2**64), parent_based)


def sampling_from_environment(environ: Mapping[str, str]) -> Sampling:
    """The sampling that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG ask for.

    Raises:
        ConfigError: they ask for what does not exist.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_traceidratio"
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    root = name.removeprefix("parentbased_")
    parent_based = root != name
    if root == "always_on":
        return Sampling.ratio(1.0, parent_based=parent_based)
    if root == "always_off":
        return Sampling.ratio(0.0, parent_based=parent_based)
    if root != "traceidratio":
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER: {name!r} is not a sampler; use always_on, always_off or"
            " traceidratio, each also with parentbased_ before it"
        )
    try:
        ratio = float(argument) if argument else DEFAULT_RATIO
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: {argument!r} is not a number from 0 to 1")
    return Sampling.ratio(ratio, parent_based=parent_based)


class RootIds(Protocol):
    """The source of the trace id for the next root span of this thread."""

    next_trace_id: int


class Recorder(Protocol):
    """Records and exports spans; :class:`topospread.telemetry.export.Export` does."""

    @property
    def tracer(self) -> Tracer:
        """Records every span it is asked for."""
        ...

    @property
    def ids(self) -> RootIds:
        """Receives the trace id before a root span is started, on the same thread."""
        ...

    def close(self, timeout: float) -> None:
        """Flush and end, or give up after so many seconds."""
        ...


class Tracing:
    """Starts the calls' spans; without a recorder none is recorded, and calls still have ids."""

    def __init__(self, sampling: Sampling, recorder: Recorder | None) -> None:
        self._bound = sampling.bound
        self._parent_based = sampling.parent_based
        self._recorder = recorder

    def start(
        self,
        method: str,
        metadata: Sequence[tuple[str, str | bytes]] = (),
        arrived: float | None = None,
    ) -> CallSpan:
        """Begin the span of a call, which must be closed with :meth:`CallSpan.end`.

        Args:
            method: gRPC's full name, ``/topospread.v1.DecisionService/EvaluatePod``, or another
                span name.
            metadata: the call's, with lower-case keys; ``traceparent`` and ``tracestate`` are
                looked at.
            arrived: when it came in, on the clock of time.perf_counter; None: now.
        """
        parent = None
        for key, value in metadata:
            if key == "traceparent":
                parent = parse_traceparent(value)
                break
        if parent is None:
            # Zero is not a valid id; that it is drawn will not happen in the life of a star.
            trace_id = getrandbits(128) or 1
            flags = RANDOM
        else:
            trace_id = parent.trace_id
            flags = parent.flags & RANDOM
        if parent is not None and self._parent_based:
            sampled = parent.flags & SAMPLED != 0
        else:
            sampled = trace_id & 0xFFFF_FFFF_FFFF_FFFF < self._bound
        if sampled and self._recorder is not None:
            context = None if parent is None else _context_of(metadata)
            call = self._recorded(self._recorder, method, trace_id, context, arrived)
        else:
            call = CallSpan(trace_id, getrandbits(64) or 1, flags)
        CURRENT.set(call)
        return call

    def _recorded(
        self,
        recorder: Recorder,
        method: str,
        trace_id: int,
        context: Context | None,
        arrived: float | None,
    ) -> CallSpan:
        recorder.ids.next_trace_id = trace_id
        attributes = _rpc_attributes(method)
        began = None
        if arrived is not None:
            began = time.time_ns() - round((time.perf_counter() - arrived) * 1e9)
        span = recorder.tracer.start_span(
            method.lstrip("/"), context, SpanKind.SERVER, attributes, start_time=began
        )
        made = span.get_span_context()
        recorded = (recorder.tracer, span)
        return CallSpan(made.trace_id, made.span_id, int(made.trace_flags), recorded)

    def close(self, timeout: float = 5.0) -> None:
        """Export what is left, for at most ``timeout`` seconds."""
        if self._recorder is not None:
            self._recorder.close(timeout)


def _context_of(metadata: Sequence[tuple[str, str | bytes]]) -> Context:
    carrier: dict[str, list[str]] = {}
    for key, value in metadata:
        if key in {"traceparent", "tracestate"} and isinstance(value, str):
            carrier.setdefault(key, []).append(value)
    return _propagator.extract(carrier)


@lru_cache(maxsize=256)
def _rpc_attributes(method: str) -> Mapping[str, str]:
    """OpenTelemetry's attributes for a gRPC method's full name; none for other span names."""
    service, _, name = method.removeprefix("/").partition("/")
    if not method.startswith("/") or not name:
        return {}
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
