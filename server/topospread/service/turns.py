"""Long computations beside decisions: they let other threads run, and end with their deadline."""

from __future__ import annotations

import time
from typing import Final

from topospread.checkpoints import checkpoint
from topospread.errors import DeadlineExceeded

EVERY: Final = 50
"""Calls between two turns of others. A loop in Python that does not let go makes each array
operation of the decision threads wait for the interpreter's switch interval."""


class Turns:
    """To be called once for each small piece of work; not for several threads.

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
            CallerGone: nobody waits for the answer any more.
        """
        checkpoint()
        self._calls += 1
        if self._calls % EVERY:
            return
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded(
                f"the deadline passed before {self._doing}: allow more time, or ask about less"
            )
        time.sleep(0)
