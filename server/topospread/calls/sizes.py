"""Limits on the sizes of messages, and their decompression.

gRPC's core would decompress a message as soon as it is received, before any check: a call of 15 kB
takes 15 MiB while it is queued. So the core hands compressed messages over as they came
(``grpc.per_message_decompression``), and they are decompressed here, one at a time, when the call
is carried out, and no further than the method allows. The core hands neither the flag of a
compressed message nor ``grpc-encoding`` on: the first bytes decide. No request of the API begins as
gzip does (wire type 7 does not exist), nor as deflate does (a varint in field 15), which a test
holds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from topospread.errors import InvalidRequest, TooLarge

FIRST_PACKED: Final = (b"\x1f", b"\x78")
"""The first byte of gzip (RFC 1952), and of deflate as HTTP has it (RFC 1950)."""

_GZIP: Final = b"\x1f\x8b"
_EITHER: Final = 32 + zlib.MAX_WBITS

_SMALL: Final = frozenset({"PreFilter", "Filter", "Score", "EvaluatePod", "ExplainPod"})
"""Methods whose requests are about one pod."""


class SizeLimit(NamedTuple):
    """The limit on the bytes of a decompressed request, and the setting of it; empty: none."""

    max_bytes: int
    setting: str = ""

    def error(self) -> TooLarge:
        """The error of a request that is larger."""
        by = f" ({self.setting})" if self.setting else ""
        text = f"the request is larger than {self.max_bytes} bytes{by}"
        return TooLarge(text, self.setting or "request", self.max_bytes)


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on the sizes of decompressed requests, and of responses, in bytes.

    Attributes:
        request: of any method.
        decision: of the methods that are about one pod.
        response: of any method: room for a page of 5,000 objects of 10 KiB.
        setting: that configures the limit of any method; empty where none does.
    """

    request: int = 16 << 20
    decision: int = 4 << 20
    response: int = 64 << 20
    setting: str = "--max-request-bytes"

    def check_response(self, payload: bytes) -> None:
        """Raise TooLarge for a response above the limit; gRPC's core would not say why."""
        if len(payload) > self.response:
            text = f"the answer is larger than {self.response} bytes: ask for less"
            raise TooLarge(text, "response", self.response)

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
        raise limit.error()
    return raw


def _is_compressed(raw: bytes) -> bool:
    if raw[:1] not in FIRST_PACKED:
        return False
    return raw.startswith(_GZIP) or int.from_bytes(raw[:2], "big") % 31 == 0


def _inflated(raw: bytes, limit: SizeLimit) -> bytes:
    # gzip ends with the size of what it holds, so that an honest bomb costs nothing.
    if raw.startswith(_GZIP) and int.from_bytes(raw[-4:], "little") > limit.max_bytes:
        raise limit.error()
    inflater = zlib.decompressobj(_EITHER)
    try:
        content = inflater.decompress(raw, limit.max_bytes + 1)
    except zlib.error:
        raise InvalidRequest("the request is compressed, and broken") from None
    if len(content) > limit.max_bytes:
        raise limit.error()
    if not inflater.eof:
        raise InvalidRequest("the request is compressed, and cut short")
    return content
