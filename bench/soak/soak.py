"""One soak: a simulated day around one server, with its callers and a reference replica."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from bench.processes import Running, WorkerProcess, server, worker_process
from bench.soak import callers, reference_replica, soak, templates
from bench.soak.callers import Callers
from bench.soak.reference_replica import ReferenceReplica
from bench.soak.report import CacheSizes, SoakReport
from bench.soak.timetable import Timetable
from topospread_client import Client, enum_name, verdicts_by_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from bench.soak.simulated_cluster import ChangeSet
    from bench.soak.templates import Template
    from topospread_proto.v1.cluster_state_service_pb2 import (
        ApplyObjectsResponse,
        Cluster,
        DeleteObjectsResponse,
    )


SEGMENTS: Final = 24
"""Parts of a run: hours of a day. After each, callers get the templates of the present pods."""

AMID: Final = 13
"""After which of them the outage is at its height."""

CHECKED: Final = (6, AMID, 18)
"""After which of them, and at the end, all stands still and indexes are compared."""

COMPARED: Final = 40
"""Templates about whose pods two servers are asked the same."""

WARMING: Final = range(1, 7)
SHAPES: Final = 750
"""In these segments twice so many pods of no workload's shape are asked about: more than a server
remembers, so that what it remembers grows no more after the first quarter."""

IDLE: Final = 3.0
"""Seconds after which the server lets go of unused selectors: some half an
hour of a day that passes in minutes."""

_LOOK: Final = 0.2

WRITE_TIMEOUT: Final = 60.0
"""Seconds that a write may take."""

LEAD: Final = 10_000
"""Changes that may be ahead of the recorder: far fewer than the log keeps."""

_USELESS: Final = ("IGNORED_STALE", "NOT_FOUND")
_NEWEST: Final = {"fully_consistent": True}


@dataclass(frozen=True, slots=True)
class SoakSettings:
    """Settings of a soak.

    Attributes:
        store: address of the state.
        stored: returns the MB that the store holds; None where they cannot be measured.
        cluster: its name in the store.
        minutes: of the day that are lived through.
        seed: of what happens and of what callers ask.
    """

    store: str
    stored: Callable[[], float] | None
    cluster: str
    nodes: int
    pods: int
    minutes: int
    callers: int
    seed: int


class Soak:
    """One soak; :meth:`run` it once.

    Args:
        settings: of the soak.
        progress: called with the minutes that have passed, and how many there are.
    """

    def __init__(self, settings: SoakSettings, progress: Callable[[int, int], None]) -> None:
        self._settings = settings
        self._progress = progress
        self._timetable = Timetable(settings.nodes, settings.pods, settings.minutes, settings.seed)
        self._report = SoakReport()
        self._passed = self._shapes = 0

    def run(self) -> SoakReport:
        """Run the day.

        Raises:
            TopospreadClientError: a write failed.
            Unreachable: a process of the soak ended early.
        """
        settings, found = self._settings, self._report
        over = multiprocessing.get_context("spawn").Event()
        with ExitStack() as stack:
            running = stack.enter_context(self._server())
            client = stack.enter_context(self._client(running))
            first = self._timetable.first()
            # There must be a cluster for the witness to follow.
            nodes = client.apply_objects(next(first).there, timeout=WRITE_TIMEOUT)
            # Deleted while there is a server that can delete it.
            stack.callback(client.delete_cluster, settings.cluster)
            watching = stack.enter_context(
                worker_process(ReferenceReplica, settings.store, settings.cluster)
            )
            writer = ChangeWriter(client, partial(watching.run, reference_replica.catch_up))
            for written in first:
                writer.write(written)
            found.began = len(nodes.results) + writer.changes
            writer.changes = 0
            client.get_node_table()  # loads it
            asking = stack.enter_context(
                worker_process(
                    Callers,
                    running.address,
                    settings.cluster,
                    settings.callers,
                    settings.seed,
                    over,
                )
            )
            pool = stack.enter_context(ThreadPoolExecutor(1))
            minutes = self._timetable.through()
            for segment in range(1, SEGMENTS + 1):
                over.clear()
                asked = pool.submit(asking.run, callers.ask, self._timetable.templates())
                try:
                    self._live(segment, minutes, writer, running)
                finally:
                    over.set()
                    found.calls.add(asked.result())
                if segment in CHECKED:
                    self._compare(client, watching)
                if segment == AMID:
                    self._compare_with_fresh_server(client)
            for written in self._timetable.last():
                writer.write(written)
            found.changes, found.without_effect = writer.changes, writer.without_effect
            self._compare(client, watching)
            self._compare_with_fresh_server(client)
            self._end(client, running)
            found.recorded = watching.run(reference_replica.finish)
        return found

    def _live(
        self, segment: int, minutes: Iterable[ChangeSet], writer: ChangeWriter, running: Running
    ) -> None:
        """The changes of one segment."""
        found, until = self._report, self._settings.minutes * segment // SEGMENTS
        if segment in WARMING:
            self._warm(writer.client)
        began = time.monotonic()
        for written in islice(minutes, until - self._passed):
            writer.write(written)
            found.memory.add(running.resident())
            self._passed += 1
            self._progress(self._passed, self._settings.minutes)
        found.seconds += time.monotonic() - began
        found.kept.append(self._kept(writer.client, running))
        if self._settings.stored is not None:
            found.stored.add(self._settings.stored())

    def _warm(self, client: Client) -> None:
        """Evaluate pods of so many shapes that older ones are evicted."""
        about = self._timetable.templates()
        # The day of a small cluster is over before callers fill anything.
        some = min(SHAPES, self._settings.pods // 20)
        for _ in range(2):
            pods = []
            for number in range(self._shapes, self._shapes + some):
                pod = templates.pending_pod(about[number % len(about)], number)
                pod.metadata.labels["build"] = str(number)
                pods.append(pod)
            client.batch_evaluate_pods(pods)
            self._shapes += some

    def _compare(self, client: Client, watching: WorkerProcess) -> None:
        """Stop the changes, and compare the followed index with one built anew."""
        found = self._report
        _await(lambda: not self._status(client).reservation_count)
        found.expired_reservations += self._status(client).reservation_count
        found.compared.append(watching.run(reference_replica.compare, self._timetable.templates()))

    def _compare_with_fresh_server(self, client: Client) -> None:
        """Compare the answers with those of a server started now, while nothing changes."""
        found, about = self._report, self._timetable.templates()
        some = about[:: max(1, len(about) // COMPARED)]
        old = soak.answers(client, some)
        with self._server() as fresh, self._client(fresh) as other:
            found.fresh = self._kept(other, fresh)
            new = soak.answers(other, some)
        found.asked += len(old)
        found.differing += soak.differing(old, new)

    def _end(self, client: Client, running: Running) -> None:
        """Record the sizes that the server keeps when it is called no more."""
        _await(lambda: not self._status(client).group_count)
        self._report.left = self._kept(client, running)

    def _kept(self, client: Client, running: Running) -> CacheSizes:
        status = self._status(client)
        return CacheSizes(status.group_count, status.label_set_count, running.resident())

    def _status(self, client: Client) -> Cluster:
        return client.get_cluster(cluster=self._settings.cluster).cluster

    def _server(self) -> AbstractContextManager[Running]:
        idle = f"{IDLE:g}s"
        return server(self._settings.store, "--max-group-idle", idle, preload="all")

    def _client(self, running: Running) -> Client:
        return Client(running.address, cluster=self._settings.cluster, timeout=WRITE_TIMEOUT)


def _await(over: Callable[[], bool]) -> None:
    """Wait until a condition holds, or for so long that it never will."""
    ends = time.monotonic() + WRITE_TIMEOUT
    while not over() and time.monotonic() < ends:
        time.sleep(_LOOK)


@dataclass(slots=True)
class ChangeWriter:
    """Writes the changes of a day and counts them.

    Attributes:
        catch_up: returns when all that was written is recorded.
        changes: written so far.
        useless: changes that were stale, or of objects that do not exist.
    """

    client: Client
    catch_up: Callable[[], None]
    changes: int = 0
    without_effect: Counter[str] = field(default_factory=Counter)
    _ahead: int = 0

    def write(self, written: ChangeSet) -> None:
        """Write first the deletions, then the other changes.

        Raises:
            TopospreadClientError: it cannot be written.
        """
        self._count_outcomes(self.client.delete_objects(written.gone, timeout=WRITE_TIMEOUT))
        left = iter(written.there)
        while some := list(islice(left, LEAD)):
            self._count_outcomes(self.client.apply_objects(some, timeout=WRITE_TIMEOUT))

    def _count_outcomes(self, done: ApplyObjectsResponse | DeleteObjectsResponse) -> None:
        self.changes += len(done.results)
        for outcome in (enum_name(each, "outcome") for each in done.results):
            if outcome in _USELESS:
                self.without_effect[outcome.lower().replace("_", " ")] += 1
        self._ahead += len(done.results)
        if self._ahead >= LEAD:
            self.catch_up()
            self._ahead = 0


def answers(client: Client, about: Iterable[Template]) -> dict[str, Any]:
    """EvaluatePod and Filter a pod of each template, and Filter one with a selector of its own.

    Returns:
        By what was asked: equal servers with equal states give equal answers.
    """
    found: dict[str, Any] = {}
    for number, template in enumerate(about):
        pod, other = (
            templates.pending_pod(template, number),
            templates.pod_with_new_selector(template, number),
        )
        who = f"{template.namespace}/{pod.metadata.name}"
        evaluation = client.evaluate_pod(pod, consistency=_NEWEST)
        evaluation.meta.traceparent = ""
        found[f"EvaluatePod {who}"] = evaluation
        for what, asked in (("Filter", pod), ("Filter by its own selector", other)):
            verdicts = client.filter(asked, consistency=_NEWEST)
            judged = (verdicts.meta.revision, verdicts.verdict, verdicts_by_node(verdicts))
            found[f"{what} {who}"] = judged
    return found


def differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The answers in which two servers differ."""
    return [asked for asked, answer in old.items() if answer != new[asked]]
