"""Lists in JSON as kubectl prints them, read one item at a time.

A whole cluster is some hundred megabytes of JSON, and ten times as much when all of it is objects
in memory. kubectl indents by four, and text in JSON has no line ends of its own; so an item ends at
the first line that has eight blanks and a closing brace, and the items need not be in memory
together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEAD: Final = b'{\n    "apiVersion": "v1",\n    "items": [\n        {\n'
_NEXT: Final = b"\n        },\n"
_LAST: Final = b"\n        }\n    ],\n"
_END: Final = b"\n        }"
_BLOCK: Final = 4 << 20

MAX_ITEM_BYTES: Final = 8 << 20
"""Bytes of an item: several times what an API server's store takes of one object."""


class NotAsPrintedError(Exception):
    """The text is no List as kubectl prints it, whatever else it may be."""


def is_printed_list(begin: bytes) -> bool:
    """Whether a text that begins so may be a List in JSON as kubectl prints it."""
    return begin.startswith(_HEAD)


def printed_items(
    begin: bytes, file: BinaryIO, take: Callable[[int], None]
) -> Iterator[tuple[dict[str, Any], int]]:
    """The items of a List, each with the line at which it begins.

    Args:
        begin: what was read of the file; :func:`is_printed_list` holds for it.
        file: the rest.
        take: called with the number of bytes that were read, before they are looked at.

    Raises:
        NotAsPrintedError: the text goes on in another way.
    """
    import orjson

    text, at, line = begin, _HEAD.rindex(b"\n        {") + 1, _HEAD.count(b"\n")
    while True:
        end = text.find(_END, at)
        ending = text[end : end + len(_LAST)]
        # The next bytes say whether another item follows.
        if end < 0 or len(ending) < len(_LAST):
            block = file.read(_BLOCK)
            take(len(block))
            if not block or len(text) - at > MAX_ITEM_BYTES:
                raise NotAsPrintedError
            text, at = text[at:] + block, 0
            continue
        piece = text[at : end + len(_END)]
        try:
            item = orjson.loads(piece)
        except orjson.JSONDecodeError as error:
            raise NotAsPrintedError from error
        if not isinstance(item, dict):
            raise NotAsPrintedError
        yield item, line
        line += piece.count(b"\n") + 1
        if ending == _LAST:
            _check_tail(text[end + len(_END) :] + file.read(_BLOCK))
            return
        if not ending.startswith(_NEXT):
            raise NotAsPrintedError
        at = end + len(_NEXT)


def _check_tail(tail: bytes) -> None:
    """Check what stands behind the items: with them left out, it is the rest of one object."""
    import orjson

    try:
        rest = orjson.loads(b'{"items": [' + tail)
    except orjson.JSONDecodeError as error:
        raise NotAsPrintedError from error
    if rest.get("kind") != "List":
        raise NotAsPrintedError
