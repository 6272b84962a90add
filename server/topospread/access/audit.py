"""The audit log: a line for each call that changes something, and for each denied one.

Lines are logged at info by the logger ``topospread.audit``; the fields are the line's own. They
hold names and numbers, never contents. Lines of denied calls come at a bounded rate, so that a
caller without a role cannot fill the log: each address has a few at once and then one every ten
seconds, all together have a hundred and then ten a second. A line says how many were left out
before it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.access.rate_limit import RateLimiter
from topospread.errors import PermissionDenied, RateExceeded, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topospread.access.callers import Caller
    from topospread.errors import TopospreadError


LOG: Final = logging.getLogger("topospread.audit")

MAX_TEXT: Final = 512
"""Characters of a field: enough for the longest names of Kubernetes, too few for floods."""

DENIED: Final = (Unauthenticated, PermissionDenied, RateExceeded)
"""Errors that mean that a call was denied."""

LINES_PER_ADDRESS: Final = 10
SECONDS_PER_ADDRESS: Final = 10.0
LINES_TOTAL: Final = 100
SECONDS_TOTAL: Final = 0.1
"""Lines that there may be at once, and seconds until there may be another one."""

MAX_REASON: Final = 200
"""Characters of a reason: it may name a cluster that does not exist."""

_CODES: Final = {
    Unauthenticated: "UNAUTHENTICATED",
    PermissionDenied: "PERMISSION_DENIED",
    RateExceeded: "RESOURCE_EXHAUSTED",
}


def audit(
    call: str, caller: Caller | None, address: str, code: str, what: Mapping[str, object]
) -> None:
    """Log a call by its name, ``ClusterStateService/ApplyObjects``, and how it ended, ``OK``.

    Without a caller it was not authenticated.
    """
    name = "unauthenticated" if caller is None else caller.name or "anonymous"
    fields = {"call": call, "caller": name, "address": address, "code": code, **what}
    LOG.info("%s %s", call, code, extra={key: _cut(value) for key, value in fields.items()})


def _cut(value: object) -> object:
    return f"{value[:MAX_TEXT]}…" if isinstance(value, str) and len(value) > MAX_TEXT else value


class DenialLog:
    """Writes the denied calls of a process to the audit log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_address = RateLimiter(1 / SECONDS_PER_ADDRESS, LINES_PER_ADDRESS, clock)
        self._total = RateLimiter(1 / SECONDS_TOTAL, LINES_TOTAL, clock)
        self._left_out = 0
        self._lock = threading.Lock()

    def log(self, call: str, caller: Caller | None, address: str, error: TopospreadError) -> None:
        """Log a denied call, unless there are too many; errors but those of DENIED are ignored.

        The name of the call must not be one that an unauthenticated caller made up.
        """
        code = _CODES.get(type(error))
        if code is None:
            return
        try:
            self._per_address.take(address)
            self._total.take(None)
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
