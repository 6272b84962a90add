"""Writes what commands print into the pages of docs/ that show it.

make docs

In a block of the language ``console``, each line that begins with ``$ topospread`` is run against a
server of the page's own that has what getting-started writes, and what it prints is put below it.
Revisions and traces are left out: they differ from run to run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topospread.app.server import Server
from topospread.cli.main import run
from topospread.config.loading import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = ("explain.md", "rebalance.md", "scale-down.md", "simulate.md")

PROMPT: Final = "$ topospread "
_BLOCK: Final = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_VARYING: Final = re.compile(r"^(revision|trace):")


def page(name: str) -> str:
    """A page with the output of its commands, as they print it now."""
    text = (DOCS / name).read_text(encoding="utf-8")
    flags = {"listen": "127.0.0.1:0", "http": "off", "store": "memory:"}
    with Server(load_settings(flags, {})) as server, _at_root():
        list(_output(["apply", "-f", "examples/cluster", "--address", server.address]))
        return _BLOCK.sub(lambda block: _played(block.group(), server.address), text)


def _played(block: str, address: str) -> str:
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            arguments = shlex.split(line.removeprefix(PROMPT))
            lines += [line, *_output([*arguments, "--address", address])]
    return "\n".join(lines) + "\n"


def _output(arguments: list[str]) -> Iterator[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        run(arguments)
    for line in said.getvalue().rstrip("\n").splitlines():
        if not _VARYING.match(line):
            yield line


@contextlib.contextmanager
def _at_root() -> Iterator[None]:
    """Paths in the pages are the repository's."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> None:
    """Write the pages."""
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
