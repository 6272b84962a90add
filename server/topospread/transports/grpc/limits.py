"""Limits on memory: sizes of messages, decompression, received objects, pending responses.

gRPC's core would decompress a message as soon as it is received, before any check: a call of 15 kB
takes 15 MiB while it is queued. So the core hands compressed messages over as they came
(``grpc.per_message_decompression``), and they are decompressed here, one at a time, when the call
is carried out, and no further than the method allows. The core hands neither the flag of a
compressed message nor ``grpc-encoding`` on: the first bytes decide. No request of the API begins as
gzip does (wire type 7 does not exist), nor as deflate does (a varint in field 15), which a test
holds.
"""

from __future__ import annotations

import threading
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.errors import InvalidRequest, LimitExceeded, QueueFull, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from topospread.transports.grpc.calls import Context


_FIRST: Final = (b"\x1f", b"\x78")
"""The first byte of gzip (RFC 1952), and of deflate as HTTP has it (RFC 1950)."""

_GZIP: Final = b"\x1f\x8b"
_EITHER: Final = 32 + zlib.MAX_WBITS

_SMALL: Final = frozenset(
    {"PreFilter", "Filter", "Score", "EvaluatePod", "StreamEvaluatePods", "ExplainPod"}
)
"""Methods whose requests are about one pod."""

_HEAD: Final = 1024
"""Bytes of a compressed message that are read for its prefix."""

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


class SizeLimit(NamedTuple):
    """The limit on a request's size.

    Attributes:
        max_bytes: of the decompressed request.
        setting: that configures it; empty where none does.
    """

    max_bytes: int
    setting: str = ""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on the sizes of decompressed requests, and of responses, in bytes.

    Attributes:
        request: of any method.
        decision: of the methods that are about one pod.
        response: of any method.
        setting: that configures the limit of any method; empty where none does.
    """

    request: int = 16 << 20
    decision: int = 4 << 20
    response: int = 64 << 20
    setting: str = "--max-request-bytes"

    def check_response(self, payload: bytes) -> None:
        """Check a response's size; gRPC's core would not say why it refuses one.

        Raises:
            TooLarge: it is above the limit.
        """
        if len(payload) > self.response:
            text = f"the answer is larger than {self.response} bytes (--max-response-bytes)"
            raise TooLarge(f"{text}: ask for less", "--max-response-bytes", self.response)

    def of(self, method: str) -> SizeLimit:
        """The limit of a method, by its name."""
        if method in _SMALL and self.decision < self.request:
            return SizeLimit(self.decision, "--max-decision-bytes")
        return SizeLimit(self.request, self.setting)


def decompressed(raw: bytes, limit: SizeLimit) -> bytes:
    """Decompress a message, if it is compressed.

    Raises:
        TooLarge: it has more bytes than the limit.
        InvalidRequest: it is compressed and broken.
    """
    if _is_compressed(raw):
        raw = _inflated(raw, limit)
    if len(raw) > limit.max_bytes:
        raise too_large(limit)
    return raw


def decompressed_prefix(raw: bytes, size: int) -> bytes:
    """The first bytes of a message; fewer, or none, where it is compressed and broken."""
    if not _is_compressed(raw):
        return raw[:size]
    try:
        return zlib.decompressobj(_EITHER).decompress(raw[:_HEAD], size)
    except zlib.error:
        return b""


def _is_compressed(raw: bytes) -> bool:
    """Whether a message begins as gzip or deflate."""
    if raw[:1] not in _FIRST:
        return False
    return raw.startswith(_GZIP) or int.from_bytes(raw[:2], "big") % 31 == 0


def _inflated(raw: bytes, limit: SizeLimit) -> bytes:
    # gzip ends with the size of what it holds, so that an honest bomb costs nothing.
    if raw.startswith(_GZIP) and int.from_bytes(raw[-4:], "little") > limit.max_bytes:
        raise too_large(limit)
    inflater = zlib.decompressobj(_EITHER)
    try:
        content = inflater.decompress(raw, limit.max_bytes + 1)
    except zlib.error:
        raise InvalidRequest("the request is compressed, and broken") from None
    if len(content) > limit.max_bytes:
        raise too_large(limit)
    if not inflater.eof:
        raise InvalidRequest("the request is compressed, and cut short")
    return content


def too_large(limit: tuple[int, str]) -> TooLarge:
    """The error of a request that is larger than its limit."""
    max_bytes, setting = limit
    by = f" ({setting})" if setting else ""
    return TooLarge(
        f"the request is larger than {max_bytes} bytes{by}", setting or "request", max_bytes
    )


class MemoryBudget:
    """The bytes that all calls of a process may keep of what they have received.

    Args:
        max_bytes: the budget.
        setting: that configures it, for errors.
    """

    def __init__(self, max_bytes: int, setting: str) -> None:
        self._max_bytes = max_bytes
        self._setting = setting
        self._lock = threading.Lock()
        self._taken = 0

    @contextmanager
    def share(self) -> Generator[Callable[[int], None]]:
        """One call's part, which is given back at the end of the context.

        It is a function that takes bytes, before they are kept. It raises LimitExceeded when there
        are not as many left.
        """
        own = 0

        def take(size: int) -> None:
            nonlocal own
            with self._lock:
                if self._taken + size > self._max_bytes:
                    raise self._refusal(own)
                self._taken += size
                own += size

        try:
            yield take
        finally:
            with self._lock:
                self._taken -= own

    def _refusal(self, own: int) -> LimitExceeded:
        if own == self._taken:
            text = f"objects: more than {self._max_bytes} bytes in one call ({self._setting})"
            return TooLarge(text, self._setting, self._max_bytes)
        return QueueFull(
            f"objects: more than {self._max_bytes} bytes in calls at once ({self._setting}):"
            " try again later"
        )


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
        """Count a unary response until its call is over.

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
            if peer or len(self._pending) >= self._max_calls:
                self._check(peer, size)
            if peer:
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
