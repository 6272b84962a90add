"""JSON and YAML → values with their lines; the items of a List come one by one.

No more than a few MiB of a text are in memory, and what a few bytes of YAML stand for is bounded.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from contextlib import contextmanager
from io import IOBase
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import yaml
from typing_extensions import override
from yaml.composer import Composer
from yaml.constructor import ConstructorError

from topospread.cli.errors import BadInput
from topospread.config.documents import DistinctKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import SupportsRead

Part: TypeAlias = "tuple[Any, int, dict[Any, Any] | None]"
"""An item, its line, and its document as far as it is read; or a document without the items that
were told, its line, and None."""

BLOCK: Final = 1 << 20
MAX_VALUE: Final = 8 << 20
"""Characters of a value of JSON: several times what an API server's store takes of one object."""

MAX_DEPTH: Final = 200
"""Depth of nesting, far below Python's recursion limit and far above what Kubernetes has."""

MAX_ALIASED: Final = 1_000_000
"""Number of values that aliases may add to a file: far more than a person repeats."""

_TEXT_OF_A_VALUE: Final = 32
"""Number of characters that count as one more value."""

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_MAP: Final = "tag:yaml.org,2002:map"
_NO_UTF8: Final = "it is no UTF-8: save it as UTF-8"
_SECOND: Final = re.compile("the key '(apiVersion|items|kind|metadata)' is given twice")
_NULL: Final = yaml.ScalarNode("tag:yaml.org,2002:null", "")
_DROPPED: Final = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(
        r"^[-+]?(?:0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|0|[1-9][0-9]*)$"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"
    ),
}


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
            raise ValueError(_NO_UTF8) from error
        if block:
            passed = self._text[: self._at]
            self._column = (
                len(passed) - passed.rfind("\n") - 1 + self._column * ("\n" not in passed)
            )
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(block)


class LinedDict(dict[Any, Any]):
    """An object of a file, with the line where it begins.

    Attributes:
        lines: of its keys.
        blocks: keys whose value is a block of text, which begins on the next line.
    """

    __slots__ = ("blocks", "line", "lines")

    line: int
    lines: dict[Any, int]
    blocks: frozenset[Any]


def yaml_parts(file: SupportsRead[bytes], source: str, *, lined: bool = False) -> Iterator[Part]:
    """Read documents, and items of Lists one by one; with `lined` objects are LinedDicts.

    Refused is what is nested too deep, or whose aliases multiply too much.
    """
    with _errors(source, file):
        loader = _LinedLoader(file) if lined else _ValueLoader(file)
        while loader.check_node():
            loader.get_event()
            begun: Any = loader.peek_event()
            if loader.check_event(yaml.MappingStartEvent) and begun.implicit and not begun.anchor:
                yield from loader.document()
            else:
                yield *loader.value(), None
            loader.end_document()


@contextmanager
def _errors(source: str, file: SupportsRead[bytes]) -> Iterator[None]:
    """Errors of PyYAML as those of the command line; the file is read again for a line."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be read"
        separate = ": a line of `---` is missing before it, if another object begins there"
        problem += separate * bool(mark and not mark.column and _SECOND.fullmatch(problem))
        raise BadInput(f"{source}{line}: not YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        # It has no line, and of bytes that are no UTF-8 a number that is none of theirs.
        line = ""
        if isinstance(file, IOBase) and file.seekable():
            file.seek(0)
            ends = file.read(error.position).count(b"\n")
            line = f":{ends + 1}"
        bad = "UTF-8" in str(error.reason)
        what = _NO_UTF8 if bad else error.reason
        raise BadInput(f"{source}{line}: not YAML: {what}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: not YAML: {str(error).splitlines()[0]}") from error
    except (RecursionError, ValueError, TypeError) as error:
        raise BadInput(f"{source}: not YAML that can be used: {error}") from error


class _ValueLoader(Composer, DistinctKeys, yaml.CSafeLoader):
    """Loader that reads value by value, and scalars as kubectl does (no dates, no base 60)."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        first: [(tag, _NUMBERS.get(tag, shape)) for tag, shape in shapes if tag not in _DROPPED]
        for first, shapes in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: SupportsRead[bytes]) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)
        self._depth = self._count = self._aliased = 0
        self._sizes: dict[str, int] = {}

    def value(self) -> tuple[Any, int]:
        """Read the next value, and the line at which it begins."""
        node: Any = self.compose_node(None, None)
        return self.construct_document(node), node.start_mark.line + 1

    def document(self) -> Iterator[Part]:
        """Read a document that is an object."""
        begun: Any = self.get_event()
        mark = begun.start_mark
        whole = yaml.MappingNode(_MAP, [], mark, mark)
        head: dict[Any, Any] = {}
        while not self.check_event(yaml.MappingEndEvent):
            key: Any = self.compose_node(None, None)
            begun = self.peek_event()
            is_sequence = self.check_event(yaml.SequenceStartEvent)
            if key.value != "items" or not is_sequence or begun.anchor:
                whole.value.append((key, self.compose_node(None, None)))
                continue
            whole.value.append((key, _NULL))
            # Texts alone: what has been constructed is not constructed again.
            texts = [pair for pair in whole.value if isinstance(pair[0], yaml.ScalarNode)]
            head.update({key.value: value.value for key, value in texts})
            self.get_event()
            while not self.check_event(yaml.SequenceEndEvent):
                yield *self.value(), head
            self.get_event()
        self.get_event()
        document = self.construct_document(whole)
        head.update(document)
        yield document, mark.line + 1, None

    def end_document(self) -> None:
        """Go past the end of a document."""
        self.get_event()
        self.anchors = {}
        self._sizes = {}

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            self._count_alias(event)
            return super().compose_node(parent, index)
        before = self._count
        self._count += 1 + len(getattr(event, "value", "")) // _TEXT_OF_A_VALUE
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _error(f"nested more than {MAX_DEPTH} deep", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._sizes[event.anchor] = self._count - before
        return node

    def _count_alias(self, event: Any) -> None:
        size = self._sizes.get(event.anchor, 0)
        if event.anchor in self.anchors and not size:
            raise _error("an alias stands for what it is a part of", event)
        self._count += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _error(f"aliases stand for more than {MAX_ALIASED} values", event)

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (LookupError, AttributeError, ValueError) as error:
            # PyYAML takes explicit tags at their word: `!!int ''`, `!!bool maybe`.
            if not isinstance(node, yaml.ScalarNode):
                raise
            problem = f"{node.value[:40]!r} is no {node.tag.rpartition(':')[2]}"
            raise ConstructorError(None, None, problem, node.start_mark) from error


def _error(problem: str, event: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, event.start_mark)


def _lined_mapping(loader: _LinedLoader, node: yaml.MappingNode) -> Iterator[LinedDict]:
    """Make an object, and then what is in it, as PyYAML does."""
    made = LinedDict()
    made.line = node.start_mark.line + 1
    made.lines, made.blocks = {}, frozenset()
    yield made
    made.update(loader.construct_mapping(node))
    # The node's values are those after merging (`<<`), in the order of the keys at least.
    texts = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    made.lines = {loader.construct_object(key): key.start_mark.line + 1 for key, _ in texts}
    made.blocks = frozenset(
        loader.construct_object(key)
        for key, value in texts
        if isinstance(value, yaml.ScalarNode) and value.style == "|"
    )


class _LinedLoader(_ValueLoader):
    """Loader that keeps the line of each object."""

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        **_ValueLoader.yaml_constructors,
        _MAP: _lined_mapping,
    }
