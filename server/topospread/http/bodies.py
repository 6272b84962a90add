"""Bodies of requests and responses: bounded, and compressed with gzip where the peer accepts it."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Final, Self

from topospread.errors import CallerGone, InvalidRequest, QueueFull, TooLarge
from topospread.http.failures import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

MIN_COMPRESSED: Final = 1400
"""Bytes that fit one packet of a usual network: compressing these gains nothing."""

LEVEL: Final = 1
"""Of compression: names of nodes are so alike that more effort finds little more."""

GZIP: Final = (b"gzip", b"x-gzip")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS

FREE_BYTES: Final = 1 << 16
"""Bytes of each body that do not count: requests of usual size are answered whatever others send.
uvicorn reads as much of a request before the application asks for it.
"""


class BodyBudget:
    """The memory for the bodies of all requests in flight.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> None:
        """Reserve memory for received bytes.

        Raises:
            QueueFull: the budget is spent.
        """
        if size > self._left:
            text = "the requests under way are too large together: try again later"
            raise QueueFull(text)
        self._left -= size

    def release(self, size: int) -> None:
        """Release memory."""
        self._left += size


class Body:
    """The body of one request; a context manager that releases its memory.

    Attributes:
        content: the whole body, once it is read.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self.content = b""
        self._budget = budget
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.content = b""
        self._budget.release(self._taken)
        self._taken = 0

    async def read(self, receive: Receive, length: bytes, limit: int) -> None:
        """Read it; see :func:`read_body`."""
        self.content = await read_body(receive, length, limit, self._received)

    def _received(self, size: int) -> None:
        more = size - FREE_BYTES - self._taken
        if more > 0:
            self._budget.take(more)
            self._taken += more


async def read_body(
    receive: Receive, length: bytes, limit: int, on_received: Callable[[int], None] = lambda _: None
) -> bytes:
    """A request's body.

    Args:
        receive: ASGI's.
        length: the Content-Length header; empty where there is none.
        limit: bytes, at most.
        on_received: called with the number of bytes so far, for each piece; may raise.

    Raises:
        TooLarge: it is larger; if it says so beforehand, nothing is read.
        CallerGone: the connection closed before the end.
    """
    if length.isdigit() and int(length) > limit:
        raise body_too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone("the caller went away before the request was complete")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise body_too_large(limit)
        on_received(size)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def decompressed(body: bytes, encoding: bytes, limit: int) -> bytes:
    """A body without its Content-Encoding.

    Raises:
        HttpError: another encoding than gzip, or no gzip.
        TooLarge: more than ``limit`` bytes come out of it.
    """
    encoding = encoding.strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in GZIP:
        shown = encoding[:40].decode("ascii", "replace")
        text = f"Content-Encoding {shown!r} is unknown: send gzip, or none"
        raise HttpError(415, InvalidRequest(text))
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error as cause:
        raise HttpError(
            400, InvalidRequest("the body is no gzip, as its Content-Encoding says")
        ) from cause
    if len(plain) > limit:
        raise body_too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        text = "the gzip body is incomplete, or something follows its end"
        raise HttpError(400, InvalidRequest(text))
    return plain


def compressed(body: bytes, accepted: bytes) -> tuple[bytes, bool]:
    """A response's body, compressed if that pays, and whether it is.

    Args:
        body: the plain one.
        accepted: the request's Accept-Encoding.
    """
    if len(body) <= MIN_COMPRESSED or not _accepts_gzip(accepted):
        return body, False
    return gzip.compress(body, LEVEL, mtime=0), True


def body_too_large(limit: int) -> TooLarge:
    """The error for a body beyond the limit."""
    setting = "--http-max-body-bytes"
    return TooLarge(f"the request is larger than {limit} bytes ({setting})", setting, limit)


def _accepts_gzip(accepted: bytes) -> bool:
    for each in accepted.lower().split(b","):
        name, _, quality = each.partition(b";")
        if name.strip() in (*GZIP, b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
