"""JSON → values with their lines; the items of a List come one by one.

No more than a few MiB of a text are in memory, but where it is read at once.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import SupportsRead

Part: TypeAlias = "tuple[Any, int, dict[Any, Any] | None]"
"""An item, its line, and its document as far as it is read; or a document without the items that
were told, its line, and None."""

BLOCK: Final = 1 << 20
MAX_VALUE: Final = 8 << 20
"""Characters of a value of JSON: several times what an API server's store takes of one object."""

NO_UTF8: Final = "it is no UTF-8: save it as UTF-8"

_BLANKS: Final = re.compile(r"[ \t\n\r]*")


class _KeyGivenTwiceError(ValueError):
    """An object of JSON has a key twice."""


def _distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Object of its pairs; of equal keys, a reader of JSON would take the last in silence."""
    found = dict(pairs)
    if len(found) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise _KeyGivenTwiceError(f"the key {key!r} is given twice in one object")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_distinct_keys, parse_constant=_no_number)


def json_parts(file: SupportsRead[bytes], source: str, *, at_once: bool = False) -> Iterator[Part]:
    """Read values of JSON after one another, and items of Lists one by one.

    With `at_once` all of the text is in memory, and values may have any size.
    """
    window = _JsonWindow(file, -1 if at_once else BLOCK)
    try:
        while begin := window.peek():
            if begin == ".":  # the mark that ends YAML may end a row of JSON values, too
                for mark in "...":
                    window.expect(mark)
                continue
            line = window.line
            if begin != "{":
                yield window.value(), line, None
                continue
            document: dict[str, Any] = {}
            for _ in window.inside("{", "}"):
                key = window.key()
                if key in document:
                    _distinct_keys([(key, None), (key, None)])
                document[key] = None
                if key != "items" or window.peek() != "[":
                    document[key] = window.value()
                    continue
                for _ in window.inside("[", "]"):
                    window.peek()
                    at = window.line
                    yield window.value(), at, document
            yield document, line, None
    except _KeyGivenTwiceError as error:
        raise BadInput(f"{source}:{window.line}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}:{window.problem(error)}") from error


class _JsonWindow:
    """A place in a text of JSON, of which a block after the other is read."""

    def __init__(self, file: SupportsRead[bytes], block: int) -> None:
        self._file, self._block = file, block
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._at, self.line = "", 0, 1
        self._column = 0  # of the text's first character
        self._at_end = False

    def peek(self) -> str:
        """Next character that is no blank; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._go(blanks.end() if blanks else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, character: str) -> None:
        """Go past a character."""
        if self.peek() != character:
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, self._at)
        self._go(self._at + 1)

    def value(self) -> Any:
        """Read the next value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if len(self._text) - self._at > MAX_VALUE or not self._more():
                    raise
            else:
                if end < len(self._text) or not self._more():  # a number may go on
                    self._go(end)
                    return value

    def key(self) -> str:
        """Read the next key of an object."""
        if self.peek() != '"':
            raise json.JSONDecodeError("Expecting a key", self._text, self._at)
        key: str = self.value()
        self.expect(":")
        return key

    def inside(self, begin: str, end: str) -> Iterator[None]:
        """Go through an object or a list, whose parts the caller reads."""
        self.expect(begin)
        more = self.peek() != end
        while more:
            yield
            more = self.peek() == ","
            if more:
                self.expect(",")
        self.expect(end)

    def problem(self, error: Exception) -> str:
        """Line of an error, and what it says."""
        if not isinstance(error, json.JSONDecodeError):
            deep = isinstance(error, RecursionError)
            return f"{self.line}: not JSON: {'nested too deep' if deep else error}"
        known, at = self._text.rstrip(), error.pos
        cut = self._at_end and (at >= len(known) or error.msg.startswith("Unterminated"))
        at = min(at, len(known))
        line = self.line - self._text.count("\n", 0, self._at) + known.count("\n", 0, at)
        column = at - known.rfind("\n", 0, at) + self._column * ("\n" not in known[:at])
        text = f"{line}: not JSON: {error.msg.removesuffix(' at')} at column {column}"
        return text + ": it ends too early" * cut

    def _go(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        block = self._file.read(self._block)
        self._at_end = not block
        try:
            more = self._decode(block, not block)
        except UnicodeDecodeError as error:
            # Its line, for problem().
            self._go(len(self._text))
            self.line += error.object[: error.start].count(b"\n")
            raise ValueError(NO_UTF8) from error
        if block:
            passed = self._text[: self._at]
            self._column = (
                len(passed) - passed.rfind("\n") - 1 + self._column * ("\n" not in passed)
            )
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(block)
