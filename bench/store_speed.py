"""How fast the stores are: `python -m bench.store_speed`. Prints one table; nothing is asserted.

Upserts change an object of 300 bytes that is there. Redis runs without persistence, on loopback, on
the same machine; its figures are one caller's, so they hold the round trip.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.redis_server import RedisProcess
from tests.store.backends import CLUSTER, Backend, RedisBackend, SqliteBackend, pod, put, scanned
from topospread.store.model import Key, Kind, Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.api import Store
    from topospread.store.model import Put

PODS = 20_000
SINGLES = 5_000
BATCH = 100
CALLERS = 8
PAYLOAD = 300


def measure(store: Store) -> Iterator[tuple[str, float, str]]:
    """Figures of one empty store: name, value, unit."""
    keys = [pod(f"pod-{number}", f"ns-{number % 20}") for number in range(PODS)]
    for first in range(0, PODS, 500):
        store.apply(CLUSTER, [_put(key, 1) for key in keys[first : first + 500]])

    def singles(caller: int) -> None:
        for number in range(caller, SINGLES, CALLERS):
            store.apply(CLUSTER, [_put(keys[number], 3)])

    def batches() -> None:
        for first in range(0, PODS, BATCH):
            store.apply(CLUSTER, [_put(key, 4) for key in keys[first : first + BATCH]])

    def one_by_one() -> None:
        for key in keys[:SINGLES]:
            store.apply(CLUSTER, [_put(key, 2)])

    def together() -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(singles, range(CALLERS)))

    start = store.head(CLUSTER).revision
    yield "upserts, one at a time", SINGLES / _seconds(one_by_one), "1/s"
    middle = store.head(CLUSTER).revision
    yield f"upserts, {CALLERS} threads", SINGLES / _seconds(together), "1/s"
    yield f"upserts, batches of {BATCH}", PODS / _seconds(batches), "1/s"
    yield "follow, one change a transaction", *_follow(store, start, middle)
    yield "follow, all of the log", *_follow(store, Revision(), store.head(CLUSTER).revision)
    whole = _seconds(lambda: scanned(store, Kind.POD))
    yield "scan of all", PODS / whole, "objects/s"
    namespace = _seconds(lambda: [scanned(store, Kind.POD, f"ns-{n % 20}") for n in range(40)])
    yield f"scan of a namespace of {PODS // 20:,}", 2 * PODS / namespace, "objects/s"
    few = [pod(f"few-{number}", "few") for number in range(10)]
    store.apply(CLUSTER, [_put(key, 1) for key in few])
    ten = _seconds(lambda: [scanned(store, Kind.POD, "few") for _ in range(SINGLES)])
    yield "scan of a namespace of ten", SINGLES / ten, "1/s"
    yield (
        "get of ten",
        SINGLES / _seconds(lambda: [store.get(CLUSTER, few) for _ in range(SINGLES)]),
        "1/s",
    )
    yield (
        "get of one",
        SINGLES / _seconds(lambda: [store.get(CLUSTER, few[:1]) for _ in range(SINGLES)]),
        "1/s",
    )
    yield "head", SINGLES / _seconds(lambda: [store.head(CLUSTER) for _ in range(SINGLES)]), "1/s"


def _put(key: Key, version: int) -> Put:
    return put(key, str(version), b"%d" % version + bytes(PAYLOAD), b"%08d" % version)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _follow(store: Store, after: Revision, until: Revision) -> tuple[float, str]:
    identity, at, count = store.head(CLUSTER).identity, after, 0
    begin = time.perf_counter()
    while at.number < until.number:
        for transaction in store.follow(CLUSTER, identity, at, wait=0):
            count += len(transaction.entries)
            at = transaction.revision
    return count / (time.perf_counter() - begin), "entries/s"


def main() -> None:
    """Measure all backends and print a table."""
    columns: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as directory, RedisProcess(Path(directory)) as server:
        backends: dict[str, Backend] = {
            "sqlite file": SqliteBackend(f"sqlite://{directory}/state.db"),
            "memory": SqliteBackend("memory:"),
            "redis": RedisBackend(server.url),
        }
        for backend in backends.values():
            store = backend.open()
            for name, value, unit in measure(store):
                columns.setdefault(f"{name} ({unit})", []).append(f"{value:,.0f}")
            store.close()
    sys.stdout.write(f"{'':45}{''.join(f'{name:>14}' for name in backends)}\n")
    for name, cells in columns.items():
        sys.stdout.write(f"{name:45}{''.join(f'{cell:>14}' for cell in cells)}\n")


if __name__ == "__main__":
    main()
