"""Runs one server in this process until a signal stops it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from topospread.app.server import Server
from topospread.app.stop_event import StopEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from topospread.config.settings import ServerSettings


LOG: Final = logging.getLogger(__name__)

SWITCH_INTERVAL: Final = 0.001
"""Seconds after which a thread that computes lets another one go on: a short decision beside long
computations waits for so long each time it needs the interpreter, a few times."""


class _StoppedDuringStartup(BaseException):
    """A signal came while clusters were loaded: there are no calls to wait for."""


class ServerRunner:
    """One server and its signals: one stops it gracefully, a second one at once, SIGHUP reloads."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server: Server | None = None
        self._settings = settings
        self._stop = StopEvent()
        self._loading = False

    def run(self, announce: Callable[[Server], None]) -> None:
        """Serve until a signal; to be called in the main thread.

        Raises:
            ConfigError: something in the settings cannot be used.
            StoreUnavailable: the store is out of reach.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGHUP, self._on_reload_signal)
        if self._stop:
            return
        sys.setswitchinterval(SWITCH_INTERVAL)
        server = self.server = Server(self._settings)
        try:
            self._start(server)
            announce(server)
            self._stop.wait()
            LOG.info("stopping: running calls may take %g s", self._settings.shutdown_grace_period)
        except _StoppedDuringStartup:
            LOG.info("stopping: clusters were still being loaded")
        finally:
            server.stop()

    def _start(self, server: Server) -> None:
        self._loading = True
        try:
            if self._stop:
                raise _StoppedDuringStartup
            server.start()
        finally:
            self._loading = False

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        server, again = self.server, bool(self._stop)
        self._stop.set()
        if self._loading:
            raise _StoppedDuringStartup
        if again and server is not None:
            threading.Thread(target=server.force_stop, name="force-stop", daemon=True).start()

    def _on_reload_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.server is not None:
            # Not in the signal handler: it may interrupt a thread that holds the lock.
            threading.Thread(target=self.server.reload, name="reload", daemon=True).start()
