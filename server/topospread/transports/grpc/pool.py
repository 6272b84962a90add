"""What the thread pools of a synchronous gRPC server share: workers that say what they wait for.

- A call that waits for a revision or a first load lends its place to a replacement
  (:func:`lend_place`), so that waiting calls never slow the others.
- A thread that is away for something outside, its caller's message or the store, says so
  (:func:`away`), and is replaced as well when that takes long while calls stand in line.
- A call that is refused is carried out on the server's own thread (:func:`overloaded`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from topospread.checkpoints import Turn, beneficiary
from topospread.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A call as grpcio submits it: its future, a function and its arguments."""

DEFAULT_WAITING: Final = 64
"""Calls that may wait at once for revisions and first loads."""

MAX_LONG: Final = 128
"""Threads of a pool that are replaced for long computations, of which one goes on at a time."""

JOIN_SECONDS: Final = 5.0
"""How long a shutdown waits for threads that are in the middle of something."""


LOOK: Final = 0.25
"""Seconds between two looks whether who waits for a turn is still there."""

LAST_LOOK: Final = 0.002
"""Seconds that are too few to wait for."""


class Worker(threading.Thread):
    """A thread of a pool; a context manager around what it is away for.

    Attributes:
        pool: it works for.
        busy: it carries out a call.
        lent: a replacement has its place, so it ends with the call it carries out.
        away_since: when it went away, on the monotonic clock; None while it is here.
        cancel: ends the call whose message it waits for.
        patient: that message may take its time.
        turns: what it has done so far.
    """

    def __init__(self, pool: Pool, name: str, work: Callable[[Worker], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.pool = pool
        self.busy = False
        self.lent = False
        self.away_since: float | None = None
        self.cancel: Callable[[], object] | None = None
        self.patient = False
        self.turns = 0
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
        self.cancel = None


class Pool(ThreadPoolExecutor):
    """What the pools share: workers, and calls that wait.

    It is a ThreadPoolExecutor because grpcio accepts no other type; nothing of that class but the
    type is used.
    """

    def __init__(self, name: str, waiting: int) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self._name = name
        self._waiting_bound = waiting
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._workers_made = 0
        self._waiting = 0
        self._closed = False

    @property
    def depth(self) -> int:
        """Calls in line."""
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

    def enter_wait(self, worker: Worker) -> Callable[[], None]:
        """Lend the worker's place; call what is returned when the wait is over.

        Raises:
            LimitExceeded: too many calls wait already.
        """
        with self._lock:
            if self._waiting >= self._waiting_bound:
                raise LimitExceeded(
                    f"{self._waiting_bound} calls wait for revisions or first loads already"
                )
            self._waiting += 1
        self._lend(worker)
        return self._leave_wait

    def _leave_wait(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _lend(self, worker: Worker) -> None:
        """Give the worker's place to a replacement, if it has one to give."""

    def make_way(self, worker: Worker) -> None:
        """Have others do what the worker would do next: its call turned out to take long."""
        with self._lock:
            crowded = sum(each.lent for each in self._workers) >= MAX_LONG + self._waiting_bound
        if not crowded:
            self._lend(worker)

    def start_worker(self, work: Callable[[Worker], None], *, lent: bool = False) -> None:
        """Start one more thread; under the lock, so that whoever sees it may join it."""
        self._workers_made += 1
        worker = Worker(self, f"{self._name}-{self._workers_made}", work)
        worker.lent = lent
        self._workers.add(worker)
        worker.start()

    def silent(self, since: float, *, patient: bool = False) -> list[Worker]:
        """Workers whose caller has sent no message since then, the longest silent first.

        Args:
            since: on the monotonic clock.
            patient: also those whose caller may take its time.
        """
        with self._lock:
            found = [
                (left, worker)
                for worker in self._workers
                if worker.cancel is not None
                and (patient or not worker.patient)
                and (left := worker.away_since)
                and left < since
            ]
        return [worker for _, worker in sorted(found, key=lambda pair: pair[0])]

    def join_workers(self) -> None:
        """Wait until the threads have ended, but not for long."""
        deadline = time.monotonic() + JOIN_SECONDS
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - time.monotonic()))


def overloaded() -> bool:
    """Asked by a handler: is this call here only to be refused?

    Pools carry out what they refuse on the thread that brings it, so that a refusal stands in no
    line. There a handler must not wait for anything, the call's message included.
    """
    return not isinstance(threading.current_thread(), Worker)


def away(
    cancel: Callable[[], object] | None = None, *, patient: bool = False
) -> AbstractContextManager[None]:
    """Around what this thread waits for outside: a message, the store.

    Args:
        cancel: for a message: ends the call when the thread is needed for others.
        patient: the message may take its time, as the next one of a stream may: the thread is not
            taken away for others, only when the server stops.
    """
    thread = threading.current_thread()
    if not isinstance(thread, Worker):
        return nullcontext()
    thread.cancel = cancel
    thread.patient = patient
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


class Turns:
    """For calls that take much memory each: a few at once, though a pool may lend more threads.

    Args:
        at_once: calls under way.
        waiting: calls that may wait for their turn.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._places = threading.Semaphore(at_once)
        self._waiting = threading.Semaphore(waiting)

    @contextmanager
    def turn(self, left: Callable[[], float], active: Callable[[], bool]) -> Iterator[None]:
        """Around one call.

        Args:
            left: seconds until the caller's deadline.
            active: whether the caller still waits.

        Raises:
            LimitExceeded: too many wait already, or it was not its turn in time.
        """
        self._wait(left, active)
        try:
            yield
        finally:
            self._places.release()

    def _wait(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        if self._places.acquire(blocking=False):
            return
        if not self._waiting.acquire(blocking=False):
            raise LimitExceeded("too many calls with large answers at once: try again later")
        try:
            with away():
                while active() and (seconds := left()) > LAST_LOOK:
                    if self._places.acquire(timeout=min(seconds, LOOK)):
                        return
        finally:
            self._waiting.release()
        raise LimitExceeded("others with large answers took all of the time: try again later")


def _make_way() -> None:
    thread = threading.current_thread()
    if isinstance(thread, Worker):
        thread.pool.make_way(thread)


DECISIONS: Final = Turn(_make_way)
"""Of long decisions, from whichever listener: one goes on at a time, beside short ones."""


def carry_out(work: Work) -> None:
    """Make the call and tell its future."""
    future, call, args, kwargs = work
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call(*args, **kwargs))
    except BaseException as failure:  # noqa: BLE001 - the future carries it, as in the standard pool
        future.set_exception(failure)


def end_silent(worker: Worker) -> None:
    """Cancel the call whose message the worker waits for, if it still does."""
    if (cancel := worker.cancel) is not None:
        cancel()


def _nothing() -> None:
    return None
