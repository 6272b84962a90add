"""Builds :class:`~topospread.telemetry.tracing.Tracing` from the process' ``OTEL_*`` variables."""

from __future__ import annotations

import logging
import os
import threading
from random import getrandbits
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from typing_extensions import override

from topospread.errors import ConfigError
from topospread.telemetry.tracing import Tracing, sampling_from_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_LAST_TRY: Final = 0.5
"""Seconds for what is left when the collector was out of reach at the last try."""

_LOG: Final = logging.getLogger(__name__)
_SDK_LOG: Final = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")


class PresetIdGenerator(IdGenerator, threading.local):
    """Gives a root span the trace id that its sampling was decided by."""

    next_trace_id = 0

    @override
    def generate_trace_id(self) -> int:
        return self.next_trace_id

    @override
    def generate_span_id(self) -> int:
        return getrandbits(64) or 1

    @override
    def is_trace_id_random(self) -> bool:
        return True


class Exporter(SpanExporter):
    """An exporter that says once that its collector is out of reach, and once that it is back.

    The SDK's says so at each try, several times a minute for as long as it lasts.

    Attributes:
        failing: whether the last try failed, if there was one.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter: Final = exporter
        self.failing = False
        _SDK_LOG.addFilter(self._first)

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS and self.failing:
            self.failing = False
            _LOG.warning("traces are exported again; those of the time between are lost")
        return result

    @override
    def shutdown(self) -> None:
        _SDK_LOG.removeFilter(self._first)
        self._exporter.shutdown()

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def _first(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        first, self.failing = not self.failing, True
        return first


class Export:
    """The SDK's pipeline: resource, tracer, batches, exporter.

    Attributes:
        tracer: records every span it is asked for.
        ids: ``next_trace_id`` is set before a root span is started, on the same thread.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._exporter = exporter = Exporter(exporter)
        self.ids = PresetIdGenerator()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self.ids, shutdown_on_exit=False
        )
        try:
            self._provider.add_span_processor(_batching(exporter))
        except ValueError:
            exporter.shutdown()
            raise
        self.tracer: Tracer = self._provider.get_tracer("topospread")

    def close(self, timeout: float) -> None:
        """Flush and end, or give up after ``timeout`` seconds; soon when tries fail anyway."""
        # The SDK's shutdown takes no time-out and tries a collector out of reach for up to 30 s.
        closing = threading.Thread(target=self._provider.shutdown, name="trace-flush", daemon=True)
        closing.start()
        closing.join(min(timeout, _LAST_TRY) if self._exporter.failing else timeout)
        if closing.is_alive():
            # Ends the try under way, and the pause before the next one.
            self._exporter.shutdown()


def _batching(exporter: SpanExporter) -> BatchSpanProcessor:
    """Batches of at most 64 spans each second unless OTEL_BSP_* says otherwise.

    The specification's 512 every 5 s are encoded in one long Python loop, and beside such
    a loop every decision waits for the interpreter's switch interval whenever NumPy lets go of it.
    """
    delay = None if "OTEL_BSP_SCHEDULE_DELAY" in os.environ else 1000
    batch = None if "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in os.environ else 64
    return BatchSpanProcessor(exporter, schedule_delay_millis=delay, max_export_batch_size=batch)


def tracing_from_environment(version: str) -> Tracing:
    """Tracing as the process' OTEL_* variables ask for; without an endpoint nothing is exported.

    Args:
        version: the server's, for the resource.

    Raises:
        ConfigError: a variable asks for what does not exist here.
    """
    environ = os.environ
    sampling = sampling_from_environment(environ)
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Tracing(sampling, None)
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if exporter not in {"otlp", "none"}:
        raise ConfigError(f"OTEL_TRACES_EXPORTER: {exporter!r} is not supported; use otlp or none")
    if exporter == "none" or not any(environ.get(name) for name in _ENDPOINTS):
        return Tracing(sampling, None)
    for name in _PROTOCOLS:
        if environ.get(name, "").strip().lower() not in {"", "grpc"}:
            raise ConfigError(
                f"{name}: only grpc is supported; point the endpoint at the collector's gRPC port"
                " (4317)"
            )
    # Only where traces are exported: it takes a tenth of the time in which a server starts.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    try:
        recorder = Export(OTLPSpanExporter(), _resource(environ, version))
    except ValueError as error:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_…, OTEL_BSP_…: {error}") from error
    return Tracing(sampling, recorder)


def _resource(environ: Mapping[str, str], version: str) -> Resource:
    attributes = {"service.version": version, "service.instance.id": str(uuid4())}
    described = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in described:
        attributes["service.name"] = "topospread"
    return Resource.create(attributes)
