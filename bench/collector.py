"""A trace collector that forgets what it gets: `python -m bench.collector`."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from bench.processes import started
from topospread.app.stop_event import StopEvent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

from bench.processes import Running

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def collector() -> AbstractContextManager[Running]:
    """Start one in a process of its own."""
    return started(("-m", __name__), {})


def tracing_environment(collector: Running, ratio: float) -> dict[str, str]:
    """Variables of a server that records this share of its calls and sends them there."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.address}",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(ratio),
    }


def _forget(raw: bytes, context: grpc.ServicerContext) -> bytes:
    return b""


def main() -> None:
    """Serve until SIGTERM."""
    done = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    server = grpc.server(ThreadPoolExecutor(1))
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Export": grpc.unary_unary_rpc_method_handler(_forget)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"collector listens on 127.0.0.1:{port}\n")
    sys.stdout.flush()
    done.wait()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
