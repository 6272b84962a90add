"""Refused calls in the audit log, at a bounded rate: whoever may do nothing may not fill it either.

Each address has a few lines at once and then one every ten seconds, all together have a hundred and
then ten a second. A line says how many were left out before it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.access.audit import audit
from topospread.access.rates import Rates
from topospread.errors import PermissionDenied, RateExceeded, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.access.callers import Caller
    from topospread.errors import TopospreadError

REFUSED: Final = (Unauthenticated, PermissionDenied, RateExceeded)
"""Errors of callers that were not let in."""

LINES_OF_ONE: Final = 10
SECONDS_OF_ONE: Final = 10.0
LINES_OF_ALL: Final = 100
SECONDS_OF_ALL: Final = 0.1
"""Lines that there may be at once, and seconds until there may be another one."""

MAX_REASON: Final = 200
"""Characters of a reason: it may name a cluster of the caller's own invention."""

_CODES: Final = {
    Unauthenticated: "UNAUTHENTICATED",
    PermissionDenied: "PERMISSION_DENIED",
    RateExceeded: "RESOURCE_EXHAUSTED",
}


class Refusals:
    """Tells the audit log of the refused calls of a process.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._of_one = Rates(1 / SECONDS_OF_ONE, LINES_OF_ONE, clock)
        self._of_all = Rates(1 / SECONDS_OF_ALL, LINES_OF_ALL, clock)
        self._left_out = 0
        self._lock = threading.Lock()

    def tell(self, call: str, caller: Caller | None, address: str, error: TopospreadError) -> None:
        """Log a refused call, unless there are too many.

        Args:
            call: its name; never what a stranger made up.
            caller: who made it; None is a stranger.
            address: where it came from.
            error: one of REFUSED; others are none of this log's.
        """
        code = _CODES.get(type(error))
        if code is None:
            return
        try:
            self._of_one.take(address)
            self._of_all.take(None)
        except RateExceeded:
            with self._lock:
                self._left_out += 1
            return
        with self._lock:
            left_out, self._left_out = self._left_out, 0
        what: dict[str, object] = {"left_out": left_out} if left_out else {}
        if not isinstance(error, Unauthenticated):
            what["reason"] = str(error)[:MAX_REASON]
        audit(call, caller, address, code, what)
