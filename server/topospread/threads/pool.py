"""The base of a synchronous gRPC server's thread pools: workers that say what they wait for.

- A call that waits for a revision or a first load lends its place to a replacement
  (:func:`lend_place`), so that waiting calls never slow the others.
- A thread that is away for something outside, its caller's message or the store, says so
  (:func:`away`), and is replaced as well when that takes long while calls stand in line.
- A call that is refused is carried out on the thread that brought it (:func:`overloaded`).
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from topospread.checkpoints import beneficiary
from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import TracebackType

    from topospread.errors import TopospreadError

DEFAULT_WAITING: Final = 64
"""Calls that may wait at once for revisions and first loads."""

JOIN_SECONDS: Final = 5.0
"""How long a shutdown waits for threads that are in the middle of something."""


_refusing: Final = threading.local()


class Worker(threading.Thread):
    """A thread of a pool; a context manager around what it is away for.

    Attributes:
        pool: it works for.
        busy: it carries out a call.
        lent: a replacement has its place, so it ends with the call it carries out.
        away_since: when it went away, on the monotonic clock; None while it is here.
        end: ends the call whose message it waits for, with an error.
        arrived: when its call came in, on the clock of time.perf_counter.
        caller: whose call it is.
        turns: what it has done so far.
        long: its call takes long, or waits for its turn to.
    """

    def __init__(self, pool: Pool, name: str, work: Callable[[Worker], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.pool = pool
        self.busy = False
        self.lent = False
        self.away_since: float | None = None
        self.end: Callable[[TopospreadError], object] | None = None
        self.arrived = 0.0
        self.caller: Hashable = ""
        self.turns = 0
        self.long = False
        self._work = work

    @override
    def run(self) -> None:
        self._work(self)

    def __enter__(self) -> None:
        self.away_since = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.away_since = None
        self.end = None


class Pool:
    """The base class of the pools: workers, and calls that wait.

    Args:
        name: of its threads.
        waiting: calls that may wait for revisions and first loads at once.

    Attributes:
        arrived: calls so far.
    """

    def __init__(self, name: str, waiting: int) -> None:
        self._name = name
        self.arrived = 0
        self._waiting_bound = waiting
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._workers_made = 0
        self._waiting = 0
        self._closed = False

    @property
    def depth(self) -> int:
        """Calls in the queue."""
        return 0

    @property
    def waiting(self) -> int:
        """Calls that wait for a revision or a first load."""
        return self._waiting

    @property
    def busy(self) -> int:
        """Calls that are carried out, without those that wait."""
        with self._lock:
            return max(0, sum(worker.busy for worker in self._workers) - self._waiting)

    def paused(self) -> AbstractContextManager[None]:
        """Begin no calls meanwhile; those begun go on."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End the threads after what is queued."""
        raise NotImplementedError

    def enter_wait(self, worker: Worker) -> Callable[[], None]:
        """Lend the worker's place; call what is returned when the wait is over.

        Raises:
            LimitExceeded: too many calls wait already.
        """
        with self._lock:
            if self._waiting >= self._waiting_bound:
                raise QueueFull(
                    f"{self._waiting_bound} calls wait for revisions or first loads already"
                )
            self._waiting += 1
        try:
            self._lend(worker)
        except BaseException:
            self._leave_wait()
            raise
        return self._leave_wait

    def _leave_wait(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _lend(self, worker: Worker) -> None:
        """Give the worker's place to a replacement, if it has one to give."""

    def make_way(self, worker: Worker) -> None:
        """Have others do what the worker would do next: its call turned out to take long.

        Raises:
            LimitExceeded: there can be no more threads.
        """
        worker.long = True
        self._lend(worker)

    def _long(self) -> int:
        """Workers whose calls take long; under the lock."""
        return sum(worker.long for worker in self._workers)

    def start_worker(self, work: Callable[[Worker], None], *, lent: bool = False) -> None:
        """Start one more thread; under the lock, so that whoever sees it may join it.

        Raises:
            LimitExceeded: the system allows no more.
        """
        self._workers_made += 1
        worker = Worker(self, f"{self._name}-{self._workers_made}", work)
        worker.lent = lent
        self._workers.add(worker)
        try:
            worker.start()
        except RuntimeError as full:
            self._workers.discard(worker)
            raise QueueFull("no more threads can be started: try again later") from full

    def silent(self, since: float) -> list[Worker]:
        """Workers whose caller has sent no message since then, in the order they should give way.

        Those of the caller with the most of them come first, and of these the longest silent: a
        caller with thousands of silent calls does not end the one of another whose message is late.

        Args:
            since: on the monotonic clock.
        """
        with self._lock:
            found = [
                (left, worker)
                for worker in self._workers
                if worker.end is not None and (left := worker.away_since) and left < since
            ]
        by_caller: dict[Hashable, list[Worker]] = {}
        for _, worker in sorted(found, key=itemgetter(0)):
            by_caller.setdefault(worker.caller, []).append(worker)
        # How many a caller has left when it is the turn of each.
        ranked = [
            (len(workers) - number, worker)
            for workers in by_caller.values()
            for number, worker in enumerate(workers)
        ]
        return [worker for _, worker in sorted(ranked, key=itemgetter(0), reverse=True)]

    def join_workers(self) -> None:
        """Wait until the threads have ended, but not for long."""
        deadline = time.monotonic() + JOIN_SECONDS
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - time.monotonic()))


class LendingPool(Pool):
    """A pool whose workers serve one call after the other, and may lend their places."""

    def _serve(self, worker: Worker) -> None:
        """Carry out calls until the worker's place is lent, or the pool is shut down."""
        raise NotImplementedError

    @override
    def _lend(self, worker: Worker) -> None:
        with self._lock:
            if worker.lent or self._closed:
                return
            self.start_worker(self._serve)
            worker.lent = True

    def _leave(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)


def overloaded() -> bool:
    """Asked by a handler: is this call here only to be refused?

    Pools carry out what they refuse on the thread that brings it, so that a refusal stands in no
    line. There a handler must not wait for anything, the call's message included.
    """
    return not isinstance(threading.current_thread(), Worker)


def arrival() -> float:
    """When the call that this thread carries out came in, on the clock of time.perf_counter."""
    thread = threading.current_thread()
    if isinstance(thread, Worker):
        return thread.arrived
    refused: float | None = getattr(_refusing, "arrived", None)
    return time.perf_counter() if refused is None else refused


@contextmanager
def refusing(arrived: float) -> Iterator[None]:
    """Around a call that came in then and that this thread carries out to refuse it."""
    _refusing.arrived = arrived
    try:
        yield
    finally:
        _refusing.arrived = None


def away(
    end: Callable[[TopospreadError], object] | None = None,
) -> AbstractContextManager[None]:
    """Around what this thread waits for outside: a message, the store.

    Args:
        end: for a message: ends the call when the thread is needed for others.
    """
    thread = threading.current_thread()
    if not isinstance(thread, Worker):
        return nullcontext()
    thread.end = end
    return thread


def lend_place() -> Callable[[], None]:
    """Before a wait: lend this thread's place in its pool; call what is returned after it.

    Raises:
        LimitExceeded: too many calls wait already.
    """
    thread = threading.current_thread()
    if (whom := beneficiary()) is not None:
        whom.give_turn()
    return thread.pool.enter_wait(thread) if isinstance(thread, Worker) else _nothing


def end_silent(worker: Worker, error: TopospreadError) -> None:
    """End the call whose message the worker waits for, if it still does."""
    if (end := worker.end) is not None:
        end(error)


def _nothing() -> None:
    return None
