"""`python -m tools.naming`: what identifiers may be called.

Names are the field's terms. The rules, over every Python file that git knows:

- no identifier contains one of `BANNED`, words that once stood for a term that readers know;
- no two classes of a distribution have one name;
- no test begins with a pronoun: a test's name says of what it is;
- what a docstring names below `Args:` is an argument of the function, or of the constructor;
- the first line of a docstring is an imperative or a noun, and not what "is said" of something.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parent.parent

BANNED: Final = {
    "crew": "worker pool",
    "door": "listener, or authentication",
    "doors": "listeners, or credentials",
    "dues": "expirations",
    "knot": "component",
    "knots": "components",
    "nobody": "the case itself: unused, idle, unknown",
    "oddities": "warnings",
    "room": "package, or capacity",
    "rooms": "packages",
    "stranger": "unauthenticated caller",
    "strangers": "unauthenticated callers, or unknown nodes",
    "supposed": "overlay, hypothetical",
    "tally": "counter",
    "tell": "report, log, notify",
    "tells": "reports, logs, notifies",
    "told": "reported, notified, stopped",
    "whoever": "caller, waiter",
}
"""Words that identifiers do not contain, and what to write instead."""

OF_THE_API: Final = {"SupposedChanges"}
"""Names of the API, which keeps its own words."""

# A what-if has its name from the field.
_BY_PRONOUN: Final = re.compile(
    r"test_(?!what_ifs?_)(it|they|he|she|who|whoever|what|whatever|nobody|those)_"
)
_ARGUMENTS: Final = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^    (\S[^:\n]*):", re.MULTILINE)
_SAID: Final = re.compile(r"\b(is|are|was|were) said\b")
_MAKERS: Final = ("__init__", "__new__")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def main() -> int:
    """0 when all names are as they should be."""
    modules = dict(_modules())
    found = [*_in_identifiers(modules), *_of_classes(modules), *_of_tests(modules)]
    found += [*_of_arguments(modules), *_in_first_lines(modules)]
    for line in found:
        print(line)
    return 1 if found else 0


def _modules() -> Iterator[tuple[str, ast.Module]]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix == ".py" and path.is_file():
            yield name, ast.parse(path.read_text(), name)


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that a module binds: classes, functions, arguments, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


def _in_identifiers(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for file, tree in modules.items():
        parts = [*Path(file).parts[:-1], Path(file).stem]
        for name, line in [*((part, 1) for part in parts), *_defined(tree)]:
            if name in OF_THE_API:
                continue
            for word in _WORD.findall(name):
                if word.lower() in BANNED:
                    better = BANNED[word.lower()]
                    yield f"{file}:{line}: {name}: write {better} instead of {word.lower()}"


def _of_classes(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for folder in ("server/", "client/"):
        places: defaultdict[str, list[str]] = defaultdict(list)
        for file, tree in modules.items():
            for node in ast.walk(tree) if file.startswith(folder) else ():
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{file}:{node.lineno}")
        for name, where in sorted(places.items()):
            if len(where) > 1:
                yield f"{where[0]}: class {name} is also at {', '.join(where[1:])}"


def _of_tests(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for file, tree in modules.items():
        for node in ast.walk(tree) if file.startswith("tests/") else ():
            if isinstance(node, ast.FunctionDef) and _BY_PRONOUN.match(node.name):
                yield f"{file}:{node.lineno}: {node.name}: begin with what it is about"


def _of_arguments(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for file, tree in modules.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            section = _ARGUMENTS.search(ast.get_docstring(node) or "")
            documented = _ARGUMENT.findall(section[1]) if section else ()
            if documented and (known := _arguments(node)):
                for name in (each.strip(" *") for names in documented for each in names.split(",")):
                    if name not in known:
                        yield f"{file}:{node.lineno}: {node.name} has no argument {name}"


def _in_first_lines(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for file, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first, *_ = (ast.get_docstring(node) or "").split("\n")
                if _SAID.search(first):
                    yield f"{file}:{getattr(node, 'lineno', 1)}: say what it is or does: {first}"


def _arguments(node: ast.AST) -> set[str]:
    """Return the arguments of a function, or a constructor; empty where a class has its bases'."""
    known = set()
    for each in node.body if isinstance(node, ast.ClassDef) else (node,):
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if each is node or each.name in _MAKERS:
                known |= {found.arg for found in ast.walk(each.args) if isinstance(found, ast.arg)}
            case ast.AnnAssign(target=ast.Name(id=field)):
                known.add(field)
    return known


if __name__ == "__main__":
    sys.exit(main())
