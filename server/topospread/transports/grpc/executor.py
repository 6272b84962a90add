"""Thread pools for a synchronous gRPC server.

grpcio gives every call that arrives to a pool's unbounded queue, and picks the pool before it has
read the message. So the bounds are kept here: a full queue is answered at once with
RESOURCE_EXHAUSTED, and a decision that must wait for a revision lends its place to a replacement,
so that waiting calls never slow the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from typing_extensions import override

from topospread.errors import LimitExceeded

_T = TypeVar("_T")
_Work = tuple[Future[Any], Callable[[], Any]]

DEFAULT_WAITING: Final = 64
"""Calls that may wait at once for revisions and first loads."""


class BoundedExecutor(ThreadPoolExecutor):
    """A pool with a bounded queue whose workers may lend their place while they wait.

    It is a ThreadPoolExecutor because grpcio accepts no other type; nothing of that class but the
    type is used.

    Args:
        name: of its threads.
        workers: threads that compute.
        queue: calls that may stand in line; past it :func:`overloaded` is true for a call.
        waiting: calls that may wait at once.
    """

    def __init__(self, name: str, workers: int, queue: int, waiting: int = DEFAULT_WAITING) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self._name = name
        self._bound = queue
        self._line: SimpleQueue[_Work | None] = SimpleQueue()
        self._refused: SimpleQueue[_Work | None] = SimpleQueue()
        self._waiting_bound = waiting
        self._lock_waiting = threading.Lock()
        self._waiting = 0
        self._threads_made = 0
        self._closed = False
        for _ in range(workers):
            self._start(self._line)
        self._start(self._refused, refusing=True)
        self._workers_now = workers

    @property
    def depth(self) -> int:
        """Calls in line."""
        return self._line.qsize()

    @property
    def waiting(self) -> int:
        """Calls that wait and have lent their place."""
        return self._waiting

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Put a call in line, or among those to be refused."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[_T] = Future()
        line = self._line if self._line.qsize() < self._bound else self._refused
        line.put((future, lambda: fn(*args, **kwargs)))
        return future

    def enter_wait(self) -> Callable[[], None]:
        """Lend this worker's place to a replacement; call what is returned to take it back.

        Raises:
            LimitExceeded: too many calls wait already.
        """
        with self._lock_waiting:
            if self._waiting >= self._waiting_bound:
                raise LimitExceeded(
                    f"{self._waiting_bound} calls wait for revisions or first loads already"
                )
            self._waiting += 1
        self._start(self._line)
        return self._leave_wait

    def _leave_wait(self) -> None:
        with self._lock_waiting:
            self._waiting -= 1
        self._line.put(None)  # whoever takes it retires

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers after what stands in line."""
        del cancel_futures
        if self._closed:
            return
        self._closed = True
        with self._lock_waiting:
            workers = self._workers_now + self._waiting
        for _ in range(workers):
            self._line.put(None)
        self._refused.put(None)
        del wait

    def _start(self, line: SimpleQueue[_Work | None], *, refusing: bool = False) -> None:
        self._threads_made += 1
        name = f"{self._name}-{self._threads_made}"
        _Worker(self, name, lambda: self._run(line), refusing=refusing).start()

    def _run(self, line: SimpleQueue[_Work | None]) -> None:
        while (work := line.get()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as failure:  # noqa: BLE001 - the future carries it, as in the standard pool
                future.set_exception(failure)
            del work, future, call


class _Worker(threading.Thread):
    """A thread that knows which pool it works for."""

    def __init__(
        self, pool: BoundedExecutor, name: str, run: Callable[[], None], *, refusing: bool
    ) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self.pool = pool
        self.refusing = refusing


def overloaded() -> bool:
    """Asked by a handler: was this call let in only to be refused?"""
    thread = threading.current_thread()
    return isinstance(thread, _Worker) and thread.refusing


def lend_place() -> Callable[[], None]:
    """Before a wait: lend this thread's place in its pool; call what is returned to take it back.

    Raises:
        LimitExceeded: too many calls wait already.
    """
    thread = threading.current_thread()
    return thread.pool.enter_wait() if isinstance(thread, _Worker) else _nothing


def _nothing() -> None:
    return None
