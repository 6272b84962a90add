"""How long a new process loads before it is ready, and the memory that it holds then."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.cli.bench import questions
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.load import ask, numbered
from topospread.cli.bench.processes import server
from topospread.cli.bench.stores import filled, free_port, redis_store, sqlite_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.cli.bench.cluster import Size
    from topospread.cli.bench.plan import Plan

MAX_ROUNDS: Final = 3
"""A start takes seconds and varies little."""

_LOOK: Final = 0.001


def measure(plan: Plan) -> Figures:
    """Seconds from an open port to readiness, and MB then and after some decisions.

    Each size is loaded from Redis and from SQLite.
    """
    figures = Figures()
    usual = plan.size
    sizes = {
        "": usual,
        "_x3": replace(usual, pods=usual.pods * 3),
        "_x3_own_labels": replace(usual, pods=usual.pods * 3, own_labels=True),
    }
    with ExitStack() as opened:
        stores = _stores(plan, sizes, opened, figures)
        rounds = min(plan.rounds, MAX_ROUNDS)
        for number in range(rounds):
            plan.say(f"start: round {number + 1} of {rounds}")
            for mark, address in stores.items():
                _start(address, mark, plan.seconds, figures)
    return figures


def _stores(
    plan: Plan, sizes: Mapping[str, Size], opened: ExitStack, figures: Figures
) -> dict[str, str]:
    """Addresses of filled stores by what their figures end with."""
    stores = {}
    for mark, size in sizes.items():
        own = ", each with its own labels" if size.own_labels else ""
        plan.say(f"start: storing {size.nodes} nodes and {size.pods} pods{own}")
        stores[f"{mark}_sqlite"] = opened.enter_context(sqlite_store())
        filled(stores[f"{mark}_sqlite"], size)
        if plan.redis_server:
            stores[f"{mark}_redis"] = opened.enter_context(redis_store(plan.redis_server))
            filled(stores[f"{mark}_redis"], size)
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
        messages = numbered(questions.evaluates(questions.incoming()))
        ask(running.address, f"{questions.SERVICE}EvaluatePod", messages, 10, seconds)
        figures.add(f"rss_used_mb{mark}", running.resident())


def _watch(port: int, opened: list[float]) -> None:
    """Note when a port takes connections for the first time."""
    while not opened:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                opened.append(time.monotonic())
                return
        time.sleep(_LOOK)
