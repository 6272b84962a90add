"""`python -m tools.loc FOLDER`: count the lines of a folder's Python files by what they hold."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def tracked(pattern: str) -> list[Path]:
    """Return the files that git tracks and the work tree has."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", pattern], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def kinds(source: str) -> Counter[str]:
    """Return how many lines are code, docstring, import, comment and blank.

    Every string that is a statement counts as a docstring, whatever it follows. Lines within a
    statement count as it does, blank ones too.
    """
    kind: dict[int, str] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom():
                kind |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "import")
            case ast.Expr(value=ast.Constant(value=str())):
                kind |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "docstring")
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return Counter(
        kind.get(number) or ("comment" if line.startswith("#") else "code" if line else "blank")
        for number, line in lines
    )


def count(folder: str) -> Counter[str]:
    """Return the kinds of all lines of a folder's Python files."""
    return sum((kinds(path.read_text("utf-8")) for path in tracked(f"{folder}/*.py")), Counter())


if __name__ == "__main__":
    for name, lines in count(sys.argv[1]).most_common():
        print(f"{name:<12}{lines:>8,}")
