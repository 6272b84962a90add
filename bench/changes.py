"""Changes: how many are taken in, what they cost decisions, and when they are seen."""

from __future__ import annotations

import bisect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench import requests
from bench.cluster import APPS, AcknowledgedWrite, ChangeGenerator, churn, entries, write
from bench.figures import Figures
from bench.in_process import decisions_in_process
from bench.load import numbered, run_calls
from bench.processes import Running, WorkerProcess, server, worker_process
from bench.requests import CLUSTER
from bench.stores import fill_store, redis_store, sqlite_store
from topospread.app.stores import open_store
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency, Freshness, Token
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster import Size
    from bench.in_process import InProcessDecisions
    from bench.options import BenchOptions

MANY_SELECTORS: Final = 1000
CHANGES_PER_SECOND: Final = 1000.0
CHANGES: Final = 20_000
CHANGES_PER_WRITE: Final = 10
_APPLY_POLL: Final = 0.002
CONCURRENCY: Final = 10
UNFOLLOWED: Final = "unfollowed"
MANY: Final = "many"
_OWN_WRITE_INTERVAL: Final = 0.02
"""Seconds between two writes of the caller that waits for them."""

_VIEW_POLL: Final = 0.001
_GRACE_SECONDS: Final = 0.1
"""Seconds for the last write to be seen."""

_LOAD_SECONDS: Final = 300.0


def measure_changes(options: BenchOptions) -> Figures:
    """Changes that a replica takes in, what they cost decisions, and when they are seen."""
    figures = Figures()
    for part in (measure_applying, measure_busy, measure_visibility):
        part(options, figures)
    return figures


def measure_applying(options: BenchOptions, figures: Figures) -> None:
    """Changes a second with few and with many selectors kept.

    Many selectors are those of as many apps, where a pod counts for one of them, and, marked
    `overlapping`, of twenty apps, where a pod counts for fifty.
    """
    many = replace(options.size, apps=MANY_SELECTORS)
    subjects = {
        "_20_selectors": (options.size, requests.pods_of_each_app(APPS)),
        "_1000_selectors": (many, requests.pods_of_each_app(MANY_SELECTORS)),
        "_1000_overlapping": (
            options.size,
            [
                requests.pod_with_new_selector(number % APPS, number)
                for number in range(MANY_SELECTORS)
            ],
        ),
    }
    with ExitStack() as opened:
        children = {}
        for mark, (size, pods) in subjects.items():
            options.progress(f"changes: making a cluster with{mark.replace('_', ' ')}")
            children[mark] = opened.enter_context(worker_process(decisions_in_process, size))
            children[mark].run(count_selectors, [pod.SerializeToString() for pod in pods])
        for number in range(options.rounds):
            options.progress(f"changes: applying, round {number + 1} of {options.rounds}")
            for mark, each in children.items():
                seconds, spent = each.run(apply_changes, subjects[mark][0], CHANGES)
                figures.add(f"applied_per_s{mark}", CHANGES / seconds)
                figures.add(f"applied_cpu_us{mark}", spent / CHANGES * 1e6)


def count_selectors(index: InProcessDecisions, pods: list[bytes]) -> None:
    """Ask about pods, so that their selectors are kept; runs in a child."""
    asked: list[k8s.Pod] = [k8s.Pod.FromString(pod) for pod in pods]
    for each in requests.evaluate_pod_requests(asked):
        index.evaluate(each.numbered(0))


