"""JSON that is read value by value, so that no more than a few MiB of its text are in memory."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import SupportsRead

Part: TypeAlias = "tuple[Any, int, dict[Any, Any] | None]"
"""An item with its List, or a document without one."""

BLOCK: Final = 1 << 20
MAX_VALUE: Final = 8 << 20
"""Characters of a value: several times what an API server's store takes of one object."""

_BLANKS: Final = re.compile(r"[ \t\n\r]*")


class KeyGivenTwiceError(ValueError):
    """An object of JSON has a key twice."""


def distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Object of its pairs; of equal keys, a reader of JSON would take the last in silence."""
    found = dict(pairs)
    if len(found) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise KeyGivenTwiceError(f"the key {key!r} is given twice in one object")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


DECODER: Final = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_constant=_no_number)


def begins_list(begin: bytes) -> bool:
    """Whether a text that begins so may be a List."""
    window = JsonWindow(io.BytesIO(begin))
    try:
        for key in window.object_keys():
            if key == "items":
                return window.peek() == "["
            window.value()
    except (ValueError, RecursionError):
        pass
    return False


def json_items(file: SupportsRead[bytes], source: str) -> Iterator[Part]:
    """Read values of JSON after one another, and items of Lists one by one.

    Yields:
        An item, its line, and the keys of its List so far; or an object without the items that were
        told, its line, and None.

    Raises:
        BadInput: the text is not JSON, or has a key twice in one object.
    """
    window = JsonWindow(file)
    try:
        while window.peek():
            if window.peek() == ".":  # the mark that ends YAML may end a row of JSON values, too
                for mark in "...":
                    window.expect(mark)
                continue
            line = window.line
            document: dict[str, Any] = {}
            for key in window.object_keys():
                if key in document:
                    distinct_keys([(key, None), (key, None)])
                document[key] = None
                if key != "items" or window.peek() != "[":
                    document[key] = window.value()
                    continue
                for _ in window.parts("[", "]"):
                    window.peek()
                    at = window.line
                    yield window.value(), at, document
            yield document, line, None
    except KeyGivenTwiceError as error:
        raise BadInput(f"{source}:{window.line}: {error}") from error
    except (ValueError, RecursionError) as error:
        cut = ": it ends too early" if window.at_end else ""
        raise BadInput(f"{source}:{window.line}: not JSON: {json_problem(error)}{cut}") from error


def json_problem(error: Exception) -> str:
    """What is wrong with a text of JSON."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at")
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


class JsonWindow:
    """A place in a text of JSON.

    Args:
        file: with the text, in UTF-8.

    Attributes:
        line: of the place.
        at_end: whether all of the file was read.
    """

    def __init__(self, file: SupportsRead[bytes]) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._at, self.line = "", 0, 1
        self.at_end = False

    def peek(self) -> str:
        """Next character that is no blank; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._go(blanks.end() if blanks else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, character: str) -> None:
        """Go past a character.

        Raises:
            JSONDecodeError: another one is next.
        """
        if self.peek() != character:
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, self._at)
        self._go(self._at + 1)

    def value(self) -> Any:
        """Read the next value.

        Raises:
            ValueError, RecursionError: it is none, or cannot be used.
        """
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if len(self._text) - self._at > MAX_VALUE or not self._more():
                    raise
            else:
                if end < len(self._text) or not self._more():  # a number may go on
                    self._go(end)
                    return value

    def parts(self, begin: str, end: str) -> Iterator[None]:
        """Go through an object or a list, whose parts the caller reads."""
        self.expect(begin)
        more = self.peek() != end
        while more:
            yield
            more = self.peek() == ","
            if more:
                self.expect(",")
        self.expect(end)

    def object_keys(self) -> Iterator[str]:
        """Go through an object by its keys; the caller reads the value of each."""
        for _ in self.parts("{", "}"):
            if self.peek() != '"':
                raise json.JSONDecodeError("Expecting a key", self._text, self._at)
            key = self.value()
            self.expect(":")
            yield key

    def _go(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        block = self._file.read(BLOCK)
        self._text = self._text[self._at :] + self._decode(block, not block)
        self._at = 0
        self.at_end = not block
        return bool(block)
