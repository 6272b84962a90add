"""A bound on the responses that clients have not taken yet."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.transports.grpc.transport import Context

SEND_TIMEOUT: Final = 30.0
"""Seconds in which a client must take a response, as over HTTP."""

CHECK_SECONDS: Final = 1.0
"""Seconds between two checks for expired responses."""

LARGE_RESPONSE: Final = 1 << 16
"""Bytes from which a response counts for its connection. Smaller ones are bounded by the calls that
a connection may have.
"""

MAX_PENDING_CALLS: Final = 8192
"""Calls whose responses are pending, however small these are."""


class PendingResponses:
    """The responses that were handed to gRPC and that their clients have not taken yet.

    gRPC keeps a response until the client's windows have room for it, which may be never. So the
    bytes of such responses are bounded, for one connection and in all, and a response that is not
    taken in time ends its call.

    Args:
        max_bytes: in all.
        connection_bytes: for one connection; a response alone may be larger.
        max_calls: calls whose responses are pending.
    """

    def __init__(
        self,
        max_bytes: int = 128 << 20,
        connection_bytes: int = 64 << 20,
        max_calls: int = MAX_PENDING_CALLS,
    ) -> None:
        self._max_bytes = max_bytes
        self._connection_bytes = connection_bytes
        self._max_calls = max_calls
        self._lock = threading.Lock()
        self._bytes = 0
        # The oldest first.
        self._pending: dict[Context, tuple[float, int, str]] = {}
        self._connections: dict[str, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pending-responses", daemon=True)

    @property
    def bytes(self) -> int:
        """The bytes of all pending responses."""
        return self._bytes

    def start(self) -> None:
        """Begin to end calls whose responses are not taken."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def admit(self, context: Context, expected: int = 1) -> None:
        """Check that there is room for a response, before any work is done for a call.

        Args:
            context: of the call.
            expected: bytes of its response, as far as they are known.

        Raises:
            LimitExceeded: too much is pending for the call's connection, or in all.
        """
        if self._bytes >= self._connection_bytes or len(self._pending) >= self._max_calls:
            with self._lock:
                self._check(context.peer(), expected)

    def track(self, context: Context, size: int) -> None:
        """Count a response until its call is over.

        A small one is not refused any more: what it is the answer to is done, and :meth:`admit` has
        bounded the calls.

        Args:
            context: of the call.
            size: of the response, in bytes.

        Raises:
            LimitExceeded: there is no room for it.
        """
        self._enter(context, size)
        if not context.add_callback(lambda: self._leave(context)):
            self._leave(context)

    @contextmanager
    def sending(self, context: Context, size: int) -> Iterator[None]:
        """Around the sending of one response of a stream.

        Raises:
            LimitExceeded: there is no room for it.
        """
        self._enter(context, size)
        try:
            yield
        finally:
            self._leave(context)

    def _enter(self, context: Context, size: int) -> None:
        peer = context.peer() if size >= LARGE_RESPONSE else ""
        with self._lock:
            if peer:
                self._check(peer, size)
                self._connections[peer] = self._connections.get(peer, 0) + size
            self._bytes += size
            self._pending[context] = time.monotonic(), size, peer

    def _leave(self, context: Context) -> None:
        with self._lock:
            _, size, peer = self._pending.pop(context, (0.0, 0, ""))
            self._bytes -= size
            if peer:
                left = self._connections.get(peer, 0) - size
                self._connections[peer] = left
                if left <= 0:
                    del self._connections[peer]

    def _check(self, peer: str, size: int) -> None:
        """Under the lock."""
        held = self._connections.get(peer, 0)
        if held and held + size > self._connection_bytes:
            raise QueueFull(
                f"answers of {held} bytes wait to be taken on this connection,"
                f" at most {self._connection_bytes}"
            )
        if self._bytes + size > self._max_bytes or len(self._pending) >= self._max_calls:
            raise QueueFull("too many answers wait to be taken: try again later")

    def _watch(self) -> None:
        while not self._closing.wait(CHECK_SECONDS):
            self.cancel_expired()

    def cancel_expired(self, seconds: float = SEND_TIMEOUT) -> None:
        """Cancel the calls whose responses have been pending for so long."""
        since = time.monotonic() - seconds
        with self._lock:
            expired = []
            for context, (began, _, _) in self._pending.items():
                if began > since:
                    break
                expired.append(context)
        for context in expired:
            with suppress(Exception):
                context.cancel()
