"""The thread pools of the gRPC server.

grpcio hands a call to a pool when its headers are there, before any message was read, and never
minds how many are queued. So the bounds are kept here: what is past them is refused at once.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from topospread.errors import LimitExceeded, QueueFull, StreamsFull
from topospread.threads.call_queue import CallQueue
from topospread.threads.pool import (
    DEFAULT_WAITING,
    JOIN_SECONDS,
    LendingPool,
    Pool,
    Worker,
    end_silent,
    refusing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from topospread.errors import TopospreadError

_T = TypeVar("_T")

PATIENCE: Final = 0.02
"""Seconds a thread may be away before it is replaced while calls are queued: longer than any
message on its way, short enough for whoever stands in line.
"""

MAX_AWAY: Final = 64
"""Threads that a pool adds for those that are away. Past it, the calls that have been silent for
longest are cancelled to make room.
"""

SILENT_STREAM: Final = 1.0
"""Seconds after which a stream without its first message gives way when all threads are taken."""


class _Work:
    """A call as it was submitted.

    Attributes:
        arrived: when, on the clock of time.perf_counter.
        caller: the connection that it came over; "" where that is not known.
        future: gets what comes of it.
    """

    __slots__ = ("_args", "_call", "_kwargs", "arrived", "caller", "future")

    def __init__(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.future: Future[Any] = Future()
        self.arrived = time.perf_counter()
        self.caller = _connection(args)
        self._call = call
        self._args = args
        self._kwargs = kwargs

    def carry_out(self) -> None:
        """Make the call; its future gets what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._call(*self._args, **self._kwargs))
        except BaseException as failure:  # noqa: BLE001 - the future carries it, as in the standard pool
            self.future.set_exception(failure)


def _connection(arguments: tuple[Any, ...]) -> Hashable:
    """The connection of a call that grpcio submits with these arguments.

    Its event is among them, which is not public: where grpcio does otherwise one day, callers
    share one turn.
    """
    for argument in arguments:
        peer = getattr(getattr(argument, "call", None), "peer", None)
        if peer is not None:
            return peer()  # type: ignore[no-any-return] # bytes
    return ""


class BoundedExecutor(LendingPool, ThreadPoolExecutor):
    """A pool with a bounded queue, whose workers may lend their places.

    grpcio accepts no pool that is not a ThreadPoolExecutor; nothing of that class but the type is
    used.

    Args:
        name: of its threads.
        workers: threads that compute.
        queue: calls that may wait in the queue.
        waiting: calls that may wait for revisions and first loads at once.
        away: threads that are added for those that are away.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        queue: int,
        waiting: int = DEFAULT_WAITING,
        away: int = MAX_AWAY,
    ) -> None:
        super().__init__(name, waiting)
        self._away = away
        self._queue: CallQueue[_Work] = CallQueue(queue)
        self._paused = False
        self._resumed = threading.Event()
        self._minding = False
        self._wanted = threading.Event()
        self._closing = threading.Event()
        with self._lock:
            for _ in range(workers):
                self.start_worker(self._serve)
        self._minder = threading.Thread(target=self._mind, name=f"{name}-minder", daemon=True)
        self._minder.start()

    @property
    @override
    def depth(self) -> int:
        return len(self._queue)

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Queue a call; one that there is no room for is refused on this thread."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        work = _Work(fn, args, kwargs)
        self.arrived += 1
        refused = self._queue.put(work.caller, work)
        if refused is not None:
            with refusing(refused.arrived):
                refused.carry_out()
        if refused is not work and not self._minding:
            self._minding = True
            self._wanted.set()
        return work.future

    @override
    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no calls meanwhile; those begun go on."""
        self._resumed.clear()
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._resumed.set()

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers after what is queued."""
        del cancel_futures
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._queue.close()
        self._closing.set()
        self._wanted.set()
        if wait:
            self.join_workers()
            self._minder.join(JOIN_SECONDS)

    @override
    def _serve(self, worker: Worker) -> None:
        while not worker.lent and (work := self._queue.get()) is not None:
            if self._paused:
                self._resumed.wait()
            self._serve_one(worker, work)
            del work
        self._leave(worker)

    def _help(self, worker: Worker) -> None:
        """Carry out one call, if there still is one."""
        if (work := self._queue.pop()) is not None:
            self._serve_one(worker, work)
        self._leave(worker)

    @staticmethod
    def _serve_one(worker: Worker, work: _Work) -> None:
        worker.busy = True
        worker.arrived, worker.caller = work.arrived, work.caller
        work.carry_out()
        worker.busy = worker.long = False

    def _mind(self) -> None:
        """While calls are queued, see whether threads are away that should take them."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while not self._closing.wait(PATIENCE):
                if not len(self._queue):
                    # In this order: a call that comes in between is seen here or wakes us again.
                    self._minding = False
                    if not len(self._queue):
                        break
                    self._minding = True
                with suppress(LimitExceeded):  # no more threads: the next look may find some
                    self._relieve(len(self._queue))
            if self._closing.is_set():
                return

    def _relieve(self, wanted: int) -> None:
        """Find threads for that many calls in line, if some that should take them are away."""
        since = time.monotonic() - PATIENCE
        with self._lock:
            places = [worker for worker in self._workers if not worker.lent]
            away = [worker for worker in places if (left := worker.away_since) and left < since]
            lent = [worker for worker in self._workers if worker.lent]
            capacity = max(0, self._away + self._waiting + self._long() - len(lent))
            # Helpers that have begun nothing yet: on a busy machine they take a while to come.
            wanted -= sum(not worker.busy for worker in lent)
        for worker in away[: max(0, min(capacity, wanted))]:
            self._lend(worker)
        if len(away) < len(places):
            return
        # Nobody computes, and those in line may be silent, too: one at a time would take too long.
        self._start_helpers(min(capacity, wanted) - len(away))
        for worker in self.silent(since)[: max(0, wanted - capacity)]:
            end_silent(worker, QueueFull.of(self._name))

    def _start_helpers(self, count: int) -> None:
        with self._lock:
            if self._closed:
                return
            for _ in range(count):
                self.start_worker(self._help, lent=True)


class StreamExecutor(Pool, ThreadPoolExecutor):
    """A thread for each stream as long as it lasts; a stream past the bound is refused at once.

    Args:
        name: of its threads.
        streams: threads at most.
    """

    def __init__(self, name: str, streams: int, waiting: int = DEFAULT_WAITING) -> None:
        super().__init__(name, waiting)
        self._streams = streams

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Begin a stream, or refuse it on this thread."""
        work = _Work(fn, args, kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if len(self._workers) < self._streams:
                with suppress(LimitExceeded):
                    self.start_worker(lambda worker: self._serve(worker, work))
                    return work.future
        # Whoever tries again finds room, if there are callers that hold streams and say nothing.
        for silent in self.silent(time.monotonic() - SILENT_STREAM)[:1]:
            end_silent(silent, StreamsFull())
        work.carry_out()
        return work.future

    def end_silent(self, error: TopospreadError) -> None:
        """End the streams whose callers send no message."""
        for worker in self.silent(time.monotonic()):
            end_silent(worker, error)

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more streams; those begun end by themselves."""
        del cancel_futures
        with self._lock:
            self._closed = True
        if wait:
            self.join_workers()

    def _serve(self, worker: Worker, work: _Work) -> None:
        worker.busy = True
        worker.arrived, worker.caller = work.arrived, work.caller
        work.carry_out()
        with self._lock:
            self._workers.discard(worker)
