"""Decisions that take long or wait: one computes at a time, callers in turn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from topospread.calls.executor import CallThreads, join
from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from topospread.checkpoints import Turn, Turns

LOG: Final = logging.getLogger(__name__)

THREADS: Final = 64
"""Calls that may wait for a revision, a first load or the store, each with a thread of its own."""


class SlowCall(Protocol):
    """A call that is carried out in the lane."""

    @property
    def owner(self) -> Hashable:
        """Whose turn it is."""
        ...

    def carry_out(self, turn: Turns) -> None:
        """Answer it, holding this turn; raises nothing."""
        ...

    def refuse(self) -> None:
        """Answer it where there is no room for it."""
        ...


class SlowLane(CallThreads[SlowCall]):
    """A bounded queue, and threads of which one computes: it has the turn.

    A thread takes the turn before it takes a call, so that what waits is in the queue, where
    callers take turns. One that waits for something else gives the turn away meanwhile, and if
    there is no other thread to take it, one is started.

    Args:
        queue: calls that may wait.
        turn: of all long computations of the process.
        threads: calls that may wait for something else at once; there is one thread more.
    """

    def __init__(self, queue: int, turn: Turn, threads: int = THREADS) -> None:
        super().__init__("decide-slowly", queue)
        self._turn = turn
        self._most = threads
        self.computing = 0
        self.blocked = 0

    def put(self, call: SlowCall) -> None:
        """Queue a call; one that there is no room for is refused on this thread."""
        with self._changed:
            refused = call if self._closed else self._queue.put(call.owner, call)
            self._provide_thread()
            self._changed.notify()
        if refused is not None:
            refused.refuse()

    def remove(self, call: SlowCall) -> bool:
        """Take a call out of the queue; returns whether it was in it."""
        with self._changed:
            return self._queue.remove(call.owner, call)

    def shutdown(self) -> None:
        """End the threads; what is queued is refused."""
        running = self._close()
        while (call := self._queue.pop()) is not None:
            call.refuse()
        join(running)

    # ------------------------------ a turn for those who compute in the lane

    @property
    def waiting(self) -> int:
        """How many wait for the turn: see :class:`~topospread.checkpoints.Turns`."""
        return self._turn.waiting

    def acquire(self, check: Callable[[], object]) -> None:
        """Wait for the turn."""
        self._turn.acquire(check)

    def release(self) -> None:
        """Give the turn back."""
        self._turn.release()

    def pause(self) -> None:
        """Give the turn to another thread of the lane, or to another computation.

        Raises:
            LimitExceeded: too many calls wait already.
        """
        with self._changed:
            if self.blocked >= self._most:
                raise QueueFull(f"{self._most} calls wait for revisions or first loads already")
            self.blocked += 1
            self._provide_thread()
        self._turn.release()

    def resume(self) -> None:
        """Wait for the turn again."""
        self._turn.acquire()
        with self._changed:
            self.blocked -= 1

    # ------------------------------ threads

    def _provide_thread(self) -> None:
        """Start a thread if all that there are wait for something else; under the lock."""
        running = len(self._running)
        if not len(self._queue) or running > self.blocked or running > self._most or self._closed:
            return
        self._start_thread()  # where there can be none, the next call, or who waits, goes on

    @override
    def _serve(self) -> None:
        while self._await_call():
            self._turn.acquire()
            try:
                with self._changed:
                    call = None if self._paused else self._queue.pop()
                if call is not None:
                    self.computing += 1
                    call.carry_out(self)
                    self.computing -= 1
            except Exception:
                LOG.exception("a call was dropped")
            finally:
                call = None
                self._turn.release()

    def _await_call(self) -> bool:
        """Wait until there is a call; False: the thread is not needed any more."""
        with self._changed:
            while not len(self._queue) or self._paused:
                if self._closed or len(self._running) - self.blocked > 1:
                    return False
                self._changed.wait()
            return True
