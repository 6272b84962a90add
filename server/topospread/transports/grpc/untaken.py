"""Answers that were handed to gRPC and that their callers have not taken yet.

gRPC keeps an answer until the caller's windows have room for it, which may be never. So the bytes
of such answers are bounded, for one connection and in all, and an answer that is not taken in time
ends its call.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.transports.grpc.context import Context

SECONDS: Final = 30.0
"""In which an answer must have been taken, as over HTTP."""

TICK: Final = 1.0
"""Seconds between two looks at how long answers have waited."""

LARGE: Final = 1 << 16
"""Bytes from which an answer counts for its connection. Smaller ones are bounded by the calls that
a connection may have.
"""

CALLS: Final = 8192
"""Calls whose answers wait, however small these are."""


class Untaken:
    """Bounds them; see :meth:`admit`, :meth:`note` and :meth:`sending`.

    Args:
        most: bytes in all.
        each: bytes for one connection; an answer alone may be larger.
        calls: whose answers wait.
    """

    def __init__(self, most: int = 128 << 20, each: int = 64 << 20, calls: int = CALLS) -> None:
        self._most = most
        self._each = each
        self._calls = calls
        self._lock = threading.Lock()
        self._bytes = 0
        # The oldest first.
        self._waiting: dict[Context, tuple[float, int, str]] = {}
        self._connections: dict[str, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._mind, name="untaken", daemon=True)

    @property
    def bytes(self) -> int:
        """Of all answers that wait."""
        return self._bytes

    def start(self) -> None:
        """Begin to end calls whose answers are not taken."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def admit(self, context: Context, expected: int = 1) -> None:
        """See whether there is room, before any work is done for a call.

        Args:
            context: of the call.
            expected: bytes of its answer, as far as that is known.

        Raises:
            LimitExceeded: the call's connection, or all together, have answers enough to take.
        """
        if self._bytes >= self._each or len(self._waiting) >= self._calls:
            with self._lock:
                self._check(context.peer(), expected)

    def note(self, context: Context, size: int) -> None:
        """An answer goes out, which ends the call.

        Args:
            context: of the call.
            size: of the answer, in bytes.

        Raises:
            LimitExceeded: there is no room for it.
        """
        self._enter(context, size)
        if not context.add_callback(lambda: self._leave(context)):
            self._leave(context)

    @contextmanager
    def sending(self, context: Context, size: int) -> Iterator[None]:
        """Around the sending of one answer of a stream.

        Raises:
            LimitExceeded: there is no room for it.
        """
        self._enter(context, size)
        try:
            yield
        finally:
            self._leave(context)

    def _enter(self, context: Context, size: int) -> None:
        peer = context.peer() if size >= LARGE else ""
        with self._lock:
            if peer or len(self._waiting) >= self._calls:
                self._check(peer, size)
            if peer:
                self._connections[peer] = self._connections.get(peer, 0) + size
            self._bytes += size
            self._waiting[context] = time.monotonic(), size, peer

    def _leave(self, context: Context) -> None:
        with self._lock:
            _, size, peer = self._waiting.pop(context, (0.0, 0, ""))
            self._bytes -= size
            if peer:
                left = self._connections.get(peer, 0) - size
                self._connections[peer] = left
                if left <= 0:
                    del self._connections[peer]

    def _check(self, peer: str, size: int) -> None:
        """Under the lock."""
        held = self._connections.get(peer, 0)
        if held and held + size > self._each:
            raise QueueFull(
                f"answers of {held} bytes wait to be taken on this connection, at most {self._each}"
            )
        if self._bytes + size > self._most or len(self._waiting) >= self._calls:
            raise QueueFull("too many answers wait to be taken: try again later")

    def _mind(self) -> None:
        while not self._closing.wait(TICK):
            self.end_late()

    def end_late(self, seconds: float = SECONDS) -> None:
        """End the calls whose answers have waited for so long."""
        since = time.monotonic() - seconds
        with self._lock:
            late = []
            for context, (began, _, _) in self._waiting.items():
                if began > since:
                    break
                late.append(context)
        for context in late:
            with suppress(Exception):
                context.cancel()
