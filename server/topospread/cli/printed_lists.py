"""Lists as kubectl prints them, in JSON or YAML, cut into pieces of some items.

A whole cluster is some hundred megabytes of text, and ten times as much when all of it is objects
in memory. Where items end shows in the text alone: kubectl indents JSON by four, and text in JSON
has no line ends of its own, so an item ends at a line of eight blanks and a closing brace; in its
YAML an item begins with a dash at the beginning of a line, where within an item there are blanks.
So the pieces need not be in memory together, and several processes can read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from topospread.cli.errors import BadInput
from topospread.cli.yaml_reader import yaml_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_ITEM_BYTES: Final = 8 << 20
"""Bytes of an item: several times what an API server's store takes of one object."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How kubectl writes a List.

    Attributes:
        head: what the text begins with, up to the first item.
        end: ends an item; a part of what follows.
        next: between two items, with the end of the first.
        last: behind the last item, with its end.
        block: bytes that are read at once, and so about those of a piece.
    """

    head: bytes
    end: bytes
    next: bytes
    last: bytes
    block: int


_JSON: Final = _Form(
    head=b'{\n    "apiVersion": "v1",\n    "items": [\n',
    end=b"\n        }",
    next=b"\n        },\n",
    last=b"\n        }\n    ],\n",
    block=4 << 20,
)
# A piece of YAML takes forty times its size while it is read.
_YAML: Final = _Form(
    head=b"apiVersion: v1\nitems:\n",
    end=b"\n",
    next=b"\n- ",
    last=b"\nkind: List\n",
    block=1 << 20,
)
_FIRST: Final = {_JSON.head: b"        {\n", _YAML.head: b"- "}


class NotAsPrintedError(Exception):
    """The text is no List as kubectl prints it, whatever else it may be."""


@dataclass(frozen=True, slots=True)
class PrintedItems:
    """Some items of a List, one after the other.

    Attributes:
        text: of them.
        line: at which they begin.
        source: name of the file.
        is_json: whether they are JSON; else they are YAML.
    """

    text: bytes
    line: int
    source: str
    is_json: bool

    def read(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The items, each with the line at which it begins.

        Raises:
            NotAsPrintedError: they are not as kubectl prints them.
        """
        line = self.line
        for text, lines in _items(self.text, _JSON if self.is_json else _YAML):
            item = _json_item(text) if self.is_json else _yaml_item(text, self.source)
            if not isinstance(item, dict):
                raise NotAsPrintedError
            yield item, line
            line += lines


def is_printed_list(begin: bytes) -> bool:
    """Whether a text that begins so may be a List as kubectl prints it."""
    return _form(begin) is not None


def printed_items(
    begin: bytes, file: BinaryIO, source: str, take: Callable[[int], None]
) -> Iterator[PrintedItems]:
    """The items of a List, in pieces.

    Args:
        begin: what was read of the file; :func:`is_printed_list` holds for it.
        file: the rest.
        source: its name.
        take: called with the number of bytes that were read, before they are looked at.

    Raises:
        NotAsPrintedError: the text goes on in another way.
    """
    form = _form(begin)
    assert form is not None, "the caller has looked"
    text, line = begin.removeprefix(form.head), 1 + form.head.count(b"\n")

    def piece(until: int) -> PrintedItems:
        return PrintedItems(text[: until + len(form.end)], line, source, form is _JSON)

    while block := file.read(form.block):
        take(len(block))
        text += block
        until = text.rfind(form.next)
        if until > 0:
            yield piece(until)
            line += text.count(b"\n", 0, until) + form.next.count(b"\n")
            text = text[until + len(form.next) - len(_lead(form)) :]
        elif len(text) > MAX_ITEM_BYTES:
            raise NotAsPrintedError
    until = text.find(form.last)
    if until < 0:
        raise NotAsPrintedError
    yield piece(until)
    _check_tail(text[until + len(form.end) :], form)


def _form(begin: bytes) -> _Form | None:
    forms = (_JSON, _YAML)
    return next((each for each in forms if begin.startswith(each.head + _FIRST[each.head])), None)


def _lead(form: _Form) -> bytes:
    """What of the text between two items belongs to the second."""
    return b"- " if form is _YAML else b""


def _items(text: bytes, form: _Form) -> Iterator[tuple[bytes, int]]:
    """The text of each item, and its number of lines."""
    at = 0
    while at < len(text):
        found = text.find(form.next, at)
        end = len(text) if found < 0 else found + len(form.end)
        yield text[at:end], text.count(b"\n", at, end) + (form is _JSON)
        at = end if found < 0 else found + len(form.next) - len(_lead(form))


def _json_item(text: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotAsPrintedError from error


def _yaml_item(text: bytes, source: str) -> Any:
    try:
        [(listed, _)] = yaml_documents(text, source)
        [item] = listed
    except (BadInput, ValueError, TypeError) as error:
        raise NotAsPrintedError from error
    return item


def _check_tail(tail: bytes, form: _Form) -> None:
    """Check what stands behind the items: with them left out, it is the rest of one object."""
    if form is _JSON:
        rest = _json_item(b'{"items": [' + tail)
    else:
        try:
            [(rest, _)] = yaml_documents(tail, "")
        except (BadInput, ValueError) as error:
            raise NotAsPrintedError from error
    if not isinstance(rest, dict) or rest.get("kind") != "List":
        raise NotAsPrintedError
