"""One soak: the day around one server, with its callers and its witness."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.cli.bench.children import Child, child
from topospread.cli.bench.processes import Running, server
from topospread.cli.bench.soak import answers, callers, witness
from topospread.cli.bench.soak.callers import Callers
from topospread.cli.bench.soak.day import Day
from topospread.cli.bench.soak.found import Found, Kept
from topospread.cli.bench.soak.witness import Witness
from topospread_client.answers import ClusterStatus, Outcome
from topospread_client.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from topospread.cli.bench.soak.fleet import Written
    from topospread_client.answers import Written as Done

SEGMENTS: Final = 24
"""Parts of a run: hours of a day. After each, callers hear what is there now."""

CHECKED: Final = (6, 13, 18)
"""After which of them, and at the end, all stands still and is compared: 13 is amid the outage."""

COMPARED: Final = 40
"""Templates about whose pods two servers are asked the same."""

LEAD: Final = 10_000
"""Changes that may be ahead of the recorder: far fewer than the log keeps."""

IDLE: Final = 3.0
"""Seconds after which the server lets go of selectors that nobody uses: some half an hour of a day
that passes in minutes."""

PATIENCE: Final = 60.0
"""Seconds that a write may take, and that what is to end may take to end."""

_LOOK: Final = 0.2
_USELESS: Final = (Outcome.IGNORED_STALE, Outcome.NOT_FOUND)


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
        self._passed = self._ahead = 0
        self._watching: Child | None = None

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
            found.began = self._write(client, next(first))
            # Closed before the servers go: dropped while somebody can be asked to.
            stack.callback(client.drop_cluster, entry.cluster)
            self._watching = watching = stack.enter_context(
                child(Witness, entry.store, dict(os.environ), entry.cluster)
            )
            found.began += sum(self._write(client, each) for each in first)
            client.node_table()  # loads it
            asking = stack.enter_context(
                child(Callers, running.address, entry.cluster, entry.callers, entry.seed, over)
            )
            pool = stack.enter_context(ThreadPoolExecutor(1))
            minutes = self._day.through()
            for segment in range(1, SEGMENTS + 1):
                over.clear()
                asked = pool.submit(asking.run, callers.ask, self._day.templates())
                try:
                    self._live(segment, minutes, client, running)
                finally:
                    over.set()
                    found.tally.add(asked.result())
                if segment in CHECKED:
                    self._compare(client, watching)
            found.changes += sum(self._write(client, each) for each in self._day.last())
            self._compare(client, watching)
            self._end(client, running)
            found.recorded = watching.run(witness.finish)
        return found

    def _live(
        self, segment: int, minutes: Iterable[Written], client: Client, running: Running
    ) -> None:
        """The changes of one segment."""
        found, until = self._found, self._entry.minutes * segment // SEGMENTS
        began = time.monotonic()
        for written in islice(minutes, until - self._passed):
            found.changes += self._write(client, written)
            found.memory.add(running.resident())
            self._passed += 1
            self._progress(self._passed, self._entry.minutes)
        found.seconds += time.monotonic() - began
        found.kept.append(self._kept(client, running))
        if self._entry.stored is not None:
            found.stored.add(self._entry.stored())

    def _write(self, client: Client, written: Written) -> int:
        """Write; returns how many changes that were."""
        self._tell(client.delete(written.gone, timeout=PATIENCE))
        left = iter(written.there)
        while some := list(islice(left, LEAD)):
            self._tell(client.apply(some, timeout=PATIENCE))
        return len(written)

    def _tell(self, done: Done) -> None:
        """Look what became of changes, and do not run away from who records them."""
        for outcome, count in done.counts().items():
            if outcome in _USELESS:
                self._found.useless[outcome.label] += count
        self._ahead += len(done.results)
        if self._ahead >= LEAD and self._watching is not None:
            self._watching.run(witness.catch_up)
            self._ahead = 0

    def _compare(self, client: Client, watching: Child) -> None:
        """All stands still: look whether what was followed is what there is."""
        found, about = self._found, self._day.templates()
        _await(lambda: not self._status(client).reservations)
        found.overdue += self._status(client).reservations
        found.compared.append(watching.run(witness.compare, about))
        some = about[:: max(1, len(about) // COMPARED)]
        old = answers.answers(client, some)
        with self._server() as fresh, self._client(fresh) as other:
            found.anew = self._kept(other, fresh)
            new = answers.answers(other, some)
        found.asked += len(old)
        found.unlike += answers.unlike(old, new)

    def _end(self, client: Client, running: Running) -> None:
        """Nobody asks any more: look what is kept all the same."""
        _await(lambda: not self._status(client).groups)
        self._found.left = self._kept(client, running)

    def _kept(self, client: Client, running: Running) -> Kept:
        status = self._status(client)
        return Kept(status.groups, status.label_sets, running.resident())

    def _status(self, client: Client) -> ClusterStatus:
        name = self._entry.cluster
        return next(each for each in client.clusters().clusters if each.name == name)

    def _server(self) -> AbstractContextManager[Running]:
        return server(self._entry.store, "--max-group-idle", f"{IDLE:g}s", preload="all")

    def _client(self, running: Running) -> Client:
        return Client(running.address, cluster=self._entry.cluster, timeout=PATIENCE)


def _await(over: Callable[[], bool]) -> None:
    """Wait until something is over, or for so long that it never will be."""
    ends = time.monotonic() + PATIENCE
    while not over() and time.monotonic() < ends:
        time.sleep(_LOOK)
