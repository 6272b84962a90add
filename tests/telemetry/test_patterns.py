"""Regular expressions run over what callers, files and stores hold: each takes linear time.

All of them are found, not listed, and tried with texts made of their own parts. A text four times
as long may take four times the processor time; where one took sixteen, a request of a few kilobytes
would hold the interpreter for seconds.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined] # the parser that re itself uses
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import topospread
import topospread_client

PACKAGES = (topospread, topospread_client)
SOURCES = [path for package in PACKAGES for path in Path(package.__path__[0]).rglob("*.py")]

LONG = 12_000
"""Characters. Over so many, quadratic time takes a tenth of a second, linear a thousandth."""

SOON = 0.01
"""Seconds of processor time that need no second look."""

TIMES_AT_4 = 8
"""Between 4 for linear and 16 for quadratic growth, when a text is four times as long."""

MOST_ATOMS = 9
ENDS = ("", "!", "\n", "\x00")

Pattern = re.Pattern[Any]
Found = tuple[Pattern, bool]
"""A pattern, and whether it is looked for anywhere in a text: not only at its begin."""


def compiled() -> dict[str, Found]:
    """All compiled patterns of all modules, by where they stand."""
    found: dict[int, tuple[str, Found]] = {}
    for package in PACKAGES:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__") or info.name.startswith("topospread.generated"):
                continue
            module = importlib.import_module(info.name)
            source = inspect.getsource(module)
            for name, value in vars(module).items():
                held = list(patterns(value))
                if not held:
                    continue
                uses = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", source))
                anywhere = not uses or bool(uses - {"match", "fullmatch"})
                for pattern in held:
                    # What another module imports is the same one.
                    _, (_, before) = found.get(id(pattern), ("", (pattern, False)))
                    label = f"{module.__name__}.{name}"
                    found[id(pattern)] = label, (pattern, anywhere or before)
    return {f"{name}-{number}": each for number, (name, each) in enumerate(found.values())}


def patterns(value: object) -> Iterator[Pattern]:
    """The patterns in a value: itself, a method of one, in a collection, or an attribute."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield value.__self__  # type: ignore[attr-defined]
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from patterns(held)
    elif isinstance(value, tuple | list | set | frozenset):
        for held in value:
            yield from patterns(held)
    elif isinstance(value, type) and value.__module__.startswith("topospread"):
        for held in vars(value).values():
            yield from patterns(held)


FOUND = compiled()


def atoms(pattern: Pattern) -> list[str]:
    """Texts that parts of a pattern match: its literals in a row, and one of each set."""
    made: dict[str, None] = {}

    def walk(tree: Any) -> None:
        run = ""
        for kind, argument in tree:
            if kind is kinds.LITERAL:
                run += chr(argument)
                continue
            if run:
                made[run] = None
                run = ""
            if kind is kinds.IN:
                made.update(dict.fromkeys(of_set(argument)))
            elif kind is kinds.NOT_LITERAL or kind is kinds.ANY:
                made["x"] = None
            elif kind is kinds.BRANCH:
                for branch in argument[1]:
                    walk(branch)
            else:
                parts = argument if isinstance(argument, tuple) else (argument,)
                for part in parts:
                    if isinstance(part, parser.SubPattern):
                        walk(part)
        if run:
            made[run] = None

    source = pattern.pattern
    walk(parser.parse(source if isinstance(source, str) else source.decode("latin-1")))
    return list(dict.fromkeys([*made, "a", "0", "-", " ", ",", ":"]))[:MOST_ATOMS]


def of_set(items: Any) -> Iterator[str]:
    for kind, argument in items:
        if kind is kinds.LITERAL:
            yield chr(argument)
        elif kind is kinds.RANGE:
            yield chr(argument[0])
        elif kind is kinds.CATEGORY:
            yield {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " "}.get(argument.name, "x")
        elif kind is kinds.NEGATE:
            yield "x"


def hostile(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """What a text begins with, what is repeated in it, and how it ends."""
    parts = atoms(pattern)
    pairs = ["".join(pair) for pair in itertools.permutations(parts, 2)]
    yield from itertools.product([""], parts + pairs, ENDS)
    yield from itertools.product(parts, parts, ENDS)


def seconds(found: Found, text: str) -> float:
    """The processor time that it takes to use a pattern in all ways."""
    pattern, anywhere = found
    subject = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    begun = time.thread_time()
    pattern.match(subject)
    pattern.fullmatch(subject)
    if anywhere:
        pattern.sub(subject[:0], subject)
    return time.thread_time() - begun


def grows(found: Found, begin: str, pump: str, end: str, longest: int = LONG) -> bool:
    """Whether a text four times as long takes far more than four times as long."""

    def text(length: int) -> str:
        return begin + pump * (length // len(pump)) + end

    first = seconds(found, text(longest))
    if first < SOON:
        return False
    # What else the machine does only ever adds.
    short = min(seconds(found, text(longest // 4)) for _ in range(2))
    long = min(first, seconds(found, text(longest)))
    return long > SOON and long > TIMES_AT_4 * short


@pytest.mark.parametrize("name", FOUND)
def test_patterns_take_linear_time(name):
    for tried in hostile(FOUND[name][0]):
        assert not grows(FOUND[name], *tried), f"superlinear over {tried}"


@pytest.mark.parametrize(
    "quadratic",
    [
        r"\b([a-z][a-z0-9+.-]*://)[^/\s\"']*@",
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE])?",
        r",(?![^(]*\))",
        r"(?:connect|getsockopt)[^:]*: ([^:()]+) \(",
        r"(.+_)?(SERVICE_PORT(_.+)?|PORT)",
    ],
)
def test_patterns_of_quadratic_time_are_found(quadratic):
    pattern = re.compile(quadratic)
    # What takes longer still is found in a shorter text; a quick machine needs a longer one.
    assert any(
        grows((pattern, True), *tried, longest)
        for longest in (LONG // 4, LONG, 4 * LONG)
        for tried in hostile(pattern)
    )


def test_all_patterns_stand_where_they_are_found():
    """Compiled by their module, which says of each what it is; none is made while it runs."""
    assert len(FOUND) > 30
    for source in SOURCES:
        tree = ast.parse(source.read_text("utf-8"))
        inner = [
            node
            for scope in ast.walk(tree)
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for node in ast.walk(scope)
        ]
        used = [
            node.attr
            for node in inner
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "re"
        ]
        # Flags, types and escaping match nothing.
        assert not set(used) - {"Match", "Pattern", "escape"}, source
        imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [node for node in imported if node.module == "re"], source
