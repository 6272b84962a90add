"""Bodies of requests and answers: bounded, and packed with gzip where the other side likes it."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Final

from topospread.errors import CallerGone
from topospread.transports.http.failures import BAD, Refused

if TYPE_CHECKING:
    from starlette.types import Receive

WORTH_PACKING: Final = 1400
"""Bytes that fit one packet of a usual network: packing these gains nothing."""

LEVEL: Final = 1
"""Of compression: names of nodes are so alike that more effort finds little more."""

GZIP: Final = (b"gzip", b"x-gzip")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


async def read_body(receive: Receive, length: bytes, limit: int) -> bytes:
    """A request's body.

    Args:
        receive: ASGI's.
        length: the Content-Length header; empty where there is none.
        limit: bytes, at most.

    Raises:
        Refused: it is larger; if it says so beforehand, nothing is read.
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
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    """A body without its Content-Encoding.

    Raises:
        Refused: another encoding than gzip, no gzip, or more than ``limit`` bytes come out of it.
    """
    encoding = encoding.strip().lower()
    if encoding in (b"", b"identity"):
        return body
    if encoding not in GZIP:
        shown = encoding[:40].decode("ascii", "replace")
        raise Refused(415, BAD, f"Content-Encoding {shown!r} is unknown: send gzip, or none")
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error as cause:
        raise Refused(400, BAD, "the body is no gzip, as its Content-Encoding says") from cause
    if len(plain) > limit:
        raise too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise Refused(400, BAD, "the gzip body is incomplete, or something follows its end")
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


def too_large(limit: int) -> Refused:
    """What is said of a body beyond the limit."""
    return Refused(
        413,
        "RESOURCE_EXHAUSTED",
        f"the request is larger than {limit} bytes (--http-max-body-bytes)",
    )


def _takes_gzip(accepted: bytes) -> bool:
    for each in accepted.lower().split(b","):
        name, _, quality = each.partition(b";")
        if name.strip() in (*GZIP, b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
