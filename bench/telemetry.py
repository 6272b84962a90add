"""What telemetry costs a call: `python -m bench.telemetry` prints microseconds.

Each line is the best of several rounds, in one thread; in a busy server everything costs about
twice that. The libraries' own ways stand beside ours.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry, Counter, Histogram
from typing_extensions import override

from topospread.telemetry.export import Export
from topospread.telemetry.meters import CALL_BOUNDS, FRAMEWORK_BOUNDS, PLUGIN_BOUNDS, WAIT_BOUNDS
from topospread.telemetry.metrics import Metrics
from topospread.telemetry.tracing import Sampling, Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

METHOD = "/topospread.v1.DecisionService/EvaluatePod"
POINTS = ("PreFilter", "Filter", "PreScore", "Score")
METADATA = (("user-agent", "grpc-go/1.80"), ("grpc-accept-encoding", "gzip"))
CALLER = f"00-{'a' * 32}-{'b' * 16}-"


class _Nowhere(SpanExporter):
    @override
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def best(work: Callable[[], object], times: int, rounds: int = 7) -> float:
    """Microseconds of one call."""
    found = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(times):
            work()
        found = min(found, time.perf_counter() - started)
    return found / times * 1e6


def call(tracing: Tracing, metadata: Sequence[tuple[str, str]]) -> None:
    """A call's span as the server uses it: an attribute, a stage, the way back to the caller."""
    span = tracing.start(METHOD, metadata)
    span.stage("filter", 1e-5)
    if span.recording:
        span.set_many({"topospread.cluster": "default", "topospread.nodes": 5000})
    assert span.traceparent
    span.end(0)


def spans() -> None:
    """Spans."""
    off = Tracing(Sampling.ratio(0.0), Export(_Nowhere(), Resource.create()))
    on = Tracing(Sampling.ratio(1.0), Export(_Nowhere(), Resource.create()))
    line("span, not sampled, no caller's trace", best(lambda: call(off, METADATA), 50_000))
    unsampled = (*METADATA, ("traceparent", f"{CALLER}00"))
    line("span, not sampled, caller's trace", best(lambda: call(off, unsampled), 50_000))
    line("span, sampled, no caller's trace", best(lambda: call(on, METADATA), 5_000))
    sampled = (*METADATA, ("traceparent", f"{CALLER}01"))
    line("span, sampled, caller's trace", best(lambda: call(off, sampled), 5_000))
    tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("x")
    line("  the SDK's own, not sampled", best(lambda: tracer.start_span(METHOD).end(), 50_000))
    off.close()
    on.close()


def counts() -> None:
    """One EvaluatePod's observations."""
    metrics = Metrics("1")
    points = [metrics.extension_point(point, "default-scheduler") for point in POINTS]
    wait = metrics.consistency("minimize_latency")
    method = metrics.call("DecisionService/EvaluatePod")

    def evaluate() -> None:
        for point in points:
            point.observe("Success", 1.7e-5)
        metrics.attempt("scheduled", "default-scheduler")
        wait.observe(0.0)
        method.observe("OK", 2.3e-4)

    line("metrics of one EvaluatePod: 4 points, attempt, wait, call", best(evaluate, 50_000))
    line("  the same with prometheus_client's children", best(with_prometheus(), 10_000))
    line("exposition", best(metrics.expose, 20))


def with_prometheus() -> Callable[[], None]:
    """The same observations on prometheus_client's own metrics, their children kept."""
    registry = CollectorRegistry()
    plugin = Histogram("p", "", ["point", "status"], buckets=PLUGIN_BOUNDS, registry=registry)
    framework = Histogram("f", "", ["point", "status"], buckets=FRAMEWORK_BOUNDS, registry=registry)
    runs = Counter("r", "", ["point"], registry=registry)
    attempt = Counter("a", "", ["result"], registry=registry).labels("scheduled")
    wait = Histogram("w", "", ["mode"], buckets=WAIT_BOUNDS, registry=registry).labels("any")
    calls = Histogram("c", "", ["code"], buckets=CALL_BOUNDS, registry=registry).labels("OK")
    children = [
        (plugin.labels(point, "Success"), framework.labels(point, "Success"), runs.labels(point))
        for point in POINTS
    ]

    def evaluate() -> None:
        for in_plugin, in_framework, run in children:
            in_plugin.observe(1.7e-5)
            in_framework.observe(1.7e-5)
            run.inc()
        attempt.inc()
        wait.observe(0.0)
        calls.observe(2.3e-4)

    return evaluate


def line(what: str, microseconds: float) -> None:
    """Print one figure."""
    sys.stdout.write(f"{what:<58}{microseconds:>9.2f} µs\n")


if __name__ == "__main__":
    spans()
    counts()
