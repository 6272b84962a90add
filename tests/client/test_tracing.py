"""W3C trace context goes to the server and comes back."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from topospread_client import trace_id
from topospread_client._methods import METHODS
from topospread_client._status import traceparent_in
from topospread_proto.v1 import server_service_pb2 as pb
from topospread_proto.v1.common_pb2 import ResponseMeta

PARENT = f"00-{'1' * 32}-{'2' * 16}-01"


def test_the_callers_parent_is_continued_and_returned(client):
    status = client.get_server_info(traceparent=PARENT)
    assert trace_id(status) == "1" * 32
    assert status.meta.traceparent != PARENT


def test_the_current_span_is_the_parent(connect, script):
    script.answer(METHODS["GetServerInfo"], pb.GetServerInfoResponse())
    state = TraceState([("vendor", "x")])
    context = SpanContext(int("3" * 32, 16), int("4" * 16, 16), False, TraceFlags(1), state)
    client = connect(script.address)
    with trace.use_span(NonRecordingSpan(context)):
        client.get_server_info()
    client.get_server_info(traceparent=PARENT)
    client.get_server_info()
    inside, explicit, outside = [metadata for _, _, metadata in script.seen]
    assert inside["traceparent"] == f"00-{'3' * 32}-{'4' * 16}-01"
    assert inside["tracestate"] == "vendor=x"
    assert explicit["traceparent"] == PARENT
    assert "traceparent" not in outside


@pytest.mark.parametrize(
    ("traceparent", "expected"),
    [(PARENT, "1" * 32), ("", None), ("odd", None)],
)
def test_trace_id_is_taken_out_of_the_context(traceparent, expected):
    answer = pb.GetServerInfoResponse(meta=ResponseMeta(traceparent=traceparent))
    assert trace_id(answer) == expected


def test_metadata_may_hold_bytes():
    assert traceparent_in([("other", b"x"), ("traceparent", PARENT.encode())]) == PARENT
    assert traceparent_in(None) is None
