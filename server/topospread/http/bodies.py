"""Bodies of requests: bounded, each and together, and unpacked."""

from __future__ import annotations

import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from topospread.errors import CallerGone, InvalidRequest, QueueFull
from topospread.http.responses import GZIP, body_too_large, with_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive

FREE_BYTES: Final = 1 << 16
"""Bytes of each body that do not count: requests of usual size are answered whatever others send.
uvicorn reads as much of a request before the application asks for it.
"""

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class Bodies:
    """The bodies of all requests in flight.

    Args:
        limit: bytes of one, as it comes and unpacked.
        together: how many of the largest fit into memory.
    """

    def __init__(self, limit: int, together: int) -> None:
        self._limit = limit
        self._left = together * limit

    @asynccontextmanager
    async def read(self, receive: Receive, length: bytes) -> AsyncIterator[bytes]:
        """Around the use of a request's body.

        Args:
            receive: ASGI's.
            length: the Content-Length header; empty where there is none.

        Raises:
            TooLarge: it is larger; if it says so beforehand, nothing is read.
            QueueFull: the memory for all of them is spent.
            CallerGone: the connection closed before the end.
        """
        if length.isdigit() and int(length) > self._limit:
            raise body_too_large(self._limit)
        parts: list[bytes] = []
        size = taken = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGone("the caller went away before the request was complete")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > self._limit:
                    raise body_too_large(self._limit)
                more = max(0, size - FREE_BYTES - taken)
                if more > self._left:
                    text = "the requests under way are too large together: try again later"
                    raise QueueFull(text)
                self._left -= more
                taken += more
                if not message.get("more_body", False):
                    break
            if len(parts) > 1:
                parts[:] = [b"".join(parts)]
            yield parts.pop()
        finally:
            # The frames of an error that is raised here live as long as the error.
            parts.clear()
            self._left += taken

    def unpacked(self, body: bytes, encoding: bytes) -> bytes:
        """A body without its Content-Encoding.

        Raises:
            InvalidRequest: another encoding than gzip, or no gzip.
            TooLarge: too much comes out of it.
        """
        encoding = encoding.strip().lower()
        if encoding in (b"", b"identity"):
            return body
        if encoding not in GZIP:
            shown = encoding[:40].decode("ascii", "replace")
            text = f"Content-Encoding {shown!r} is unknown: send gzip, or none"
            raise with_status(415, InvalidRequest(text))
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            plain = unpacker.decompress(body, self._limit + 1)
        except zlib.error as cause:
            text = "the body is no gzip, as its Content-Encoding says"
            raise with_status(400, InvalidRequest(text)) from cause
        if len(plain) > self._limit:
            raise body_too_large(self._limit)
        if not unpacker.eof or unpacker.unused_data:
            text = "the gzip body is incomplete, or something follows its end"
            raise with_status(400, InvalidRequest(text))
        return plain
