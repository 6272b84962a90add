"""Open streams of callers who were let in: they end when their callers are known no more."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG: Final = logging.getLogger(__name__)

EVERY: Final = 0.25
"""Seconds between looks."""

GRACE: Final = 0.7
"""Seconds that a stream has to end by itself, saying why, before it is cancelled.

WatchObjects looks twice a second whether its caller is known. With the time until a change of the
access file is seen, all ends within two seconds.
"""


class OpenStreams:
    """Looks after streams while there are any, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[object, tuple[Callable[[], bool], Callable[[], object]]] = {}
        self._looking = False

    @contextmanager
    def watched(self, stands: Callable[[], bool], cancel: Callable[[], object]) -> Iterator[None]:
        """Around a stream.

        Args:
            stands: whether its caller is still known.
            cancel: ends it from this side, whatever it waits for.
        """
        key = object()
        with self._lock:
            if not self._looking:
                threading.Thread(target=self._look, name="open-streams", daemon=True).start()
                self._looking = True
            self._open[key] = stands, cancel
        try:
            yield
        finally:
            with self._lock:
                del self._open[key]

    def _look(self) -> None:
        pause = threading.Event()
        since: dict[object, float] = {}
        failed: set[object] = set()

        def guarded(key: object, act: Callable[[], object]) -> object:
            """What it returns; a failure is logged once for a stream, and ends no other's look."""
            try:
                return act()
            except Exception:
                if key not in failed:
                    failed.add(key)
                    LOG.exception("an open stream cannot be looked after")
                return None

        while True:
            pause.wait(EVERY)
            with self._lock:
                if not self._open:
                    self._looking = False
                    return
                found = dict(self._open)
            now = time.monotonic()
            failed &= found.keys()
            # A caller of whom it cannot be said that it is known is not.
            since = {
                key: since.get(key, now)
                for key, (stands, _) in found.items()
                if not guarded(key, stands)
            }
            for key, begun in since.items():
                if now - begun >= GRACE:
                    _, cancel = found[key]
                    guarded(key, cancel)
