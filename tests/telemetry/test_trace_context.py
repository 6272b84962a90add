from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from topospread.telemetry.spans import format_traceparent
from topospread.telemetry.tracing import Parent, parse_traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"  00-{TRACE}-{SPAN}-01 ", 1),
        (f"cc-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", 1),
    ],
)
def test_a_caller_is_recognised(header, flags):
    assert parse_traceparent(header) == Parent(int(TRACE, 16), int(SPAN, 16), flags)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-2]}_1-{SPAN}-01",
        f"00-+{TRACE[1:]}-{SPAN}-01",
        "x" * 100_000,
        b"00-aa-bb-01",
    ],
)
def test_a_malformed_header_is_ignored(header):
    assert parse_traceparent(header) is None


pieces = st.sampled_from(
    [TRACE, SPAN, "00", "01", "03", "ff", "cc", "-", " ", "\t", "\n", "g", "A"]
)


@given(st.one_of(st.lists(pieces, max_size=9).map("".join), st.text(max_size=60)))
def test_the_short_way_reads_what_the_propagator_reads(header):
    context = TraceContextTextMapPropagator().extract({"traceparent": header})
    span = get_current_span(context).get_span_context()
    expected = Parent(span.trace_id, span.span_id, int(span.trace_flags)) if span.is_valid else None
    assert parse_traceparent(header) == expected


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.sampled_from([0, 1, 2, 3]))
def test_a_formatted_header_is_read_back(trace_id, span_id, flags):
    assert parse_traceparent(format_traceparent(trace_id, span_id, flags)) == Parent(
        trace_id, span_id, flags
    )
