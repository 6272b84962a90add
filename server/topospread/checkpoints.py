"""Cancellation points of long computations: they end with their deadline or their caller.

A call sets for whom it computes (:func:`computing_for`), and everything that may take long calls
:func:`checkpoint` for each small piece of its work, however deep below. It costs some tens of
nanoseconds, so that it may stand in any loop whose pieces cost a microsecond or more.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

from topospread.errors import CallerGone, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL: Final = 0.002
"""Seconds between two looks at the deadline and the caller: to look costs some microseconds."""

YIELD_EVERY: Final = 50
"""Calls between two turns of others. A loop in Python that does not let go makes each array
operation of the decision threads wait for the interpreter's switch interval."""

LONG: Final = 0.002
"""Seconds of processor time after which a computation is a long one."""


class TakesLong(BaseException):
    """Ends a computation that was begun as a short one, so that it is begun anew in its turn.

    Only the code that began the computation catches it, so it is no Exception.
    """


class LongTurns(Protocol):
    """A bound on the number of long computations that run at once.

    Threads share the interpreter's lock: a short one would wait for a slice of each long one.
    """

    def try_take(self) -> bool:
        """Take a turn if one is free; does not wait."""
        ...

    def take(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        """Wait for a turn.

        Args:
            left: seconds until the caller's deadline.
            active: whether the caller still waits.

        Raises:
            LimitExceeded: too many wait already.
            DeadlineExceeded, CallerGone: the caller does not wait any more.
        """
        ...

    def give(self) -> None:
        """Return a turn."""
        ...


class Beneficiary:
    """The caller that a thread computes for: its deadline, and whether it still waits.

    Args:
        deadline: on the monotonic clock.
        active: whether the caller still waits; may be slow compared to a loop's step.
        turns: of long computations; None: it just goes on, however long it takes.
        anew: a long computation that finds no turn ends with TakesLong instead of waiting with all
            that it holds by then; its caller begins it anew.
        has_turn: it was taken already.
    """

    __slots__ = ("_active", "_anew", "_deadline", "_has_turn", "_long_at", "_next", "_turns")

    def __init__(
        self,
        deadline: float,
        active: Callable[[], bool],
        turns: LongTurns | None = None,
        *,
        anew: bool = False,
        has_turn: bool = False,
    ) -> None:
        self._deadline = deadline
        self._active = active
        self._turns = turns
        self._anew = anew
        self._has_turn = has_turn
        self._long_at = 0.0
        # Not before: most computations are over by then, and asking for the caller costs a call.
        self._next = min(time.monotonic() + INTERVAL, deadline)

    def check(self) -> None:
        """Look, if the last look or the beginning was a while ago, or the deadline has passed.

        Raises:
            DeadlineExceeded, CallerGone: the caller does not wait any more.
            TakesLong: it takes long, it is another's turn, and it may be begun anew.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + INTERVAL
        if now > self._deadline:
            raise DeadlineExceeded(
                "the deadline passed before the answer was there: allow more time, or ask for less"
            )
        if not self._active():
            raise CallerGone("the caller cancelled the call or went away")
        if self._turns is not None and not self._has_turn:
            self._take_turn(self._turns)
        # A loop that does not let go makes others wait for the interpreter's switch interval.
        time.sleep(0)

    def _take_turn(self, turns: LongTurns) -> None:
        spent = time.thread_time()
        if not self._long_at:
            self._long_at = spent + LONG
            return
        if spent <= self._long_at:
            return
        if not turns.try_take():
            if self._anew:
                raise TakesLong
            turns.take(lambda: self._deadline - time.monotonic(), self._active)
        self._has_turn = True

    def give_turn(self, *, for_good: bool = False) -> None:
        """Let other long computations go on: this one is done, or waits for something else.

        One that goes on waits in line again where it takes long, with what it holds if it was begun
        anew before.

        Args:
            for_good: from now on it neither is begun anew nor waits for a turn.
        """
        turns, self._long_at = self._turns, 0.0
        if for_good:
            self._turns = None
        if self._has_turn and turns is not None:
            self._has_turn = False
            turns.give()


_beneficiary: ContextVar[Beneficiary | None] = ContextVar("beneficiary", default=None)


def beneficiary() -> Beneficiary | None:
    """The caller that this thread computes for; to be handed to a thread that goes on for it."""
    return _beneficiary.get()


class computing_for:  # noqa: N801 - a context manager, as contextlib.suppress
    """Around a call's computation."""

    __slots__ = ("_token", "_whom")

    def __init__(self, whom: Beneficiary | None) -> None:
        self._whom = whom

    def __enter__(self) -> None:
        self._token = _beneficiary.set(self._whom)

    def __exit__(self, *raised: object) -> None:
        if self._whom is not None:
            self._whom.give_turn()
        _beneficiary.reset(self._token)


def will_write() -> None:
    """Note that a computation is about to write; call it before each write.

    It gives its turn back for good: from there on it is neither begun anew nor made to wait.
    """
    whom = _beneficiary.get()
    if whom is not None:
        whom.give_turn(for_good=True)


def checkpoint() -> None:
    """Mark a small piece of a computation that may take long; call it for each.

    Nothing that others wait for may be held there, nor anything be half done.

    Raises:
        DeadlineExceeded, CallerGone: the caller does not wait any more.
        TakesLong: it is begun anew.
    """
    whom = _beneficiary.get()
    if whom is not None:
        whom.check()


class CooperativeYield:
    """Yields to other threads every few calls; to be called for each small piece of work.

    One is for one thread.

    Args:
        deadline: on the monotonic clock.
        doing: what is under way, for the error.
    """

    def __init__(self, deadline: float, doing: str) -> None:
        self._deadline = deadline
        self._doing = doing
        self._calls = 0

    def __call__(self) -> None:
        """Now and then let others run.

        Raises:
            DeadlineExceeded: the deadline has passed.
            CallerGone: the caller does not wait any more.
        """
        checkpoint()
        self._calls += 1
        if self._calls % YIELD_EVERY:
            return
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded(
                f"the deadline passed before {self._doing}: allow more time, or ask about less"
            )
        time.sleep(0)
