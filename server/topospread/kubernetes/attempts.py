"""Attempts to read a kind that failed: when to try again, what to log, and what a refusal means."""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING, Final

from topospread.kubernetes.api_server import REMINDER_SECONDS, NoResponse, Refusal
from topospread.kubernetes.objects import why_unread

if TYPE_CHECKING:
    from topospread.errors import TopospreadError
    from topospread.kubernetes.objects import Resource

LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts while the API server or the state fails: doubling, with some chance."""

REFUSED_SECONDS: Final = 60.0
"""After which a refusal is taken for a missing right, and not for an API server that is starting:
one whose caches of RBAC are not filled yet refuses what everybody may.
"""


class FailedAttempts:
    """The attempts to read one kind that failed in a row."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._failed = 0
        self._logged = ("", 0.0)
        self._refused_at: float | None = None

    def succeeded(self) -> None:
        """Begin anew: the next pause is short."""
        self._failed = 0

    def next_pause(self) -> float:
        """Seconds until the next attempt."""
        seconds = min(LONGEST_PAUSE, math.ldexp(FIRST_PAUSE, min(self._failed, 10)))
        self._failed += 1
        return seconds * random.uniform(0.5, 1.0)

    def log(self, error: TopospreadError) -> None:
        """One line for each thing that goes wrong, and a reminder while it does not change."""
        name = self._resource.name
        if isinstance(error, NoResponse) and (error.logged or not self._failed):
            # The outage has its one line; a watch that broke off once is nothing to look at.
            LOG.debug("%s: %s", name, error)
            return
        text, now = str(error), time.monotonic()
        last, at = self._logged
        if self._failed and text == last and now - at < REMINDER_SECONDS:
            return
        self._logged = (text, now)
        LOG.warning("%s: %s", name, error)

    def permitted(self) -> None:
        """Note that the kind is not refused."""
        self._refused_at = None

    def refused(self, error: TopospreadError, verb: str) -> tuple[str, bool]:
        """Why the kind is not read, if it was refused and can be done without; and if that lasts.

        The reason is empty where it was not.
        """
        now = time.monotonic()
        since = self._refused_at or now
        lasts = now - since >= REFUSED_SECONDS
        reason = ""
        if isinstance(error, Refusal):
            reason = why_unread(self._resource, error, verb, lasts=lasts)
        self._refused_at = since if reason else None
        return reason, lasts