def apply_changes(index: InProcessDecisions, size: Size, count: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, until so many changes are applied; runs in a child."""
    batches = entries(size, count, CHANGES_PER_WRITE)
    begun, spent = time.monotonic(), time.process_time()
    last = index.source.release(batches)
    while index.replica.current_view().revision.number < last.number:
        time.sleep(_APPLY_POLL)
    return index.replica.current_view().published_at - begun, time.process_time() - spent


def measure_busy(options: BenchOptions, figures: Figures) -> None:
    """The share of the rate that is lost to 1,000 changes/s, with 20 and with 1,000 selectors."""
    with ExitStack() as opened:
        address = opened.enter_context(_shared_store(options))
        options.progress("changes: making clusters to write to")
        fill_store(address, options.size)
        fill_store(address, replace(options.size, apps=MANY_SELECTORS), MANY)
        generator = opened.enter_context(worker_process(ChangeGenerator, address, options.size))
        running = opened.enter_context(server(address, preload=f"default,{MANY}"))
        selectors = requests.evaluate_pod_requests(requests.pods_of_each_app(MANY_SELECTORS), MANY)
        run_calls(
            running.address,
            requests.EVALUATE_POD,
            numbered(selectors),
            CONCURRENCY,
            options.seconds,
        )
        writing = opened.enter_context(ThreadPoolExecutor(1))
        clusters = {"": requests.CLUSTER, "_1000_selectors": MANY}
        for number in range(options.rounds):
            options.progress(f"changes: deciding meanwhile, round {number + 1} of {options.rounds}")
            for mark, cluster in clusters.items():
                rates = {}
                for target in (UNFOLLOWED, cluster):
                    written = writing.submit(write_changes, generator, target, options.seconds)
                    rates[target], spent = decide_for(running, cluster, options.seconds)
                    written.result()
                    state = "idle" if target == UNFOLLOWED else "busy"
                    figures.add(f"{state}_rps{mark}", rates[target])
                    figures.add(f"{state}_cpu_us{mark}", spent)
                figures.add(f"busy_loss{mark}", 1 - rates[cluster] / rates[UNFOLLOWED])


def decide_for(running: Running, cluster: str, seconds: float) -> tuple[float, float]:
    """EvaluatePods a second for so long, and microseconds of the server's CPU for each."""
    messages = numbered(requests.evaluate_pod_requests(requests.incoming_pods(), cluster))
    spent = running.cpu()
    done = run_calls(running.address, requests.EVALUATE_POD, messages, CONCURRENCY, seconds)
    return done.rate, (running.cpu() - spent) / done.calls * 1e6


def write_changes(generator: WorkerProcess, cluster: str, seconds: float) -> None:
    """Have 1,000 changes a second written to a cluster for so long."""
    generator.run(write, cluster, CHANGES_PER_SECOND, CHANGES_PER_WRITE, seconds)


@contextmanager
def _shared_store(options: BenchOptions) -> Iterator[str]:
    """Redis where there is one, else SQLite."""
    with redis_store(options.redis_server) if options.redis_server else sqlite_store() as address:
        yield address


def measure_visibility(options: BenchOptions, figures: Figures) -> None:
    """Milliseconds from the acknowledgement of a write to the view that holds it.

    `waiting` is a caller that asks for its write's revision.
    """
    with ExitStack() as opened:
        stores = {"sqlite": opened.enter_context(sqlite_store())}
        if options.redis_server:
            stores["redis"] = opened.enter_context(redis_store(options.redis_server))
        else:
            lacking = [f"{w}_{p}_ms_redis" for w in ("seen", "waiting") for p in ("p50", "p99")]
            figures.lack(lacking, "no redis-server")
        subjects = {}
        for name, address in stores.items():
            options.progress(f"changes: making a cluster in {name}")
            fill_store(address, options.size)
            generator = opened.enter_context(worker_process(ChangeGenerator, address, options.size))
            subjects[name] = (
                generator,
                opened.enter_context(worker_process(VisibilityProbe, address, options.size)),
            )
        for _, probe in subjects.values():
            probe.run(look, 0.0, False)  # loaded before anything is written
        writing = opened.enter_context(ThreadPoolExecutor(1))
        for number in range(options.rounds):
            options.progress(f"changes: looking, round {number + 1} of {options.rounds}")
            for name, (generator, probe) in subjects.items():
                for waits in (False, True):
                    writes = writing.submit(
                        generator.run, write, CLUSTER, CHANGES_PER_SECOND, 1, options.seconds
                    )
                    views, waited = probe.run(look, options.seconds, waits)
                    written = writes.result()
                    if waits:
                        _add(figures, "waiting", name, waited)
                    else:
                        views.append(probe.run(reach, written[-1].number))
                        figures.add(f"written_per_s_{name}", len(written) / options.seconds)
                        _add(figures, "seen", name, _delays(written, views))


class VisibilityProbe:
    """A replica in a process of its own, and a caller beside it."""

    def __init__(self, address: str, size: Size) -> None:
        self._store = open_store(address, {})
        self._replicas = Replicas(self._store, ReplicaOptions())
        self._replicas.preload((CLUSTER,), seconds_from_now(_LOAD_SECONDS))
        self._replica, _ = self._replicas.resolve(
            CLUSTER, DEFAULT_CONSISTENCY, seconds_from_now(1.0)
        )
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
            until = time.monotonic() + seconds + _GRACE_SECONDS
            while waited is None and time.monotonic() < until:
                view = self._replica.current_view()
                if not views or view.revision.number > views[-1][0]:
                    views.append((view.revision.number, view.published_at))
                time.sleep(_VIEW_POLL)
            # A look now and then would cost the caller its turns.
            time.sleep(max(0.0, until - time.monotonic()))
            done.set()
            return views, [] if waited is None else waited.result()

    def reach(self, number: int) -> tuple[int, float]:
        """(revision, when) of a view that has a revision, which may come after the look."""
        while (view := self._replica.current_view()).revision.number < number:
            time.sleep(_VIEW_POLL)
        return view.revision.number, view.published_at

    def _call(self, done: threading.Event) -> list[float]:
        waited: list[float] = []
        while not (done.wait(_OWN_WRITE_INTERVAL) and waited):
            applied = self._store.apply(CLUSTER, [next(self._changes)])
            token = Token(self._replica.current_view().identity, applied.revision)
            acknowledged = time.monotonic()
            demand = Consistency(Freshness.AT_LEAST_AS_FRESH, token)
            self._replicas.resolve(CLUSTER, demand, seconds_from_now(5.0))
            waited.append(time.monotonic() - acknowledged)
        return waited


def look(
    probe: VisibilityProbe, seconds: float, waits: bool
) -> tuple[list[tuple[int, float]], list[float]]:
    """Run VisibilityProbe.look in a child."""
    return probe.look(seconds, waits)


def reach(probe: VisibilityProbe, number: int) -> tuple[int, float]:
    """Run VisibilityProbe.reach in a child."""
    return probe.reach(number)


def _delays(written: list[AcknowledgedWrite], views: list[tuple[int, float]]) -> list[float]:
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
