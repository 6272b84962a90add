"""When a write is seen by a replica in another process, at 1,000 writes a second."""

from __future__ import annotations

import bisect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from topospread.app.stores import open_store
from topospread.cli.bench.children import child
from topospread.cli.bench.questions import CLUSTER
from topospread.cli.bench.stores import filled, redis_store, sqlite_store
from topospread.cli.bench.writes import Author, Written, churn, write
from topospread.replica.replica import ReplicaOptions
from topospread.replica.replicas import (
    NEWEST_AT_HAND,
    Consistency,
    Freshness,
    Replicas,
    seconds_from_now,
)
from topospread.replica.view import Token

if TYPE_CHECKING:
    from topospread.cli.bench.cluster import Size
    from topospread.cli.bench.figures import Figures
    from topospread.cli.bench.plan import Plan

RATE: Final = 1000.0
_OWN: Final = 0.02
"""Seconds between two writes of the caller that waits for them."""

_LOOK: Final = 0.001
_GRACE: Final = 0.1
"""Seconds for the last write to be seen."""

_LOAD_SECONDS: Final = 300.0


def measure_visibility(plan: Plan, figures: Figures) -> None:
    """Milliseconds from the acknowledgement of a write to the view that holds it.

    `waiting` is a caller that asks for its write's revision.
    """
    with ExitStack() as opened:
        stores = {"sqlite": opened.enter_context(sqlite_store())}
        if plan.redis_server:
            stores["redis"] = opened.enter_context(redis_store(plan.redis_server))
        else:
            lacking = [f"{w}_{p}_ms_redis" for w in ("seen", "waiting") for p in ("p50", "p99")]
            figures.lack(lacking, "no redis-server")
        subjects = {}
        for name, address in stores.items():
            plan.say(f"changes: making a cluster in {name}")
            filled(address, plan.size)
            author = opened.enter_context(child(Author, address, plan.size))
            subjects[name] = author, opened.enter_context(child(Onlooker, address, plan.size))
        for _, onlooker in subjects.values():
            onlooker.run(look, 0.0, False)  # loaded before anything is written
        writing = opened.enter_context(ThreadPoolExecutor(1))
        for number in range(plan.rounds):
            plan.say(f"changes: looking, round {number + 1} of {plan.rounds}")
            for name, (author, onlooker) in subjects.items():
                for waits in (False, True):
                    writes = writing.submit(author.run, write, CLUSTER, RATE, 1, plan.seconds)
                    views, waited = onlooker.run(look, plan.seconds, waits)
                    written = writes.result()
                    if waits:
                        _add(figures, "waiting", name, waited)
                    else:
                        views.append(onlooker.run(reach, written[-1].number))
                        figures.add(f"written_per_s_{name}", len(written) / plan.seconds)
                        _add(figures, "seen", name, _delays(written, views))


class Onlooker:
    """A replica in a process of its own, and a caller beside it."""

    def __init__(self, address: str, size: Size) -> None:
        self._store = open_store(address, {})
        self._replicas = Replicas(self._store, ReplicaOptions())
        self._replicas.preload((CLUSTER,), seconds_from_now(_LOAD_SECONDS))
        self._replica, _ = self._replicas.resolve(CLUSTER, NEWEST_AT_HAND, seconds_from_now(1.0))
        self._changes = churn(size)

    def close(self) -> None:
        """Stop following."""
        self._replicas.close()
        self._store.close()

    def look(self, seconds: float, waits: bool) -> tuple[list[tuple[int, float]], list[float]]:
        """(revision, when) of the views that came, and seconds that a caller waited."""
        done = threading.Event()
        with ThreadPoolExecutor(1) as calling:
            waited = calling.submit(self._call, done) if waits else None
            views: list[tuple[int, float]] = []
            until = time.monotonic() + seconds + _GRACE
            while waited is None and time.monotonic() < until:
                view = self._replica.loaded()
                if not views or view.revision.number > views[-1][0]:
                    views.append((view.revision.number, view.published_at))
                time.sleep(_LOOK)
            # A look now and then would cost the caller its turns.
            time.sleep(max(0.0, until - time.monotonic()))
            done.set()
            return views, [] if waited is None else waited.result()

    def reach(self, number: int) -> tuple[int, float]:
        """(revision, when) of a view that has a revision, which may come after the look."""
        while (view := self._replica.loaded()).revision.number < number:
            time.sleep(_LOOK)
        return view.revision.number, view.published_at

    def _call(self, done: threading.Event) -> list[float]:
        waited: list[float] = []
        while not (done.wait(_OWN) and waited):
            applied = self._store.apply(CLUSTER, [next(self._changes)])
            token = Token(self._replica.loaded().identity, applied.revision)
            acknowledged = time.monotonic()
            demand = Consistency(Freshness.AT_LEAST_AS_FRESH, token)
            self._replicas.resolve(CLUSTER, demand, seconds_from_now(5.0))
            waited.append(time.monotonic() - acknowledged)
        return waited


def look(
    onlooker: Onlooker, seconds: float, waits: bool
) -> tuple[list[tuple[int, float]], list[float]]:
    """In a child: see Onlooker.look."""
    return onlooker.look(seconds, waits)


def reach(onlooker: Onlooker, number: int) -> tuple[int, float]:
    """In a child: see Onlooker.reach."""
    return onlooker.reach(number)


def _delays(written: list[Written], views: list[tuple[int, float]]) -> list[float]:
    numbers = [number for number, _ in views]
    delays = []
    for each in written:
        at = bisect.bisect_left(numbers, each.number)
        if at < len(views):
            delays.append(max(0.0, views[at][1] - each.at))
    return delays


def _add(figures: Figures, what: str, store: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = ordered[min(len(ordered) - 1, int(len(ordered) * share))]
        figures.add(f"{what}_{name}_ms_{store}", value * 1e3)
