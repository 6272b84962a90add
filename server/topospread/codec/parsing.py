"""Bytes to messages, with our own errors."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from topospread.codec.bounds import check_repeats
from topospread.errors import CorruptValue, InvalidRequest

_M = TypeVar("_M", bound=Message)

LARGE: Final = 64 << 10
"""Bytes from which also those fields are counted that a frame passes over."""


def request(
    message: type[_M],
    sent: bytes,
    known_as: type[Message] | None = None,
    *,
    frame: type[Message] | None = None,
) -> _M:
    """A message that a caller sent.

    Args:
        message: how to read it.
        sent: the bytes.
        known_as: what callers know it as, where it is read as a frame.
        frame: it was read as this frame before, so that large bytes were looked at.

    Raises:
        InvalidRequest: the bytes are no such message, hold text that is not UTF-8, or repeat a
            field more often than its limit.
    """
    # What a frame passes over costs next to nothing, up to a size that no real object has; and
    # what it keeps as bytes is counted when they are parsed.
    if len(sent) > LARGE:
        if frame is None:
            check_repeats(known_as or message, sent)
    elif known_as is None:
        check_repeats(message, sent, frame)
    try:
        return message.FromString(sent)
    except DecodeError as cause:
        name = (known_as or message).DESCRIPTOR.full_name
        raise InvalidRequest(
            f"the bytes do not parse as {name}: send the protobuf encoding "
            "of that message, with all text in UTF-8"
        ) from cause


def kept(message: type[_M], payload: bytes) -> _M:
    """A message from the store.

    Raises:
        CorruptValue: the bytes are no such message.
    """
    try:
        return message.FromString(payload)
    except DecodeError as cause:
        raise CorruptValue(f"the payload does not parse as {message.DESCRIPTOR.name}") from cause
