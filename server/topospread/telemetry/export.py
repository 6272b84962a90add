"""Builds :class:`~topospread.telemetry.tracing.Tracing` from the process' ``OTEL_*`` variables."""

from __future__ import annotations

import os
import threading
from random import getrandbits
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from typing_extensions import override

from topospread.errors import ConfigError
from topospread.telemetry.sampling import sampling_from_environment
from topospread.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import Tracer

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class _GivenIds(IdGenerator, threading.local):
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


class Export:
    """The SDK's pipeline: resource, tracer, batches, exporter.

    Attributes:
        tracer: records every span it is asked for.
        ids: whoever starts a root span sets ``next_trace_id`` first, on the same thread.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._exporter = exporter
        self.ids = _GivenIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self.ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(_batching(exporter))
        self.tracer: Tracer = self._provider.get_tracer("topospread")

    def close(self, timeout: float) -> None:
        """Flush and end, or give up after ``timeout`` seconds."""
        # The SDK's shutdown takes no time-out and tries a collector out of reach for up to 30 s.
        closing = threading.Thread(target=self._provider.shutdown, name="trace-flush", daemon=True)
        closing.start()
        closing.join(timeout)
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
