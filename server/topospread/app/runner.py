"""Runs one server in this process until a signal stops it."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import threading
import time
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

ARENAS: Final = 2

LARGE_BLOCK: Final = 1 << 20
"""Bytes of a block that is taken from the system by itself: a message of a size that matters."""

TRIM_INTERVAL: Final = 5.0
"""Seconds between two checks of how much memory is free."""

TRIM_THRESHOLD: Final = 16 << 20
"""Bytes more that are free than after the last time, when arenas are trimmed."""

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


class _StoppedDuringStartup(BaseException):
    """A signal came while clusters were loaded: there are no calls to wait for."""


class ServerRunner:
    """One server and its signals: one stops it gracefully, a second one at once, SIGHUP reloads.

    Args:
        settings: what was configured.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.server: Server | None = None
        self._settings = settings
        self._stop = StopEvent()
        self._loading = False

    def run(self, announce: Callable[[Server], None]) -> None:
        """Serve until a signal; to be called in the main thread.

        Args:
            announce: called with the server once it is ready.

        Raises:
            ConfigError: something in the settings cannot be used.
            StoreUnavailable: the store is out of reach.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGHUP, self._on_reload_signal)
        if self._stop:
            return
        start_trimming()
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


def start_trimming() -> None:
    """Set up glibc's allocator, and return free memory to the system from now on.

    With another C library nothing happens. The thread ends with the process.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK)
        threading.Thread(target=_trim, args=(libc,), name="trimming", daemon=True).start()


def _trim(libc: ctypes.CDLL) -> None:
    libc.mallinfo2.restype = _MallocInfo
    kept = 0
    while True:
        time.sleep(TRIM_INTERVAL)
        free: int = libc.mallinfo2().fordblks
        if free > kept + TRIM_THRESHOLD:
            libc.malloc_trim(0)
            # What lies between blocks in use counts as free, also when its pages were given back.
            free = libc.mallinfo2().fordblks
            kept = free
        kept = min(kept, free)


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2``; fordblks is what is free in all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    needed = ("mallopt", "malloc_trim", "mallinfo2")
    return libc if all(hasattr(libc, name) for name in needed) else None
