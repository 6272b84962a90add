"""Lists of all constraints of a cluster: how long they take, and what metrics cost decisions."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from bench import requests
from bench.cluster import ChangeGenerator, churn, write
from bench.figures import Figures
from bench.load import numbered, run_calls
from bench.processes import server, worker_process
from bench.requests import CLUSTER
from bench.stores import fill_store, sqlite_store
from topospread.app.stores import open_store
from topospread_client import Client, Consistency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.options import BenchOptions

WORKLOADS: Final = 1000
"""Each with two constraints."""

PAGE: Final = 500
"""Constraints of a list."""

CHANGES_PER_LIST: Final = 20
"""Pods that change between two lists."""

CHANGES_PER_SECOND: Final = 1000.0
CHANGES_PER_WRITE: Final = 10
CONCURRENCY: Final = 10
LOOKS: Final = 3
"""A case with changes lasts so many times as long: its server looks every five seconds."""

PATIENCE: Final = 120.0
"""Seconds that a list may take."""

SERVERS: Final = {"metrics": "violated", "none": "none", "control": "none"}
"""What servers beside changes have for --constraint-metrics, by the cluster that each follows."""


def measure_inspector(options: BenchOptions) -> Figures:
    """Milliseconds of a list, and CPU of decisions beside the metrics of constraints."""
    figures = Figures()
    size = replace(options.size, apps=WORKLOADS, constrained=True)
    with ExitStack() as opened:
        address = opened.enter_context(sqlite_store())
        options.progress("inspector: making a cluster of workloads with constraints")
        fill_store(address, size)
        store = open_store(address, {})
        opened.callback(store.close)
        changes = churn(size)

        def change() -> None:
            store.apply(CLUSTER, list(islice(changes, CHANGES_PER_LIST)))

        for number in range(options.rounds):
            options.progress(f"inspector: lists, round {number + 1} of {options.rounds}")
            _lists(address, options.seconds, change, figures)
    with ExitStack() as opened:
        address = opened.enter_context(sqlite_store())
        for cluster in SERVERS:
            options.progress(f"inspector: making cluster {cluster}")
            fill_store(address, size, cluster)
        running = {
            cluster: opened.enter_context(
                server(address, "--constraint-metrics", kind, preload=cluster)
            )
            for cluster, kind in SERVERS.items()
        }
        generator = opened.enter_context(worker_process(ChangeGenerator, address, size))
        writing = opened.enter_context(ThreadPoolExecutor(1))
        seconds = LOOKS * options.seconds
        for number in range(options.rounds):
            options.progress(f"inspector: deciding, round {number + 1} of {options.rounds}")
            spent: dict[str, float] = {}
            for cluster, each in running.items():
                writes = writing.submit(
                    generator.run, write, cluster, CHANGES_PER_SECOND, CHANGES_PER_WRITE, seconds
                )
                asked = requests.evaluate_pod_requests(requests.incoming_pods(), cluster)
                before = each.cpu()
                done = run_calls(
                    each.address, requests.EVALUATE_POD, numbered(asked), CONCURRENCY, seconds
                )
                spent[cluster] = (each.cpu() - before) / done.calls * 1e6
                writes.result()
                figures.add(f"decision_cpu_us_{cluster}", spent[cluster])
            for cluster in ("metrics", "control"):
                figures.add(f"decision_cpu_ratio_{cluster}", spent[cluster] / spent["none"])
    return figures


def _lists(address: str, seconds: float, change: Callable[[], None], figures: Figures) -> None:
    """The first list of a server, those of a state at rest, and those after changes."""
    with ExitStack() as opened:
        running = opened.enter_context(server(address, "--constraint-metrics", "none"))
        client = opened.enter_context(Client(running.address, timeout=PATIENCE))

        def listed() -> float:
            began = time.monotonic()
            client.list_constraints_page(page_size=PAGE)
            return (time.monotonic() - began) * 1e3

        def listed_after_changes() -> float:
            change()
            client.get_node_table(consistency=Consistency(fully_consistent=True))
            return listed()

        figures.add("first_ms", listed())
        figures.add("at_rest_p50_ms", statistics.median(_repeated(listed, seconds)))
        figures.add("changed_p50_ms", statistics.median(_repeated(listed_after_changes, seconds)))


def _repeated(take: Callable[[], float], seconds: float) -> Iterator[float]:
    ends = time.monotonic() + seconds
    yield take()
    while time.monotonic() < ends:
        yield take()
