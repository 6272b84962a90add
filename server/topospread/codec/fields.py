"""Writes fields of protobuf messages by hand.

Thousands of small integers are written as a packed field in a few steps; setting them in a message
one by one costs ten times as much as a decision. Concatenated serialized fields are one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LENGTH_DELIMITED: Final = 2


def number_field(field: int, number: int) -> bytes:
    """A field that is an integer; nothing for 0, its default. `field` at most 15."""
    return SMALL_VARINTS[field << 3] + varint(number) if number else b""


def delimited(field: int, payload: bytes) -> bytes:
    """A field that is a string, bytes or a message; `field` at most 15."""
    return SMALL_VARINTS[field << 3 | _LENGTH_DELIMITED] + varint(len(payload)) + payload


def packed_from(field: int, table: Sequence[int], at: NDArray[np.intp]) -> bytes:
    """:func:`packed` of integers picked from a short table; `at`: [numbers] where each stands."""
    highest = max(table)
    if highest >= 1 << 14:
        return packed(field, np.array(table, dtype=np.int64)[at])
    if highest < 1 << 7:
        written = np.array(table, dtype=np.uint8)
    else:
        written = np.array([n & 0x7F | 0x80 | n >> 7 << 8 for n in table], dtype="<u2")
    return delimited(field, written.take(at).tobytes())


def packed(field: int, values: NDArray[np.unsignedinteger[Any]] | NDArray[np.int64]) -> bytes:
    """A packed field of integers that are not negative; `field` at most 15.

    All are written in the width of the largest, 1, 2, 4 or 8 bytes: protobuf's numbers may be
    longer than they need to be, and all of one width are written in a few steps.
    """
    if not values.size:
        return b""
    written = _varints(values)
    if written is None:
        return delimited(field, b"".join(map(varint, values.tolist())))
    return delimited(field, written.tobytes())


def _varints(values: NDArray[Any]) -> NDArray[Any] | None:
    """Each number as the bytes of a varint, in one little-endian integer; None: too large."""
    highest = int(values.max())
    if highest < 1 << 7:
        return values.astype(np.uint8, copy=False)
    for kind, width in (("<u2", 2), ("<u4", 4), ("<u8", 8)):
        if highest < 1 << 7 * width:
            narrow = values.astype(kind)
            written = narrow & 0x7F
            for byte in range(1, width):
                written |= 1 << 8 * byte - 1  # the byte before is not the last
                written |= (narrow >> 7 * byte & 0x7F) << 8 * byte
            return written
    return None


def varint(number: int) -> bytes:
    """A number as protobuf writes it; negative ones in two's complement."""
    if 0 <= number < len(SMALL_VARINTS):
        return SMALL_VARINTS[number]
    return _written(number & 0xFFFF_FFFF_FFFF_FFFF)


def _written(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


SMALL_VARINTS: Final = [_written(number) for number in range(1 << 14)]
"""Lengths, counts and scores are small: written once."""
