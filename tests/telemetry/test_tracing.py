from __future__ import annotations

import os
import socket
import threading

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.telemetry.otlp import plain, trace_receiver
from topospread.errors import ConfigError, StoreUnavailable
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.spans import current_call, format_traceparent
from topospread.telemetry.tracing import (
    Parent,
    Sampling,
    Tracing,
    parse_traceparent,
    sampling_from_environment,
)

METHOD = "/topospread.v1.DecisionService/EvaluatePod"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
UNSAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-00"),)

OK = grpc.StatusCode.OK.value[0]
INTERNAL = grpc.StatusCode.INTERNAL.value[0]
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT.value[0]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def receiver():
    with trace_receiver() as receiver:
        yield receiver


@pytest.fixture
def exporting(receiver, monkeypatch):
    """Makes a Tracing that exports to the receiver, with further variables."""
    made = []

    def make(**variables):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        # Sooner than the default, so that nothing is waited for.
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made.append(tracing_from_environment("1.2.3"))
        return made[-1]

    yield make
    for tracing in made:
        tracing.close()


def test_a_sampled_call_arrives_span_by_span(receiver, exporting):
    tracing = exporting()
    call = tracing.start(METHOD, (("user-agent", "test"), *SAMPLED, ("tracestate", "vendor=7")))
    call.set("topospread.cluster", "default")
    call.set_many({"topospread.nodes": 5000, "topospread.verdicts": ["Success=3"]})
    call.stage("decode", 0.0000123)
    with call.child("store.apply", {"db.system.name": "redis"}) as child:
        child.set("topospread.changes", 3)
    call.end(OK)

    below, server = receiver.spans(2)

    assert server.name == "topospread.v1.DecisionService/EvaluatePod"
    assert server.kind == Span.SPAN_KIND_SERVER
    assert server.trace_id.hex() == TRACE
    assert server.parent_span_id.hex() == PARENT
    assert server.trace_state == "vendor=7"
    assert plain(server.attributes) == {
        "rpc.system": "grpc",
        "rpc.service": "topospread.v1.DecisionService",
        "rpc.method": "EvaluatePod",
        "rpc.grpc.status_code": 0,
        "topospread.cluster": "default",
        "topospread.nodes": 5000,
        "topospread.verdicts": ["Success=3"],
        "topospread.stage.decode_us": 12.3,
    }
    assert server.status.code == Status.STATUS_CODE_UNSET
    assert call.traceparent == f"00-{TRACE}-{server.span_id.hex()}-01"
    assert (below.name, below.kind) == ("store.apply", Span.SPAN_KIND_CLIENT)
    assert (below.trace_id, below.parent_span_id) == (server.trace_id, server.span_id)
    assert plain(below.attributes) == {"db.system.name": "redis", "topospread.changes": 3}
    assert server.start_time_unix_nano <= below.start_time_unix_nano
    assert below.end_time_unix_nano <= server.end_time_unix_nano


def test_the_resource_names_the_service(receiver, exporting):
    exporting().start(METHOD, SAMPLED).end(OK)
    receiver.spans(1)
    assert receiver.resource["service.name"] == "topospread"
    assert receiver.resource["service.version"] == "1.2.3"


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SERVICE_NAME": "spread-prod"},
        {"OTEL_RESOURCE_ATTRIBUTES": "service.name=spread-prod,team=sched"},
    ],
)
def test_the_environment_may_name_the_service(receiver, exporting, variables):
    exporting(**variables).start(METHOD, SAMPLED).end(OK)
    receiver.spans(1)
    assert receiver.resource["service.name"] == "spread-prod"


def test_exporter_variables_of_the_standard_apply(receiver, exporting):
    exporting(OTEL_EXPORTER_OTLP_HEADERS="x-tenant=blue").start(METHOD, SAMPLED).end(OK)
    receiver.spans(1)
    assert receiver.headers["x-tenant"] == "blue"


def test_an_unsampled_caller_is_followed_without_a_span(receiver, exporting):
    tracing = exporting(OTEL_TRACES_SAMPLER_ARG="1")
    call = tracing.start(METHOD, UNSAMPLED)
    call.set("topospread.cluster", "default")
    with call.child("store.apply") as child:
        assert child is None
    assert not call.recording
    assert call.trace_id == TRACE
    assert call.traceparent == f"00-{TRACE}-{call.span_id}-00"
    assert call.span_id != PARENT
    call.end(OK)
    tracing.close()
    assert receiver.waiting() == 0


def test_a_root_that_is_sampled_is_exported_under_the_id_that_decided(receiver, exporting):
    tracing = exporting(OTEL_TRACES_SAMPLER_ARG="0.5")
    calls = [tracing.start(METHOD) for _ in range(200)]
    recorded = {call.trace_id for call in calls if call.recording}
    for call in calls:
        call.end(OK)
    spans = receiver.spans(len(recorded))
    tracing.close()

    assert receiver.waiting() == 0
    assert {span.trace_id.hex() for span in spans} == recorded
    assert all(not span.parent_span_id for span in spans)
    half = 2**63
    assert recorded == {c.trace_id for c in calls if int(c.trace_id[16:], 16) < half}
    assert {c.traceparent[-2:] for c in calls} == {"02", "03"}


