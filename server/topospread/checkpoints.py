"""Checkpoints of long computations: there they are preempted, take turns, and end with their call.

A call sets what it computes for (:class:`Computation`), and everything that may take long calls
:func:`checkpoint` for each small piece of its work, however deep below. It costs some tens of
nanoseconds, so that it may stand in any loop whose pieces cost a microsecond or more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Self

from topospread.errors import CallerGone, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

INTERVAL: Final = 0.002
"""Seconds between two looks at clock and caller: each costs some microseconds."""

BRIEF: Final = 0.001
"""Seconds until the first look at a brief computation, and of processor time from then on, after
which it is preempted.
"""

SLICE: Final = 0.02
"""Seconds after which a computation that shares its turn lets those go on that wait for it."""

PATIENCE: Final = 0.25
"""Seconds between two looks whether who waits for a turn still has a caller."""

YIELD_EVERY: Final = 50
"""Calls between two releases of the interpreter's lock: a loop in Python that keeps it makes each
array operation of the decision threads wait for the interpreter's switch interval."""


class Preempted(BaseException):
    """Ends a brief computation that takes long or would wait; it is to begin again elsewhere.

    Only the code that began the computation catches it, so it is no Exception.
    """


class Turn:
    """One turn, for which callers wait in order: a fair lock whose waiters may leave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Who has it, and then those who wait: each for a lock that is released when it has it.
        self._line: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for it."""
        return max(0, len(self._line) - 1)

    def acquire(self, check: Callable[[], object] = lambda: None) -> None:
        """Wait for the turn; `check` is called four times a second and may end the wait."""
        mine = threading.Lock()
        with self._lock:
            if self._line:
                mine.acquire()
            self._line.append(mine)
        try:
            while not mine.acquire(timeout=PATIENCE):
                check()
        except BaseException:
            self._leave(mine)
            raise

    def release(self) -> None:
        """Let the next one go on."""
        self._leave(self._line[0])

    def _leave(self, one: threading.Lock) -> None:
        with self._lock:
            had = one is self._line[0]
            self._line.remove(one)
            if had and self._line:
                self._line[0].release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()


class Computation:
    """What a thread computes for a call; a context manager around it.

    Args:
        deadline: on the monotonic clock.
        active: whether the caller still waits.
        brief: it is preempted when it takes long or would wait, and takes no turn.
        turn: held while it computes.
        share: the turn is given up now and then.
        waits: the thread has the turn already, and gives it back; around waits, for which the
            computation gives it back. Without it the computation takes the turn itself.
    """

    __slots__ = (
        "_active",
        "_brief",
        "_brief_until",
        "_deadline",
        "_held",
        "_next",
        "_owned",
        "_share",
        "_slice_end",
        "_token",
        "_turn",
        "_waits",
    )

    def __init__(
        self,
        deadline: float,
        active: Callable[[], bool],
        *,
        brief: bool = False,
        turn: Turn | None = None,
        share: bool = False,
        waits: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._deadline = deadline
        self._active = active
        self._brief = brief
        self._brief_until = 0.0
        self._turn: Any = turn  # not None where it is owned or held
        self._waits = waits or nullcontext
        self._held = waits is not None
        self._owned = turn is not None and waits is None and not brief
        self._share = share
        self._slice_end = 0.0
        # Not before: most computations are over by then.
        self._next = time.monotonic() + (BRIEF if brief else INTERVAL)

    def __enter__(self) -> Self:
        if self._owned:
            self._acquire()
        self._token = _current.set(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)
        if self._owned and self._held:
            self._release()

    def check(self) -> None:
        """Look at the clock and the caller, if the last look was a while ago: see checkpoint()."""
        now = time.monotonic()
        if now < self._next and now < self._deadline:
            return
        self._next = now + (BRIEF if self._brief else INTERVAL)
        if self._brief:
            # To ask at the beginning would be a tenth of what a short one costs.
            spent = time.thread_time()
            if not self._brief_until:
                self._brief_until = spent + BRIEF
            elif spent > self._brief_until:
                raise Preempted
        self.check_caller()
        if self._held and self._share and now > self._slice_end and self._turn.waiting:
            self._release()
            self._acquire()
        else:
            # A loop that does not let go makes others wait for the interpreter's switch interval.
            time.sleep(0)

    def check_caller(self) -> None:
        """Raise DeadlineExceeded or CallerGone unless the caller still waits."""
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded(
                "the deadline passed before the answer was there: allow more time, or ask for less"
            )
        if not self._active():
            raise CallerGone("the caller cancelled the call or went away")

    def preempt(self) -> None:
        """Preempt it now if it is brief."""
        if self._brief:
            raise Preempted

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait, meanwhile others compute; a brief computation is preempted instead."""
        self.preempt()
        if not self._held:
            yield  # also where a wait around this one has given the turn away
            return
        with self._waits():
            self._release()
            try:
                yield
            finally:
                self._take(lambda: None)

    def _acquire(self) -> None:
        self._take(self.check_caller)
        try:
            self.check_caller()
        except BaseException:
            self._release()
            raise

    def _take(self, check: Callable[[], object]) -> None:
        self._turn.acquire(check)
        self._held = True
        self._slice_end = time.monotonic() + SLICE

    def _release(self) -> None:
        self._held = False
        self._turn.release()


_current: ContextVar[Computation | None] = ContextVar("computation", default=None)


def current_computation() -> Computation | None:
    """What this thread computes for; another thread may go on for it."""
    return _current.get()


def checkpoint() -> None:
    """Mark a small piece of a computation that may take long; call it for each.

    Nothing that others wait for may be held there, nor anything be half done.

    Raises:
        DeadlineExceeded, CallerGone: the caller does not wait any more.
        Preempted: it is to begin again elsewhere.
    """
    computation = _current.get()
    if computation is not None:
        computation.check()


def will_take_long() -> None:
    """Note that what comes takes long: a brief computation is preempted before it begins."""
    computation = _current.get()
    if computation is not None:
        computation.preempt()


def waiting() -> AbstractContextManager[None]:
    """Around a wait for something outside, such as the store: others compute meanwhile.

    Raises:
        Preempted: a brief computation must not wait.
    """
    computation = _current.get()
    return nullcontext() if computation is None else computation.waiting()


@contextmanager
def computing_for(computation: Computation | None) -> Iterator[None]:
    """Around what this thread does for another's computation, or for nobody's."""
    token = _current.set(computation)
    try:
        yield
    finally:
        _current.reset(token)


class CooperativeYield:
    """A checkpoint of one thread that also lets others run now and then, and ends at a deadline.

    Args:
        deadline: on the monotonic clock.
        doing: what is under way, for the error.
    """

    def __init__(self, deadline: float, doing: str) -> None:
        self._deadline = deadline
        self._doing = doing
        self._calls = 0

    def __call__(self) -> None:
        """Mark a small piece of work; raises as checkpoint(), and DeadlineExceeded."""
        checkpoint()
        self._calls += 1
        if self._calls % YIELD_EVERY:
            return
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded(
                f"the deadline passed before {self._doing}: allow more time, or ask about less"
            )
        time.sleep(0)
