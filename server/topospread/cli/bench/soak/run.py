"""One soak: the day around one server, with its callers and its witness."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.cli.bench.children import Child, child
from topospread.cli.bench.processes import Running, server
from topospread.cli.bench.soak import answers, callers, templates, witness
from topospread.cli.bench.soak.callers import Callers
from topospread.cli.bench.soak.day import Day
from topospread.cli.bench.soak.feeder import PATIENCE, Feeder
from topospread.cli.bench.soak.found import Found, Kept
from topospread.cli.bench.soak.witness import Witness
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from topospread.cli.bench.soak.fleet import Written
    from topospread_client import Cluster

SEGMENTS: Final = 24
"""Parts of a run: hours of a day. After each, callers hear what is there now."""

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
"""Seconds after which the server lets go of cycles, and of selectors that nobody uses: some half an
hour of a day that passes in minutes."""

_LOOK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Entry:
    """What a soak is about.

    Attributes:
        store: address of the state.
        stored: tells how many MB the store holds; None where nobody can.
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
        entry: what it is about.
        progress: told how many minutes have passed, and of how many.
    """

    def __init__(self, entry: Entry, progress: Callable[[int, int], None]) -> None:
        self._entry = entry
        self._progress = progress
        self._day = Day(entry.nodes, entry.pods, entry.minutes, entry.seed)
        self._found = Found()
        self._passed = self._shapes = 0

    def run(self) -> Found:
        """Live through the day.

        Raises:
            TopospreadClientError: a write failed.
            Unreachable: a process of the soak ended early.
        """
        entry, found = self._entry, self._found
        over = multiprocessing.get_context("spawn").Event()
        with ExitStack() as stack:
            running = stack.enter_context(self._server())
            client = stack.enter_context(self._client(running))
            first = self._day.first()
            # There must be a cluster for the witness to follow.
            nodes = client.apply_objects(next(first).there, timeout=PATIENCE)
            # Closed before the servers go: dropped while somebody can be asked to.
            stack.callback(client.delete_cluster, entry.cluster)
            watching = stack.enter_context(child(Witness, entry.store, entry.cluster))
            feeder = Feeder(client, partial(watching.run, witness.catch_up))
            for written in first:
                feeder.write(written)
            found.began = len(nodes.results) + feeder.changes
            feeder.changes = 0
            client.get_node_table()  # loads it
            asking = stack.enter_context(
                child(Callers, running.address, entry.cluster, entry.callers, entry.seed, over)
            )
            pool = stack.enter_context(ThreadPoolExecutor(1))
            minutes = self._day.through()
            for segment in range(1, SEGMENTS + 1):
                over.clear()
                asked = pool.submit(asking.run, callers.ask, self._day.templates())
                try:
                    self._live(segment, minutes, feeder, running)
                finally:
                    over.set()
                    found.tally.add(asked.result())
                if segment in CHECKED:
                    self._compare(client, watching)
                if segment == AMID:
                    self._ask_anew(client)
            for written in self._day.last():
                feeder.write(written)
            found.changes, found.useless = feeder.changes, feeder.useless
            self._compare(client, watching)
            self._ask_anew(client)
            self._end(client, running)
            found.recorded = watching.run(witness.finish)
        return found

    def _live(
        self, segment: int, minutes: Iterable[Written], feeder: Feeder, running: Running
    ) -> None:
        """The changes of one segment."""
        found, until = self._found, self._entry.minutes * segment // SEGMENTS
        if segment in WARMING:
            self._warm(feeder.client)
        began = time.monotonic()
        for written in islice(minutes, until - self._passed):
            feeder.write(written)
            found.memory.add(running.resident())
            self._passed += 1
            self._progress(self._passed, self._entry.minutes)
        found.seconds += time.monotonic() - began
        found.kept.append(self._kept(feeder.client, running))
        if self._entry.stored is not None:
            found.stored.add(self._entry.stored())

    def _warm(self, client: Client) -> None:
        """Ask about pods of so many shapes that older ones are forgotten."""
        about = self._day.templates()
        # The day of a small cluster is over before callers fill anything.
        some = min(SHAPES, self._entry.pods // 20)
        for _ in range(2):
            pods = []
            for number in range(self._shapes, self._shapes + some):
                pod = templates.incoming(about[number % len(about)], number)
                pod.metadata.labels["build"] = str(number)
                pods.append(pod)
            client.batch_evaluate_pods(pods)
            self._shapes += some

    def _compare(self, client: Client, watching: Child) -> None:
        """Let all stand still, and look whether what was followed is what there is."""
        found = self._found
        _await(lambda: not self._status(client).reservation_count)
        found.overdue += self._status(client).reservation_count
        found.compared.append(watching.run(witness.compare, self._day.templates()))

    def _ask_anew(self, client: Client) -> None:
        """All stands still: look whether a server that starts now answers the same."""
        found, about = self._found, self._day.templates()
        some = about[:: max(1, len(about) // COMPARED)]
        old = answers.answers(client, some)
        with self._server() as fresh, self._client(fresh) as other:
            found.anew = self._kept(other, fresh)
            new = answers.answers(other, some)
        found.asked += len(old)
        found.unlike += answers.unlike(old, new)

    def _end(self, client: Client, running: Running) -> None:
        """Nobody asks any more: look what is kept all the same."""
        _await(lambda: not self._status(client).group_count)
        self._found.left = self._kept(client, running)

    def _kept(self, client: Client, running: Running) -> Kept:
        status = self._status(client)
        return Kept(status.group_count, status.label_set_count, running.resident())

    def _status(self, client: Client) -> Cluster:
        return client.get_cluster(cluster=self._entry.cluster).cluster

    def _server(self) -> AbstractContextManager[Running]:
        idle = f"{IDLE:g}s"
        return server(
            self._entry.store, "--max-group-idle", idle, "--cycle-ttl", idle, preload="all"
        )

    def _client(self, running: Running) -> Client:
        return Client(running.address, cluster=self._entry.cluster, timeout=PATIENCE)


def _await(over: Callable[[], bool]) -> None:
    """Wait until something is over, or for so long that it never will be."""
    ends = time.monotonic() + PATIENCE
    while not over() and time.monotonic() < ends:
        time.sleep(_LOOK)
