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
from typing import Final, NamedTuple

from topospread.errors import InvalidRequest, TooLarge

_FIRST: Final = (b"\x1f", b"\x78")
"""The first byte of gzip (RFC 1952), and of deflate as HTTP has it (RFC 1950)."""

_GZIP: Final = b"\x1f\x8b"
_EITHER: Final = 32 + zlib.MAX_WBITS

_SMALL: Final = frozenset(
    {"PreFilter", "Filter", "Score", "EvaluatePod", "StreamEvaluatePods", "ExplainPod"}
)
"""Methods whose requests are questions about one pod."""


_HEAD: Final = 1024
"""Bytes of a compressed message that are looked at to see how it begins."""


class Limit(NamedTuple):
    """How large a request may be.

    Attributes:
        most: bytes, unpacked.
        setting: that says so; empty where none does.
    """

    most: int
    setting: str = ""


@dataclass(frozen=True, slots=True)
class RequestBytes:
    """How large requests may be, in bytes, unpacked, and answers.

    Attributes:
        most: a request of any method.
        decision: of those that are about one pod.
        answer: of any method.
        setting: that says how large a request of any method may be; empty where none does.
    """

    most: int = 16 << 20
    decision: int = 4 << 20
    answer: int = 64 << 20
    setting: str = "--max-request-bytes"

    def check_answer(self, payload: bytes) -> None:
        """See that an answer may go out; gRPC's core would not say why it may not.

        Raises:
            TooLarge: it may not.
        """
        if len(payload) > self.answer:
            text = f"the answer is larger than {self.answer} bytes (--max-response-bytes)"
            raise TooLarge(f"{text}: ask for less", "--max-response-bytes", self.answer)

    def of(self, method: str) -> Limit:
        """The limit of a method, by its name."""
        if method in _SMALL and self.decision < self.most:
            return Limit(self.decision, "--max-decision-bytes")
        return Limit(self.most, self.setting)


def plain(raw: bytes, limit: Limit) -> bytes:
    """A message as it is when it is not compressed.

    Raises:
        TooLarge: it has more bytes.
        InvalidRequest: it is compressed and broken.
    """
    if _is_packed(raw):
        raw = _unpacked(raw, limit)
    if len(raw) > limit.most:
        raise too_large(limit)
    return raw


def beginning(raw: bytes, size: int) -> bytes:
    """The first bytes of a message, fewer where it is compressed and they cannot be read."""
    if not _is_packed(raw):
        return raw[:size]
    try:
        return zlib.decompressobj(_EITHER).decompress(raw[:_HEAD], size)
    except zlib.error:
        return b""


def _is_packed(raw: bytes) -> bool:
    """Whether it begins as something compressed; if not, it is plain, or as who parses it says."""
    if raw[:1] not in _FIRST:
        return False
    return raw.startswith(_GZIP) or int.from_bytes(raw[:2], "big") % 31 == 0


def _unpacked(raw: bytes, limit: Limit) -> bytes:
    # gzip ends with the size of what it holds, so that an honest bomb costs nothing.
    if raw.startswith(_GZIP) and int.from_bytes(raw[-4:], "little") > limit.most:
        raise too_large(limit)
    unpacker = zlib.decompressobj(_EITHER)
    try:
        content = unpacker.decompress(raw, limit.most + 1)
    except zlib.error:
        raise InvalidRequest("the request is compressed, and broken") from None
    if len(content) > limit.most:
        raise too_large(limit)
    if not unpacker.eof:
        raise InvalidRequest("the request is compressed, and cut short")
    return content


def too_large(limit: Limit) -> TooLarge:
    """What is said of a request that is larger."""
    most, setting = limit
    by = f" ({setting})" if setting else ""
    return TooLarge(f"the request is larger than {most} bytes{by}", setting or "request", most)
