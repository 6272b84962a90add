"""The thread pools of the gRPC server.

grpcio hands a call to a pool when its headers are there, before any message was read, and never
minds how many stand in line. So the bounds are kept here: what is past them is refused at once.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from topospread.errors import LimitExceeded
from topospread.transports.grpc.pool import (
    DEFAULT_WAITING,
    JOIN_SECONDS,
    Pool,
    Work,
    Worker,
    carry_out,
    end_silent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

PATIENCE: Final = 0.02
"""Seconds a thread may be away before it is replaced while calls stand in line: longer than any
message on its way, short enough for whoever stands in line.
"""

MAX_AWAY: Final = 64
"""Threads that a pool adds for those that are away. Past it, the calls that have been silent for
longest are cancelled to make room.
"""

SILENT_STREAM: Final = 1.0
"""Seconds after which a stream without its first message gives way when all threads are taken."""


class BoundedExecutor(Pool):
    """A pool with a bounded line, whose workers may lend their places.

    Args:
        name: of its threads.
        workers: threads that compute.
        queue: calls that may stand in line.
        waiting: calls that may wait at once.
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
        self._bound = queue
        self._away = away
        self._line: SimpleQueue[Work | None] = SimpleQueue()
        self._lent = 0
        self._paused = False
        self._resumed = threading.Event()
        self._minding = False
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self.arrived = 0
        with self._lock:
            for _ in range(workers):
                self.start_worker(self._serve)
        self._minder = threading.Thread(target=self._mind, name=f"{name}-minder", daemon=True)
        self._minder.start()

    @property
    @override
    def depth(self) -> int:
        return self._line.qsize()

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Put a call in line, or refuse it on this thread."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[_T] = Future()
        work: Work = (future, fn, args, kwargs)
        self.arrived += 1
        if self._line.qsize() >= self._bound:
            carry_out(work)
            return future
        self._line.put(work)
        if not self._minding:
            self._minding = True
            self._wanted.set()
        return future

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
        """End the workers after what stands in line."""
        del cancel_futures
        with self._lock:
            if self._closed:
                return
            self._closed = True
            places = sum(not worker.lent for worker in self._workers)
        for _ in range(places):
            self._line.put(None)
        self._closing.set()
        self._wanted.set()
        if wait:
            self.join_workers()
            self._minder.join(JOIN_SECONDS)

    @override
    def _lend(self, worker: Worker) -> None:
        with self._lock:
            if worker.lent or self._closed:
                return
            self.start_worker(self._serve)
            worker.lent = True
            self._lent += 1

    def _serve(self, worker: Worker) -> None:
        while (work := self._line.get()) is not None:
            if self._paused:
                self._resumed.wait()
            self._serve_one(worker, work)
            del work
            if worker.lent:
                break
        self._leave(worker)

    def _help(self, worker: Worker) -> None:
        """Carry out one call, if there still is one."""
        with suppress(Empty):
            work = self._line.get_nowait()
            if work is None:
                self._line.put(None)
            else:
                self._serve_one(worker, work)
        self._leave(worker)

    @staticmethod
    def _serve_one(worker: Worker, work: Work) -> None:
        worker.busy = True
        carry_out(work)
        worker.busy = worker.long = False

    def _leave(self, worker: Worker) -> None:
        with self._lock:
            self._lent -= worker.lent
            self._workers.discard(worker)

    def _mind(self) -> None:
        """While calls stand in line, see whether threads are away that should take them."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while not self._closing.wait(PATIENCE):
                if not self._line.qsize():
                    # In this order: a call that comes in between is seen here or wakes us again.
                    self._minding = False
                    if not self._line.qsize():
                        break
                    self._minding = True
                with suppress(LimitExceeded):  # no more threads: the next look may find some
                    self._relieve(self._line.qsize())
            if self._closing.is_set():
                return

    def _relieve(self, wanted: int) -> None:
        """Find threads for calls in line, if some that should take them are away."""
        since = time.monotonic() - PATIENCE
        with self._lock:
            places = [worker for worker in self._workers if not worker.lent]
            away = [worker for worker in places if (left := worker.away_since) and left < since]
            capacity = max(0, self._away + self._waiting + self._long() - self._lent)
        for worker in away[: min(capacity, wanted)]:
            self._lend(worker)
        if len(away) < len(places):
            return
        # Nobody computes, and those in line may be silent, too: one at a time would take too long.
        self._start_helpers(min(capacity, wanted) - len(away))
        for worker in self.silent(since)[: max(0, wanted - capacity)]:
            end_silent(worker)

    def _start_helpers(self, count: int) -> None:
        with self._lock:
            if self._closed:
                return
            for _ in range(count):
                self.start_worker(self._help, lent=True)
                self._lent += 1


class StreamExecutor(Pool):
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
        future: Future[_T] = Future()
        work: Work = (future, fn, args, kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if len(self._workers) < self._streams:
                with suppress(LimitExceeded):
                    self.start_worker(lambda worker: self._serve(worker, work))
                    return future
        # Whoever tries again finds room, if there are callers that hold streams and say nothing.
        for silent in self.silent(time.monotonic() - SILENT_STREAM)[:1]:
            end_silent(silent)
        carry_out(work)
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more streams; those begun end by themselves."""
        del cancel_futures
        with self._lock:
            self._closed = True
        if wait:
            self.join_workers()

    def _serve(self, worker: Worker, work: Work) -> None:
        worker.busy = True
        carry_out(work)
        with self._lock:
            self._workers.discard(worker)
