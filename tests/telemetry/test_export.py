"""A collector that is out of reach: its log lines, and how long a stop waits for it."""

from __future__ import annotations

import logging
import threading

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from topospread.telemetry.export import Export, Exporter

SDK = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")


class Collector(SpanExporter):
    """Says what the SDK's exporter says of one that is out of reach."""

    def __init__(self):
        self.reached = False
        self.ended = threading.Event()
        self.tried = threading.Event()

    def export(self, spans):
        if self.reached:
            return SpanExportResult.SUCCESS
        for number in range(3):
            SDK.warning("Transient error %s", number)
        SDK.error("Failed to export %s", len(spans))
        return SpanExportResult.FAILURE

    def shutdown(self):
        self.ended.set()


class Silent(Collector):
    """Fails, and takes its time over it until it is shut down."""

    def export(self, spans):
        SDK.warning("Transient error")
        self.tried.set()
        self.ended.wait()
        return SpanExportResult.FAILURE


def test_a_pipeline_that_cannot_be_made_hides_nothing(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1")
    before = list(SDK.filters)
    collector = Collector()
    with pytest.raises(ValueError, match="max_export_batch_size"):
        Export(collector, Resource.create({}))
    assert SDK.filters == before
    assert collector.ended.is_set()


def test_each_state_is_said_once(caplog):
    caplog.set_level(logging.WARNING, SDK.name)
    collector = Collector()
    exporter = Exporter(collector)
    try:
        for reached in (True, False, False, False, True, True, False, False):
            collector.reached = reached
            exporter.export([])
    finally:
        exporter.shutdown()
    said = [record.getMessage() for record in caplog.records]
    back = "traces are exported again; those of the time between are lost"
    assert said == ["Transient error 0", back, "Transient error 0"]


def test_a_stop_does_not_wait_for_a_collector_that_is_known_to_be_out_of_reach():
    """Without an end of its own this test would time out."""
    collector = Silent()
    export = Export(collector, Resource.create({}))
    export.ids.next_trace_id = 1
    export.tracer.start_span("call").end()
    assert collector.tried.wait(60)
    export.close(timeout=3600)
    assert collector.ended.is_set()
