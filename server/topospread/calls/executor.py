"""Threads that carry out calls: bounded, callers in turn, refusals on the caller's thread."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from typing_extensions import override

from topospread.calls.call_queue import CallQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

_T = TypeVar("_T")
_C = TypeVar("_C")

JOIN_SECONDS: Final = 5.0
"""How long a shutdown waits for threads that are in the middle of something."""

_local: Final = threading.local()


class Work:
    """A call as it was submitted.

    Attributes:
        executor: whose thread carries it out; None: it is only to be refused.
        arrived: when, on the clock of time.perf_counter.
        caller: the connection that it came over; "" where that is not known.
        future: gets what comes of it.
    """

    __slots__ = ("_args", "_call", "_kwargs", "arrived", "caller", "executor", "future")

    def __init__(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.future: Future[Any] = Future()
        self.executor: Executor | None = None
        self.arrived = time.perf_counter()
        self.caller = _connection(args)
        self._call = call
        self._args = args
        self._kwargs = kwargs

    def carry_out(self) -> None:
        """Make the call; its future gets what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        _local.work = self
        try:
            self.future.set_result(self._call(*self._args, **self._kwargs))
        except BaseException as failure:  # noqa: BLE001 - the future carries it, as in the standard pool
            self.future.set_exception(failure)
        finally:
            _local.work = None


def current_work() -> Work | None:
    """What this thread carries out, for the callable that was submitted.

    An executor carries out what it refuses on the thread that brings it, so that a refusal stands
    in no line: then the work has no executor, and must not wait for anything.
    """
    work: Work | None = getattr(_local, "work", None)
    return work


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


class CallThreads(Generic[_C]):
    """A bounded queue of calls, and threads that are started when they are needed.

    Args:
        name: of the threads.
        queue: calls that may wait for one.
    """

    def __init__(self, name: str, queue: int) -> None:
        self.name: Final = name
        self._queue: CallQueue[_C] = CallQueue(queue)
        self._changed = threading.Condition(threading.Lock())
        self._running: set[threading.Thread] = set()
        self._made = 0
        self._closed = False
        self._paused = False

    @property
    def depth(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no calls meanwhile; those begun go on."""
        self._paused = True
        try:
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def _serve(self) -> None:
        """Carry out calls, on a thread, until it is not needed any more."""
        raise NotImplementedError

    def _start_thread(self) -> bool:
        """Start a thread, under the lock; False: the system allows no more."""
        self._made += 1
        name = f"{self.name}-{self._made}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._running.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._running.discard(thread)
            return False
        return True

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self._changed:
                self._running.discard(threading.current_thread())

    def _close(self) -> set[threading.Thread]:
        """Have the threads end; returns those that still run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return self._running.copy()


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until threads end, but not for long."""
    deadline = time.monotonic() + JOIN_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


class Executor(CallThreads[Work], ThreadPoolExecutor):
    """Threads, and a queue in which callers take turns.

    grpcio hands a call over when its headers are there, before any message was read, and never
    minds how many are queued: so the bound is kept here. It accepts no executor that is not a
    ThreadPoolExecutor; nothing of that class but the type is used.

    Args:
        name: of its threads.
        threads: at most.
        queue: calls that may wait for one.

    Attributes:
        arrived: calls so far.
    """

    def __init__(self, name: str, threads: int, queue: int) -> None:
        super().__init__(name, queue)
        self.arrived = 0
        self._most = threads
        self._busy = 0

    @property
    def busy(self) -> int:
        """Calls that are carried out."""
        return self._busy

    @property
    def blocked(self) -> int:
        """Calls that are known to wait: a thread of its own waits with each."""
        return 0

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Queue a call; one that there is no room for is refused on this thread."""
        work = Work(fn, args, kwargs)
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.arrived += 1
            work.executor = self
            refused = self._queue.put(work.caller, work, self._most - self._busy)
            if refused is not work and not self._wake():
                self._queue.remove(work.caller, work)
                refused = work
        if refused is not None:
            refused.executor = None
            refused.carry_out()
        return work.future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after what is queued."""
        del cancel_futures
        running = self._close()
        if wait:
            join(running)

    def _wake(self) -> bool:
        """Have a thread take what is queued; False: there can be none. Under the lock."""
        running = len(self._running)
        needed = running - self._busy < len(self._queue) and running < self._most
        if needed and not self._start_thread():
            return bool(running) and len(self._queue) <= self._queue.bound
        self._changed.notify()
        return True

    @override
    def _serve(self) -> None:
        while (work := self._next()) is not None:
            work.carry_out()
            del work
            with self._changed:
                self._busy -= 1

    def _next(self) -> Work | None:
        with self._changed:
            while not len(self._queue) or self._paused:
                if self._closed and not len(self._queue):
                    return None
                self._changed.wait()
            self._busy += 1
            return self._queue.pop()
