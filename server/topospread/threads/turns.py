"""Turns of calls that take much each, so that short ones wait for few of them."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from topospread.checkpoints import Beneficiary, TakesLong, computing_for
from topospread.errors import CallerGone, DeadlineExceeded, QueueFull
from topospread.threads.pool import Worker, away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

MAX_LONG: Final = 128
"""Long decisions that may wait for their turn, each on a thread of its own."""

LARGE_REQUEST: Final = 16 << 10
"""Bytes of a request that takes long: some milliseconds are over before it is read."""

LOOK: Final = 0.25
"""Seconds between two looks whether who waits for a turn is still there."""

LAST_LOOK: Final = 0.002
"""Seconds that are too few to wait for."""


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
    try:
        with computing_for(first):
            return decide()
    except TakesLong:
        pass  # what it held is let go before the wait
    LONG_DECISIONS.take(left, active)
    with computing_for(Beneficiary(deadline, active, LONG_DECISIONS, has_turn=True)):
        return decide()
