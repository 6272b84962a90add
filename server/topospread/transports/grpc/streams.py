"""Open streams of callers who were let in: they end when their callers are known no more."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY: Final = 0.25
"""Seconds between looks."""

GRACE: Final = 1.5
"""Seconds that a stream has to end by itself, saying why, before it is cancelled.

A Watch looks once a second whether its caller is known.
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
            self._open[key] = stands, cancel
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._look, name="open-streams", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._open[key]

    def _look(self) -> None:
        pause = threading.Event()
        since: dict[object, float] = {}
        while True:
            pause.wait(EVERY)
            with self._lock:
                if not self._open:
                    self._looking = False
                    return
                found = dict(self._open)
            now = time.monotonic()
            since = {key: since.get(key, now) for key, (stands, _) in found.items() if not stands()}
            for key, begun in since.items():
                if now - begun >= GRACE:
                    _, cancel = found[key]
                    cancel()
