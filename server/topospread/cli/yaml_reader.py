"""YAML as kubectl reads it, with bounds on what a few bytes of it can stand for."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any, Final

import yaml
from typing_extensions import override

from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 1000

MAX_ALIASED: Final = 1_000_000
"""Number of values that aliases may add to a document: far more than a person repeats."""

_TEXT_OF_A_VALUE: Final = 32
"""Number of characters that count as one more value."""

# One line of indicators can open a level with each: `- - -`, `? ? ?`. Looked for from where such a
# run begins only: to look from each of its characters would take as long as the run, each time.
_LADDER: Final = re.compile(rb"(?<![-?: \t])[-?: \t]{%d}" % (MAX_DEPTH // 2))

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
    content = _in_utf8(content, source)
    loader = _LinedLoader(content) if lined else _Loader(content)
    aliases = b"*" in content and b"&" in content
    try:
        _check_depth(content, source)
        while loader.check_node() and (node := loader.get_node()) is not None:
            if aliases:
                _check_aliases(node)
            yield loader.construct_document(node), node.start_mark.line + 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be read"
        raise BadInput(f"{source}{line}: not YAML: {problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: not YAML: {str(error).splitlines()[0]}") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{source}: not YAML that can be used: {error}") from error
    finally:
        loader.dispose()


def _in_utf8(content: bytes, source: str) -> bytes:
    """Text in UTF-8, in which the checks here find each ASCII character as one byte."""
    if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content
    try:
        return content.decode("utf-16").encode()
    except UnicodeError as error:
        raise BadInput(f"{source}: not YAML: UTF-16 that cannot be read: {error}") from error


def _check_depth(content: bytes, source: str) -> None:
    """Refuse nesting that libyaml's recursive composer would overrun its stack with.

    Looking at every event takes as long as reading, so it is left to files that could be so deep.
    A level needs a bracket, or an indicator or a blank at the beginning of a line.
    """
    if content.count(b"[") + content.count(b"{") < MAX_DEPTH and not _LADDER.search(content):
        return
    depth = 0
    for event in yaml.parse(content, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise BadInput(f"{source}:{line}: not YAML: nested more than {MAX_DEPTH} deep")


def _check_aliases(document: yaml.Node) -> None:
    """Refuse aliases that multiply: written out, they may add :data:`MAX_ALIASED` values.

    Raises:
        ConstructorError: they would add more, or stand for something that they are a part of.
    """
    sizes: dict[int, int] = {}
    begun: set[int] = set()
    once = 0
    waiting = [document]
    while waiting:
        node, parts = waiting[-1], _parts(waiting[-1])
        if id(node) in sizes:
            waiting.pop()
        elif not parts or id(node) in begun:
            waiting.pop()
            begun.discard(id(node))
            own = 1 if parts else 1 + len(node.value) // _TEXT_OF_A_VALUE
            sizes[id(node)] = own + sum(sizes[id(part)] for part in parts)
            once += own
        else:
            begun.add(id(node))
            if any(id(part) in begun for part in parts):
                problem = "an alias stands for what it is a part of"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            waiting += parts
    if sizes[id(document)] - once > MAX_ALIASED:
        problem = f"aliases stand for more than {MAX_ALIASED} values"
        raise yaml.constructor.ConstructorError(None, None, problem, document.start_mark)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    """Nodes within a collection; none for a scalar."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Loader(yaml.CSafeLoader):
    """Loader that reads scalars as kubectl does (no dates, no base 60) and refuses double keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        first: [(tag, _NUMBERS.get(tag, shape)) for tag, shape in shapes if tag not in _DROPPED]
        for first, shapes in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (LookupError, AttributeError, ValueError) as error:
            # PyYAML takes explicit tags at their word: `!!int ''`, `!!bool maybe`.
            if not isinstance(node, yaml.ScalarNode):
                raise
            problem = f"{node.value[:40]!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _lined_mapping(loader: _LinedLoader, node: yaml.MappingNode) -> Iterator[LinedDict]:
    """Make an object, and then what is in it, as PyYAML does."""
    made = LinedDict()
    made.line = node.start_mark.line + 1
    yield made
    made.update(loader.construct_mapping(node))


class _LinedLoader(_Loader):
    """Loader that keeps the line of each object."""

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, never changed
        **_Loader.yaml_constructors,
        "tag:yaml.org,2002:map": _lined_mapping,
    }
