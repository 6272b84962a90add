"""Writes what commands print into the pages of docs/ that show it.

make docs

In a block of the language ``console``, each line that begins with ``$ topospread`` is run against a
server of the page's own that has what getting-started writes, and what it prints is put below it.
Revisions and traces are left out: they differ from run to run. Pages whose examples are files of
their own are followed in a folder with the examples: blocks behind a remark with a file's name are
written there, and blocks of the language ``sh`` are run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from topospread.app.server import Server
from topospread.cli.main import run
from topospread.config.loading import load_settings

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = (
    "explain.md",
    "lint.md",
    "no-server.md",
    "rebalance.md",
    "scale-down.md",
    "simulate.md",
)

FOLLOWED: Final = ("lint.md",)
"""Pages with files and shell commands that their examples need."""

PROMPT: Final = "$ topospread "
_BLOCK: Final = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_VARYING: Final = re.compile(r"^(revision|trace):")


def page(name: str) -> str:
    """A page with the output of its commands, as they print it now."""
    text = (DOCS / name).read_text(encoding="utf-8")
    flags = {"listen": "127.0.0.1:0", "http": "off", "store": "memory:"}
    with (
        Server(load_settings(flags, {})) as server,
        TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        Path("examples").symlink_to(ROOT / "examples")
        _output(["apply", "-f", "examples/cluster", "--address", server.address])

        def followed(block: re.Match[str]) -> str:
            return _followed(block, server.address, whole=name in FOLLOWED)

        return _BLOCK.sub(followed, text)


def _followed(block: re.Match[str], address: str, *, whole: bool) -> str:
    """A block with what its commands print; what it writes or runs is done."""
    before, text = block[0].removesuffix(f"{block['text']}```"), block["text"]
    if block["language"] == "console":
        return f"{before}{_played(text, address)}```"
    if whole and block["file"]:
        Path(block["file"]).write_text(text, encoding="utf-8")
    elif whole and block["language"] == "sh":
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TOPOSPREAD_ADDRESS": address,
        }
        subprocess.run(["bash", "-ec", text], env=environment, check=True, capture_output=True)
    return block[0]


def _played(block: str, address: str) -> str:
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            arguments = shlex.split(line.removeprefix(PROMPT))
            if not _is_of_files(arguments):
                arguments += ["--address", address]
            lines += [line, *_output(arguments)]
    return "\n".join(lines) + "\n"


def _is_of_files(arguments: list[str]) -> bool:
    """Whether a command asks a server only where it is named."""
    if "--from" in arguments:
        return True
    return arguments[0] == "lint" and not {"--live", "--cluster"} & {*arguments}


def _output(arguments: list[str]) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        run(arguments)
    return [each for each in said.getvalue().splitlines() if not _VARYING.match(each)]


def main() -> None:
    """Write the pages."""
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
