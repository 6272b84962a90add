"""Bodies of requests and answers: bounded, and packed with gzip where the other side likes it."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Final, Self

from topospread.errors import CallerGone, InvalidRequest, QueueFull, TooLarge
from topospread.transports.http.failures import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

WORTH_PACKING: Final = 1400
"""Bytes that fit one packet of a usual network: packing these gains nothing."""

LEVEL: Final = 1
"""Of compression: names of nodes are so alike that more effort finds little more."""

GZIP: Final = (b"gzip", b"x-gzip")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class Room:
    """For the bodies of requests under way, all together.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Some bytes more have come.

        Raises:
            QueueFull: there is no room for them.
        """
        if size > self._left:
            text = "the requests under way are too large together: try again later"
            raise QueueFull(text)
        self._left -= size

    def give_back(self, size: int) -> None:
        """Some bytes are done with."""
        self._left += size


FREE: Final = 1 << 16
"""Bytes of each body that count for nothing: questions of usual size are answered whatever others
send. The server below reads as much of a request before anybody asks for it.
"""


class Body:
    """What is read of one request's body; a context manager that ends with it.

    Attributes:
        content: all of it, once it is read.
    """

    def __init__(self, room: Room) -> None:
        self.content = b""
        self._room = room
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.content = b""
        self._room.give_back(self._taken)
        self._taken = 0

    async def read(self, receive: Receive, length: bytes, limit: int) -> None:
        """Read it; see :func:`read_body`."""
        self.content = await read_body(receive, length, limit, self._came)

    def _came(self, size: int) -> None:
        more = size - FREE - self._taken
        if more > 0:
            self._room.take(more)
            self._taken += more


async def read_body(
    receive: Receive, length: bytes, limit: int, came: Callable[[int], None] = lambda _: None
) -> bytes:
    """A request's body.

    Args:
        receive: ASGI's.
        length: the Content-Length header; empty where there is none.
        limit: bytes, at most.
        came: told how many bytes there are by now, with each piece; may refuse them.

    Raises:
        TooLarge: it is larger; if it says so beforehand, nothing is read.
        CallerGone: the rest did not come.
    """
    if length.isdigit() and int(length) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone("the caller went away before the request was complete")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        came(size)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    """A body without its Content-Encoding.

    Raises:
        Refused: another encoding than gzip, or no gzip.
        TooLarge: more than ``limit`` bytes come out of it.
    """
    encoding = encoding.strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in GZIP:
        shown = encoding[:40].decode("ascii", "replace")
        text = f"Content-Encoding {shown!r} is unknown: send gzip, or none"
        raise Refused(415, InvalidRequest(text))
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error as cause:
        raise Refused(
            400, InvalidRequest("the body is no gzip, as its Content-Encoding says")
        ) from cause
    if len(plain) > limit:
        raise too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        text = "the gzip body is incomplete, or something follows its end"
        raise Refused(400, InvalidRequest(text))
    return plain


def packed(answer: bytes, accepted: bytes) -> tuple[bytes, bool]:
    """An answer as it goes out, and whether it is packed.

    Args:
        answer: the plain one.
        accepted: the request's Accept-Encoding.
    """
    if len(answer) <= WORTH_PACKING or not _takes_gzip(accepted):
        return answer, False
    return gzip.compress(answer, LEVEL, mtime=0), True


def too_large(limit: int) -> TooLarge:
    """What is said of a body beyond the limit."""
    setting = "--http-max-body-bytes"
    return TooLarge(f"the request is larger than {limit} bytes ({setting})", setting, limit)


def _takes_gzip(accepted: bytes) -> bool:
    for each in accepted.lower().split(b","):
        name, _, quality = each.partition(b";")
        if name.strip() in (*GZIP, b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
