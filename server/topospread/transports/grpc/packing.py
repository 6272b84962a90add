"""How large a request may be, and requests that came compressed.

gRPC's core would unpack a message as soon as it is received, before anybody has looked at it: a
call of 15 kB takes 15 MiB while it stands in line. So the core hands compressed messages over as
they came (``grpc.per_message_decompression``), and they are unpacked here, one at a time, when the
call is carried out, and no further than the method allows. The core hands neither the flag of a
compressed message nor ``grpc-encoding`` on: the first bytes tell. No request of the API begins as
gzip does (wire type 7 does not exist), nor as deflate does (a varint in field 15), which a test
holds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from topospread.errors import InvalidRequest, LimitExceeded

_FIRST: Final = (b"\x1f", b"\x78")
"""The first byte of gzip (RFC 1952), and of deflate as HTTP has it (RFC 1950)."""

_GZIP: Final = b"\x1f\x8b"
_EITHER: Final = 32 + zlib.MAX_WBITS

_SMALL: Final = frozenset({"PreFilter", "Filter", "Score", "Evaluate", "EvaluateStream"})
"""Methods whose requests are about one pod."""


@dataclass(frozen=True, slots=True)
class RequestBytes:
    """How large requests may be, in bytes, unpacked.

    Attributes:
        most: of any method.
        decision: of those that are about one pod.
    """

    most: int = 16 << 20
    decision: int = 4 << 20

    def of(self, method: str) -> int:
        """The limit of a method, by its name."""
        return min(self.most, self.decision) if method in _SMALL else self.most


def plain(raw: bytes, most: int) -> bytes:
    """A message as it is when it is not compressed.

    Raises:
        LimitExceeded: it has more than ``most`` bytes.
        InvalidRequest: it is compressed and broken.
    """
    if raw[:1] in _FIRST:
        raw = _unpacked(raw, most)
    if len(raw) > most:
        raise _too_large(most)
    return raw


def _unpacked(raw: bytes, most: int) -> bytes:
    gzip = raw.startswith(_GZIP)
    if not gzip and int.from_bytes(raw[:2], "big") % 31:
        # A plain message; or none at all, as who parses it will say.
        return raw
    # gzip ends with the size of what it holds, so that an honest bomb costs nothing.
    if gzip and int.from_bytes(raw[-4:], "little") > most:
        raise _too_large(most)
    unpacker = zlib.decompressobj(_EITHER)
    try:
        content = unpacker.decompress(raw, most + 1)
    except zlib.error:
        raise InvalidRequest("the request is compressed, and broken") from None
    if len(content) > most:
        raise _too_large(most)
    if not unpacker.eof:
        raise InvalidRequest("the request is compressed, and cut short")
    return content


def _too_large(most: int) -> LimitExceeded:
    return LimitExceeded(f"the request is larger than {most} bytes")
