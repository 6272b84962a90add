"""Lists of all constraints of a cluster: how long they take, and what metrics cost decisions."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from bench.changes import decide_for, write_changes
from bench.cluster import ChangeGenerator, churn
from bench.figures import Figures
from bench.processes import server, worker_process
from bench.requests import CLUSTER
from bench.stores import fill_store, sqlite_store
from topospread.app.stores import open_store
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import Size
    from bench.options import BenchOptions

WORKLOADS: Final = 1000
"""Each with two constraints."""

PAGE: Final = 500
"""Constraints of a list."""

CHANGES_PER_LIST: Final = 20
"""Pods that change between two lists."""

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
    for part in (measure_lists, measure_decisions):
        part(options, size, figures)
    return figures


def measure_lists(options: BenchOptions, size: Size, figures: Figures) -> None:
    """Lists of a new server in each round."""
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


def measure_decisions(options: BenchOptions, size: Size, figures: Figures) -> None:
    """Decisions of servers with and without metrics, while changes come to the cluster of each."""
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
                written = writing.submit(write_changes, generator, cluster, seconds)
                _, spent[cluster] = decide_for(each, cluster, seconds)
                written.result()
                figures.add(f"decision_cpu_us_{cluster}", spent[cluster])
            for cluster in ("metrics", "control"):
                figures.add(f"decision_cpu_ratio_{cluster}", spent[cluster] / spent["none"])


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
            client.get_node_table(consistency={"fully_consistent": True})
            return listed()

        figures.add("first_ms", listed())
        figures.add("at_rest_p50_ms", statistics.median(_repeated(listed, seconds)))
        figures.add("changed_p50_ms", statistics.median(_repeated(listed_after_changes, seconds)))


def _repeated(take: Callable[[], float], seconds: float) -> Iterator[float]:
    ends = time.monotonic() + seconds
    yield take()
    while time.monotonic() < ends:
        yield take()
