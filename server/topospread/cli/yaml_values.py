"""YAML → values with their lines; the items of a List come one by one.

What a few bytes stand for is bounded.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from io import IOBase
from typing import TYPE_CHECKING, Any, Final

import yaml
from typing_extensions import override
from yaml.composer import Composer
from yaml.constructor import ConstructorError

from topospread.cli.errors import BadInput
from topospread.cli.json_values import NO_UTF8
from topospread.config.documents import DistinctKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import SupportsRead

    from topospread.cli.json_values import Part

MAX_DEPTH: Final = 200
"""Depth of nesting, far below Python's recursion limit and far above what Kubernetes has."""

MAX_ALIASED: Final = 1_000_000
"""Number of values that aliases may add to a file: far more than a person repeats."""

_TEXT_OF_A_VALUE: Final = 32
"""Number of characters that count as one more value."""

_MAP: Final = "tag:yaml.org,2002:map"
_BEGINNING: Final = frozenset({"apiVersion", "items", "kind", "metadata"})
_SECOND: Final = re.compile(f"the key '({'|'.join(sorted(_BEGINNING))})' is given twice")
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


class LinedDict(dict[Any, Any]):
    """An object of a file, with the line where it begins.

    Attributes:
        lines: of its keys.
        blocks: keys whose value is a block of text, which begins on the next line.
        listed: by key of a list with such blocks, the line of each element and whether it is one.
        twice: keys that are given more than once; the last value is taken.
    """

    __slots__ = ("blocks", "line", "lines", "listed", "twice")

    line: int
    lines: dict[Any, int]
    blocks: frozenset[Any]
    listed: dict[Any, list[tuple[int, bool]]]
    twice: tuple[str, ...]


def given_twice(content: object) -> Iterator[tuple[str, int]]:
    """Paths of the keys that are given twice in their objects, and the lines of the second."""
    waiting: list[tuple[str, object]] = [("", content)]
    seen: set[int] = set()
    while waiting:
        path, part = waiting.pop()
        if not isinstance(part, LinedDict | list) or id(part) in seen:
            continue
        seen.add(id(part))  # what an alias stands for is told once
        if isinstance(part, list):
            waiting += ((f"{path}[{number}]", each) for number, each in enumerate(part))
            continue
        for key in part.twice:
            yield f"{path}.{key}".removeprefix("."), part.lines.get(key, part.line)
        waiting += ((f"{path}.{key}".removeprefix("."), each) for key, each in part.items())


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
        what = NO_UTF8 if bad else error.reason
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
        if event.anchor in self.anchors:  # it may be given again, and is that of the last one then
            del self.anchors[event.anchor]
            self._sizes.pop(event.anchor, None)
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
    made.lines, made.blocks, made.listed, made.twice = {}, frozenset(), {}, ()
    yield made
    made.update(loader.construct_mapping(node))
    made.twice = tuple(loader.seconds.pop(id(node), ()))
    # The node's values are those after merging (`<<`), in the order of the keys at least.
    texts = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    made.lines = {loader.construct_object(key): key.start_mark.line + 1 for key, _ in texts}
    made.blocks = frozenset(
        loader.construct_object(key) for key, value in texts if _is_block(value)
    )
    made.listed = {
        loader.construct_object(key): [
            (each.start_mark.line + 1, _is_block(each)) for each in value.value
        ]
        for key, value in texts
        if isinstance(value, yaml.SequenceNode) and any(map(_is_block, value.value))
    }


def _is_block(node: yaml.Node) -> bool:
    """Whether a text begins on the line below that of its indicator, and keeps its lines."""
    return isinstance(node, yaml.ScalarNode) and node.style == "|"


class _LinedLoader(_ValueLoader):
    """Loader that keeps the line of each object, and keys that are given twice in one.

    Where such keys begin an object, `---` is missing before it: that is refused.
    """

    def __init__(self, stream: SupportsRead[bytes]) -> None:
        super().__init__(stream)
        self.seconds: dict[int, list[str]] = {}

    @override
    def take_second(self, node: yaml.MappingNode, key: yaml.ScalarNode) -> None:
        if key.value in _BEGINNING and not key.start_mark.column:
            super().take_second(node, key)
        self.seconds.setdefault(id(node), []).append(key.value)

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        **_ValueLoader.yaml_constructors,
        _MAP: _lined_mapping,
    }
