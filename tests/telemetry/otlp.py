"""A real OTLP receiver: opentelemetry-proto's TraceService on a gRPC server in this process."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class TraceReceiver(TraceServiceServicer):
    """Keeps what arrives.

    Attributes:
        endpoint: for OTEL_EXPORTER_OTLP_ENDPOINT.
        resource: attributes of the last resource that sent spans.
        headers: metadata of the last export.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.resource: dict[str, object] = {}
        self.headers: dict[str, str | bytes] = {}
        self._spans: queue.Queue[Span] = queue.Queue()

    def Export(  # noqa: N802 - the protocol's name
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.headers = dict(context.invocation_metadata())
        for group in request.resource_spans:
            self.resource = plain(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    self._spans.put(span)
        return ExportTraceServiceResponse()

    def spans(self, count: int, timeout: float = 30.0) -> list[Span]:
        """The next spans; raises queue.Empty when they do not come."""
        return [self._spans.get(timeout=timeout) for _ in range(count)]

    def waiting(self) -> int:
        """Spans that have arrived and were not asked for."""
        return self._spans.qsize()


def plain(attributes: Iterable[KeyValue]) -> dict[str, object]:
    """Attributes as plain values."""
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@contextmanager
def trace_receiver() -> Iterator[TraceReceiver]:
    """A receiver on a port of 127.0.0.1."""
    receiver = TraceReceiver()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(receiver, server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
