"""Start-up: the time until a new process is ready, and the memory that it holds then."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench import requests
from bench.figures import Figures
from bench.load import numbered, run_calls
from bench.processes import server
from bench.stores import fill_store, free_port, redis_store, sqlite_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.cluster import Size
    from bench.options import BenchOptions

MAX_ROUNDS: Final = 3
"""A start takes seconds and varies little."""

_LOOK: Final = 0.001


def measure_start(options: BenchOptions) -> Figures:
    """Seconds from an open port to readiness, and MB then and after some decisions.

    Each size is loaded from Redis and from SQLite.
    """
    figures = Figures()
    usual = options.size
    sizes = {
        "": usual,
        "_x3": replace(usual, pods=usual.pods * 3),
        "_x3_own_labels": replace(usual, pods=usual.pods * 3, own_labels=True),
    }
    with ExitStack() as opened:
        stores = _stores(options, sizes, opened, figures)
        rounds = min(options.rounds, MAX_ROUNDS)
        for number in range(rounds):
            options.progress(f"start: round {number + 1} of {rounds}")
            for mark, address in stores.items():
                _start(address, mark, options.seconds, figures)
    return figures


def _stores(
    options: BenchOptions, sizes: Mapping[str, Size], opened: ExitStack, figures: Figures
) -> dict[str, str]:
    """Addresses of filled stores by what their figures end with."""
    stores = {}
    for mark, size in sizes.items():
        own = ", each with its own labels" if size.own_labels else ""
        options.progress(f"start: storing {size.nodes} nodes and {size.pods} pods{own}")
        stores[f"{mark}_sqlite"] = opened.enter_context(sqlite_store())
        fill_store(stores[f"{mark}_sqlite"], size)
        if options.redis_server:
            stores[f"{mark}_redis"] = opened.enter_context(redis_store(options.redis_server))
            fill_store(stores[f"{mark}_redis"], size)
        else:
            lacking = ("ready_s", "process_ready_s", "rss_mb", "rss_used_mb")
            figures.lack([f"{what}{mark}_redis" for what in lacking], "no redis-server")
    return stores


def _start(address: str, mark: str, seconds: float, figures: Figures) -> None:
    port = free_port()
    opened: list[float] = []
    watching = threading.Thread(target=_watch, args=(port, opened), daemon=True)
    watching.start()
    with server(address, "--listen", f"127.0.0.1:{port}") as running:
        watching.join()
        figures.add(f"ready_s{mark}", running.ready - opened[0])
        figures.add(f"process_ready_s{mark}", running.ready - running.started)
        figures.add(f"rss_mb{mark}", running.resident())
        messages = numbered(requests.evaluate_pod_requests(requests.incoming_pods()))
        run_calls(running.address, requests.EVALUATE_POD, messages, 10, seconds)
        figures.add(f"rss_used_mb{mark}", running.resident())


def _watch(port: int, opened: list[float]) -> None:
    """Note when a port takes connections for the first time."""
    while not opened:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                opened.append(time.monotonic())
                return
        time.sleep(_LOOK)
