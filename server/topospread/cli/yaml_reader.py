"""YAML as kubectl reads it, with bounds on what a few bytes of it can stand for."""

from __future__ import annotations

import re
from contextlib import contextmanager
from io import BytesIO, IOBase
from typing import TYPE_CHECKING, Any, Final

import yaml
from typing_extensions import override
from yaml.composer import Composer
from yaml.constructor import ConstructorError

from topospread.cli.errors import BadInput
from topospread.config.documents import DistinctKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import SupportsRead

    from topospread.cli.json_window import Part

MAX_DEPTH: Final = 200
"""Depth of nesting, far below Python's recursion limit and far above what Kubernetes has."""

MAX_ALIASED: Final = 1_000_000
"""Number of values that aliases may add to a file: far more than a person repeats."""

_TEXT_OF_A_VALUE: Final = 32
"""Number of characters that count as one more value."""


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
    """An object of a file.

    Attributes:
        line: where it begins.
    """

    __slots__ = ("line",)

    line: int


def yaml_documents(
    content: bytes, source: str, *, lined: bool = False
) -> Iterator[tuple[Any, int]]:
    """Read documents, each with the line at which it begins.

    Args:
        content: the text, in UTF-8 or UTF-16.
        source: name of the file, for error messages.
        lined: make each object a :class:`LinedDict`.

    Raises:
        BadInput: the text is not YAML, nested too deep, or its aliases multiply too much.
    """
    with _errors(source, BytesIO(content)):
        loader = _LinedLoader(content) if lined else _ValueLoader(content)
        while loader.check_node():
            loader.get_event()
            yield loader.value()
            loader.end_document()


def yaml_items(file: SupportsRead[bytes], source: str) -> Iterator[Part]:
    """Read documents as :func:`yaml_documents` does, and items of Lists one by one.

    Yields:
        As `json_items`.

    Raises:
        BadInput: as for :func:`yaml_documents`.
    """
    with _errors(source, file):
        loader = _ValueLoader(file)
        while loader.check_node():
            loader.get_event()
            if not loader.check_event(yaml.MappingStartEvent):
                yield *loader.value(), None
                loader.end_document()
                continue
            begun: Any = loader.get_event()
            document: dict[Any, Any] = {}
            while not loader.check_event(yaml.MappingEndEvent):
                key, at = loader.value()
                if key in document:
                    raise BadInput(f"{source}:{at}: not YAML: the key {key!r} is given twice")
                if key != "items" or not loader.check_event(yaml.SequenceStartEvent):
                    document[key], _ = loader.value()
                    continue
                document[key] = None
                loader.get_event()
                while not loader.check_event(yaml.SequenceEndEvent):
                    yield *loader.value(), document
                loader.get_event()
            loader.get_event()
            yield document, begun.start_mark.line + 1, None
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
        raise BadInput(f"{source}{line}: not YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        # It has no line, and of bytes that are no UTF-8 a number that is none of theirs.
        line = ""
        if isinstance(file, IOBase) and file.seekable():
            file.seek(0)
            ends = file.read(error.position).count(b"\n")
            line = f":{ends + 1}"
        bad = "UTF-8" in str(error.reason)
        what = "it is no UTF-8: save it as UTF-8" if bad else error.reason
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

    def __init__(self, stream: bytes | SupportsRead[bytes]) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)
        self._depth = self._count = self._aliased = 0
        self._sizes: dict[str, int] = {}

    def value(self) -> tuple[Any, int]:
        """Read the next value, and the line at which it begins."""
        node = self.compose_node(None, None)
        assert node is not None
        return self.construct_document(node), node.start_mark.line + 1

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
    yield made
    made.update(loader.construct_mapping(node))


class _LinedLoader(_ValueLoader):
    """Loader that keeps the line of each object."""

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        **_ValueLoader.yaml_constructors,
        "tag:yaml.org,2002:map": _lined_mapping,
    }