@pytest.mark.parametrize(
    ("sampler", "argument", "metadata", "recording"),
    [
        ("always_on", "", UNSAMPLED, True),
        ("always_off", "", SAMPLED, False),
        ("traceidratio", "1", UNSAMPLED, True),
        ("traceidratio", "0", SAMPLED, False),
        ("parentbased_always_on", "", UNSAMPLED, False),
        ("parentbased_always_on", "", (), True),
        ("parentbased_always_off", "", SAMPLED, True),
        ("parentbased_always_off", "", (), False),
        ("parentbased_traceidratio", "1", (), True),
        ("parentbased_traceidratio", "0", SAMPLED, True),
        ("PARENTBASED_TRACEIDRATIO", "1.0", UNSAMPLED, False),
        ("", "1", (), True),
        ("", "1", (("traceparent", "rubbish"),), True),
    ],
)
def test_samplers_of_the_standard(exporting, sampler, argument, metadata, recording):
    tracing = exporting(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)
    call = tracing.start(METHOD, metadata)
    assert call.recording is recording
    call.end(OK)


def test_one_call_in_a_hundred_is_sampled_by_default():
    assert sampling_from_environment({}) == Sampling(round(2**64 / 100), parent_based=True)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_export_there_are_ids_all_the_same(monkeypatch, receiver, variables):
    if variables:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tracing = tracing_from_environment("1")
    call = tracing.start(METHOD, SAMPLED)
    assert not call.recording
    assert call.trace_id == TRACE
    # Nothing was recorded here, so nobody must look for it.
    assert call.traceparent.endswith("-00")
    call.end(OK)
    tracing.close()
    assert receiver.waiting() == 0


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER: 'sometimes'"),
        ({"OTEL_TRACES_SAMPLER_ARG": "2"}, "OTEL_TRACES_SAMPLER_ARG: '2'"),
        ({"OTEL_TRACES_SAMPLER_ARG": "nan"}, "OTEL_TRACES_SAMPLER_ARG: 'nan'"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin'"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            },
            "OTEL_EXPORTER_OTLP_PROTOCOL: only grpc",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "soon",
            },
            "OTEL_EXPORTER_OTLP_…, OTEL_BSP_…: could not convert string to float: 'soon'",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
                "OTEL_BSP_MAX_QUEUE_SIZE": "10",
            },
            "OTEL_EXPORTER_OTLP_…, OTEL_BSP_…: max_export_batch_size must be",
        ),
    ],
)
def test_impossible_settings_are_refused(monkeypatch, variables, named):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=named.split(":")[0]) as refused:
        tracing_from_environment("1")
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (OK, Status.STATUS_CODE_UNSET),
        (INVALID_ARGUMENT, Status.STATUS_CODE_UNSET),
        (INTERNAL, Status.STATUS_CODE_ERROR),
    ],
)
def test_only_the_servers_own_faults_are_errors(receiver, exporting, code, status):
    call = exporting().start(METHOD, SAMPLED)
    call.end(code, StoreUnavailable("redis://user:secret@host is gone") if code else None)
    (span,) = receiver.spans(1)
    assert span.status.code == status
    attributes = plain(span.attributes)
    assert attributes["rpc.grpc.status_code"] == code
    assert attributes.get("error.type") == ("StoreUnavailable" if code else None)
    assert b"secret" not in span.SerializeToString()


def test_a_step_that_fails_is_marked_and_the_error_goes_on(receiver, exporting):
    call = exporting().start(METHOD, SAMPLED)
    with pytest.raises(StoreUnavailable), call.child("store.apply"):
        raise StoreUnavailable("redis://user:secret@host is gone")
    call.end(INTERNAL)
    below, _ = receiver.spans(2)
    assert below.status.code == Status.STATUS_CODE_ERROR
    assert plain(below.attributes)["error.type"] == "StoreUnavailable"
    assert b"secret" not in below.SerializeToString()


def test_the_thread_knows_its_call_until_it_ends():
    tracing = Tracing(Sampling.ratio(0.0), None)
    assert current_call() is None
    call = tracing.start(METHOD)
    assert current_call() is call
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(current_call()))
    thread.start()
    thread.join()
    assert elsewhere == [None]
    call.end(OK)
    assert current_call() is None


def test_ending_an_older_call_leaves_the_newer_one():
    tracing = Tracing(Sampling.ratio(0.0), None)
    older, newer = tracing.start(METHOD), tracing.start(METHOD)
    older.end(OK)
    assert current_call() is newer
    newer.end(OK)


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "says nothing"])
def test_a_collector_out_of_reach_holds_up_no_shutdown_and_is_not_tried_on(monkeypatch, listens):
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")
        tracing = tracing_from_environment("1")
        call = tracing.start(METHOD, SAMPLED)
        assert call.recording
        call.end(OK)
        tracing.close(timeout=0.2)
        for thread in set(threading.enumerate()) - before:
            thread.join(20)  # the SDK alone would try for 30 s
            assert not thread.is_alive()


def test_other_spans_than_calls_have_no_rpc_attributes(receiver, exporting):
    exporting().start("GET /metrics", SAMPLED).end(OK)
    (span,) = receiver.spans(1)
    assert span.name == "GET /metrics"
    assert plain(span.attributes) == {"rpc.grpc.status_code": 0}


# ------------------------------ the header


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (f"00-{TRACE}-{PARENT}-01", 1),
        (f"00-{TRACE}-{PARENT}-00", 0),
        (f"00-{TRACE}-{PARENT}-03", 3),
        (f"  00-{TRACE}-{PARENT}-01 ", 1),
        (f"cc-{TRACE}-{PARENT}-01", 1),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", 1),
    ],
)
def test_a_caller_is_recognised(header, flags):
    assert parse_traceparent(header) == Parent(int(TRACE, 16), int(PARENT, 16), flags)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-0g",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[:-2]}_1-{PARENT}-01",
        f"00-+{TRACE[1:]}-{PARENT}-01",
        "x" * 100_000,
        b"00-aa-bb-01",
    ],
)
def test_a_malformed_header_is_ignored(header):
    assert parse_traceparent(header) is None


pieces = st.sampled_from(
    [TRACE, PARENT, "00", "01", "03", "ff", "cc", "-", " ", "\t", "\n", "g", "A"]
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
