"""Long computations end when nobody can use their answer any more.

A call says for whom it computes (:func:`computing_for`), and everything that may take long calls
:func:`checkpoint` for each small piece of its work, however deep below. It costs some tens of
nanoseconds, so that it may stand in any loop whose pieces cost a microsecond or more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from topospread.errors import CallerGone, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERVAL: Final = 0.002
"""Seconds between two looks at the deadline and the caller: to look costs some microseconds."""

LONG: Final = 0.002
"""Seconds of processor time after which a computation is a long one."""

WAITING_INTERVAL: Final = 0.05
"""Seconds between two looks while a long computation waits for its turn."""


class Turn:
    """Lets long computations go on one at a time, in the order in which they turned out to be long.

    Threads that compute share the interpreter's lock: with dozens of long computations among them,
    a short one would wait for a slice of each of them.

    Args:
        making_way: called before a long computation goes on or waits; has others do what else this
            thread would do next.
    """

    def __init__(self, making_way: Callable[[], object] = lambda: None) -> None:
        self._making_way = making_way
        self._lock = threading.Lock()
        self._taken = False
        self._line: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """Computations that wait for their turn."""
        return len(self._line)

    def take(self, look: Callable[[], None]) -> None:
        """Go on when those before are done; `look` is called now and then, and may raise."""
        self._making_way()
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._line.append(mine)
        try:
            while not mine.acquire(timeout=WAITING_INTERVAL):
                look()
        except BaseException:
            with self._lock:
                came = mine not in self._line
                if not came:
                    self._line.remove(mine)
            if came:
                self.give()
            raise

    def give(self) -> None:
        """Let the next one go on."""
        with self._lock:
            if self._line:
                self._line.popleft().release()
            else:
                self._taken = False


class Beneficiary:
    """Whoever waits for what a thread computes.

    Args:
        deadline: on the monotonic clock.
        active: whether somebody still waits; may be slow compared to a loop's step.
        turn: what a long computation waits for; None: it just goes on.
    """

    __slots__ = ("_active", "_deadline", "_has_turn", "_long_at", "_next", "_turn")

    def __init__(
        self, deadline: float, active: Callable[[], bool], turn: Turn | None = None
    ) -> None:
        self._deadline = deadline
        self._active = active
        self._turn = turn
        self._has_turn = False
        self._long_at = 0.0
        # Not before: most computations are over by then, and asking for the caller costs a call.
        self._next = min(time.monotonic() + INTERVAL, deadline)

    def within(self, turn: Turn | None) -> Beneficiary:
        """The same caller, whose computation waits for another turn."""
        return Beneficiary(self._deadline, self._active, turn)

    def check(self) -> None:
        """Look, if the last look or the beginning was a while ago, or the deadline has passed.

        Raises:
            DeadlineExceeded, CallerGone: nobody waits any more.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + INTERVAL
        self._look(now)
        if self._turn is not None and not self._has_turn:
            self._take_turn(self._turn)
        # A loop that does not let go makes others wait for the interpreter's switch interval.
        time.sleep(0)

    def _look(self, now: float) -> None:
        if now > self._deadline:
            raise DeadlineExceeded(
                "the deadline passed before the answer was there: allow more time, or ask for less"
            )
        if not self._active():
            raise CallerGone("the caller cancelled the call or went away")

    def _take_turn(self, turn: Turn) -> None:
        spent = time.thread_time()
        if not self._long_at:
            self._long_at = spent + LONG
        elif spent > self._long_at:
            turn.take(lambda: self._look(time.monotonic()))
            self._has_turn = True

    def give_turn(self) -> None:
        """Let other long computations go on: this one is done, or waits for something else."""
        self._long_at = 0.0
        if self._has_turn and self._turn is not None:
            self._has_turn = False
            self._turn.give()


_beneficiary: ContextVar[Beneficiary | None] = ContextVar("beneficiary", default=None)


def beneficiary() -> Beneficiary | None:
    """For whom this thread computes; to be handed to a thread that goes on for it."""
    return _beneficiary.get()


@contextmanager
def computing_for(whom: Beneficiary | None) -> Iterator[None]:
    """Around a call's computation."""
    token = _beneficiary.set(whom)
    try:
        yield
    finally:
        _beneficiary.reset(token)
        if whom is not None:
            whom.give_turn()


def checkpoint() -> None:
    """To be called for each small piece of a computation that may take long.

    Raises:
        DeadlineExceeded, CallerGone: nobody waits for its result any more.
    """
    whom = _beneficiary.get()
    if whom is not None:
        whom.check()
