"""The base of a synchronous gRPC server's thread pools: workers that say what they wait for.

- A call that waits for a revision or a first load lends its place to a replacement
  (:func:`lend_place`), so that waiting calls never slow the others.
- A thread that is away for something outside, its caller's message or the store, says so
  (:func:`away`), and is replaced as well when that takes long while calls stand in line.
- A call that is refused is carried out on the server's own thread (:func:`overloaded`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from topospread.checkpoints import Beneficiary, TakesLong, beneficiary, computing_for
from topospread.errors import CallerGone, DeadlineExceeded, QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_T = TypeVar("_T")

Work = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A call as grpcio submits it: its future, a function and its arguments."""

DEFAULT_WAITING: Final = 64
"""Calls that may wait at once for revisions and first loads."""

MAX_LONG: Final = 128
"""Long decisions that may wait for their turn, each on a thread of its own."""

LARGE_REQUEST: Final = 16 << 10
"""Bytes of a request that takes long: some milliseconds are over before it is read."""

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
        long: its call takes long, or waits for its turn to.
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
        self.cancel = None


class Pool(ThreadPoolExecutor):
    """The base class of the pools: workers, and calls that wait.

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
        whom.wait_elsewhere()
    return thread.pool.enter_wait(thread) if isinstance(thread, Worker) else _nothing


class Turns:
    """Turns of calls that take much each: a few at once, though a pool may lend more threads.

    Args:
        at_once: calls under way.
        waiting: calls that may wait for their turn; they go on in the order in which they came.
        what: they are, for messages.
    """

    def __init__(self, at_once: int, waiting: int, what: str) -> None:
        self._lock = threading.Lock()
        self._free = at_once
        self._bound = waiting
        self._what = what
        self._line: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._line)

    @contextmanager
    def turn(self, left: Callable[[], float], active: Callable[[], bool]) -> Iterator[None]:
        """Around one call; see :meth:`take`."""
        self.take(left, active)
        try:
            yield
        finally:
            self.give()

    def try_take(self) -> bool:
        """Go on now if fewer than may are under way."""
        with self._lock:
            return self._take_free()

    def take(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        """Wait until it is this call's turn; see LongTurns in checkpoints.py."""
        with self._lock:
            if self._take_free():
                return
            if len(self._line) >= self._bound:
                raise QueueFull(f"too many {self._what} at once: try again later")
            mine = threading.Lock()
            mine.acquire()
            self._line.append(mine)
        came = False
        try:
            with away():
                while not came and active() and (seconds := left()) > LAST_LOOK:
                    came = mine.acquire(timeout=min(seconds, LOOK))
        finally:
            if not came:
                self._leave(mine)
        if came:
            return
        if left() > LAST_LOOK:
            raise CallerGone("the caller cancelled the call or went away")
        raise DeadlineExceeded(
            f"the deadline passed while other {self._what} went first: allow more time"
        )

    def give(self) -> None:
        """Let the next one go on."""
        with self._lock:
            if self._line:
                self._line.popleft().release()
            else:
                self._free += 1

    def _take_free(self) -> bool:
        """Take a place if one is free; under the lock."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def _leave(self, mine: threading.Lock) -> None:
        """Wait no more; the turn may have come in between."""
        with self._lock:
            waits = mine in self._line
            if waits:
                self._line.remove(mine)
        if not waits:
            self.give()


class _LongDecisions(Turns):
    """Turns whose calls make way for others in their pool, so that these find a thread."""

    @override
    def try_take(self) -> bool:
        if not super().try_take():
            return False
        try:
            _make_way()
        except BaseException:
            self.give()
            raise
        return True

    @override
    def take(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        if self.waiting < MAX_LONG:
            _make_way()
        super().take(left, active)


def _make_way() -> None:
    thread = threading.current_thread()
    if isinstance(thread, Worker):
        thread.pool.make_way(thread)


LONG_DECISIONS: Final = _LongDecisions(1, MAX_LONG, "decisions that take long")
"""From whichever listener: one goes on at a time, beside short ones."""


def decided(
    decide: Callable[[], _T],
    left: Callable[[], float],
    deadline: float,
    active: Callable[[], bool],
    size: int = 0,
) -> _T:
    """Carry out a decision. One that turns out to take long is begun anew when it is its turn.

    So what waits in line is the request alone, and short decisions wait for one long one at most.

    Args:
        decide: makes the answer. It may be called again from the start, so that it must change
            nothing before :func:`~topospread.checkpoints.will_write`.
        left: seconds until the caller's deadline.
        deadline: the same on the monotonic clock.
        active: whether the caller still waits.
        size: bytes of the request; to read a large one takes long already.

    Raises:
        LimitExceeded: too many that take long wait already, or no more threads can be started.
        DeadlineExceeded, CallerGone: nobody waits any more.
    """
    is_large = size > LARGE_REQUEST
    if is_large:
        LONG_DECISIONS.take(left, active)
    first = Beneficiary(deadline, active, LONG_DECISIONS, anew=True, has_turn=is_large)
    with suppress(TakesLong), computing_for(first):
        return decide()
    LONG_DECISIONS.take(left, active)
    with computing_for(Beneficiary(deadline, active, LONG_DECISIONS, has_turn=True)):
        return decide()


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
