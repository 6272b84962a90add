"""Runs one server in this process until it is told to stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final, Protocol

from topospread.app.server import Server
from topospread.app.told import Told
from topospread.app.trimming import give_memory_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from topospread.config.settings import ServerSettings

LOG: Final = logging.getLogger(__name__)

SWITCH_INTERVAL: Final = 0.001
"""Seconds after which a thread that computes lets another one go on: a short decision beside long
computations waits for so long each time it needs the interpreter, a few times."""


class Serving(Protocol):
    """What may be said of whatever serves, be it one process or several."""

    @property
    def settings(self) -> ServerSettings:
        """What was configured."""
        ...

    @property
    def version(self) -> str:
        """Of the server."""
        ...

    @property
    def address(self) -> str:
        """host:port of gRPC, with the port that it has now."""
        ...

    @property
    def http_address(self) -> str:
        """host:port of metrics and health; empty when that is off."""
        ...

    @property
    def extender_address(self) -> str:
        """host:port of the extender where it has one of its own; else empty."""
        ...

    @property
    def expander_address(self) -> str:
        """host:port of the expander where it has one of its own; else empty."""
        ...


class _ToldEarly(BaseException):
    """A signal came while clusters were loaded: there are no calls to wait for."""


class Process:
    """One server and the signals that end it: one ends it politely, a second one at once.

    Args:
        settings: what was configured.
        ends: the signals. SIGHUP reads the configuration again.
        reuse_port: share gRPC's port with other processes.
    """

    def __init__(
        self,
        settings: ServerSettings,
        ends: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
        *,
        reuse_port: bool = False,
    ) -> None:
        self.server: Server | None = None
        self._settings = settings
        self._ends = ends
        self._reuse_port = reuse_port
        self._told = Told()
        self._loading = False

    def run(self, announce: Callable[[Server], None]) -> None:
        """Serve until told to stop; to be called in the main thread.

        Args:
            announce: told of the server once it is ready.

        Raises:
            ConfigError: something in the settings cannot be used.
            StoreUnavailable: the store is out of reach.
        """
        for number in self._ends:
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._reread)
        # A supervisor holds them back until somebody listens to them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*self._ends, signal.SIGHUP))
        if self._told:
            return
        give_memory_back()
        sys.setswitchinterval(SWITCH_INTERVAL)
        server = self.server = Server(self._settings, reuse_port=self._reuse_port)
        try:
            self._start(server)
            announce(server)
            self._told.wait()
            LOG.info("stopping: running calls may take %g s", self._settings.grace)
        except _ToldEarly:
            LOG.info("stopping: clusters were still being loaded")
        finally:
            server.stop()

    def _start(self, server: Server) -> None:
        self._loading = True
        try:
            if self._told:
                raise _ToldEarly
            server.start()
        finally:
            self._loading = False

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        server, again = self.server, bool(self._told)
        self._told.say()
        if self._loading:
            raise _ToldEarly
        if again and server is not None:
            threading.Thread(target=server.hurry, name="hurry", daemon=True).start()

    def _reread(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.server is not None:
            # Not in the signal handler: it may interrupt a thread that holds the lock.
            threading.Thread(target=self.server.reload, name="reload", daemon=True).start()
