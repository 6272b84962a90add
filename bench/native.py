"""`python -m bench.native`: whether HTTP/2 outside the interpreter's lock can carry the decisions.

An empty call on pygrpc-native's front beside the two of `python -m bench decide`, and what one
caller without credentials can make such a server hold: docs/decisions/0024 has what came of it, to
be asked again of each release. The package is no dependency: `pip install pygrpc-native` first.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.echo import COMPLETION_QUEUE, GRPCIO, echo_server
from bench.figures import Figures
from bench.load import numbered, run_calls
from bench.processes import started
from bench.requests import EVALUATE_POD, evaluate_pod_requests, incoming_pods
from bench.stores import sqlite_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.processes import Running

SENT: Final = 256 << 20
"""Bytes of a message that one caller sends: sixteen times what a server takes by default."""

SECONDS: Final = 60.0

_CHANNEL: Final = [("grpc.max_send_message_length", -1)]


def serve() -> None:
    """Answer every call with nothing, in batches, on one thread."""
    native: Any = __import__("pygrpc_native._native", fromlist=["NativeGrpcFront"])
    front = native.NativeGrpcFront("127.0.0.1:0", [(EVALUATE_POD, False)], call_details=True)
    signal.signal(signal.SIGTERM, lambda *_: front.close())
    front.start()
    sys.stdout.write(f"native listens on 127.0.0.1:{front.bound_port}\n")
    sys.stdout.flush()

    def answer() -> None:
        while (events := front.recv_batch_details(64)) is not None:
            for kind, call, *_ in events:
                if kind == native.EVENT_CALL:
                    front.respond(call, b"")

    thread = threading.Thread(target=answer)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)


def held(running: Running, message: bytes, **more: Any) -> float:
    """MB more that a server holds at most while it is sent one message."""
    before = most = running.resident()
    with grpc.insecure_channel(running.address, _CHANNEL) as channel:
        call: Any = channel.unary_unary(EVALUATE_POD)
        sent = call.future(message, timeout=SECONDS, **more)
        while not sent.done():
            most = max(most, running.resident())
            time.sleep(0.001)
    return most - before


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.05), default=2.0, show_default=True)
def command(rounds: int, seconds: float) -> None:
    """Print the figures as JSON: medians, lowest and highest."""
    figures = Figures()
    asked = numbered(evaluate_pod_requests(incoming_pods()))
    with (
        sqlite_store() as store,
        echo_server(store, GRPCIO) as echo,
        echo_server(store, COMPLETION_QUEUE) as queue,
        started(("-m", "bench.native", "serve"), {}) as native,
    ):
        servers: Mapping[str, Running] = {"echo": echo, "queue_echo": queue, "native_echo": native}
        for _ in range(rounds):
            for concurrency in (1, 10, 50):
                for name, running in servers.items():
                    spent = running.cpu()
                    done = run_calls(running.address, EVALUATE_POD, asked, concurrency, seconds)
                    spent = running.cpu() - spent
                    mark = f"{name}_c{concurrency}"
                    figures.add(f"{mark}_rps", done.rate)
                    figures.add(f"{mark}_cpu_us", spent / done.calls * 1e6)
                    figures.add(f"{mark}_p50_ms", done.latency(0.5) * 1e3)
        message = b"\0" * SENT
        for name, running in servers.items():
            figures.add(f"{name}_held_mb", held(running, message))
            packed = held(running, message, compression=grpc.Compression.Gzip)
            figures.add(f"{name}_held_of_gzip_mb", packed)
    click.echo(json.dumps(figures.plain(), indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        command()
