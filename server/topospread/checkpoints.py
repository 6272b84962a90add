"""Long computations end when nobody can use their answer any more.

A call says for whom it computes (:func:`computing_for`), and everything that may take long calls
:func:`checkpoint` for each small piece of its work, however deep below. It costs some tens of
nanoseconds, so that it may stand in any loop whose pieces cost a microsecond or more.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from topospread.errors import CallerGone, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERVAL: Final = 0.005
"""Seconds between two looks at the deadline and the caller: to look costs some microseconds."""


class Beneficiary:
    """Whoever waits for what a thread computes.

    Args:
        deadline: on the monotonic clock.
        active: whether somebody still waits; may be slow compared to a loop's step.
    """

    __slots__ = ("_active", "_deadline", "_next")

    def __init__(self, deadline: float, active: Callable[[], bool]) -> None:
        self._deadline = deadline
        self._active = active
        # Not before: most computations are over by then, and asking for the caller costs a call.
        self._next = min(time.monotonic() + INTERVAL, deadline)

    def check(self) -> None:
        """Look, if the last look or the beginning was a while ago, or the deadline has passed.

        Raises:
            DeadlineExceeded, CallerGone: nobody waits any more.
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
        # A loop that does not let go makes others wait for the interpreter's switch interval.
        time.sleep(0)


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


def checkpoint() -> None:
    """To be called for each small piece of a computation that may take long.

    Raises:
        DeadlineExceeded, CallerGone: nobody waits for its result any more.
    """
    whom = _beneficiary.get()
    if whom is not None:
        whom.check()
