"""Reads the Markdown pages: their links, headings and blocks of code."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        ROOT / name / "README.md"
        for name in ("proto", "bench", "tests", "tools", "deploy", "examples")
    ),
]

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "getting-started.md"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!-- (not run|file|first): (.*?) -->\n\Z")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_NOT_WORDS = re.compile(r"[^\w\- ]")


def named(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: after its fence.
        text: what is in it.
        line: of its fence in the page.
        not_run: why no test follows it; empty where one does.
        file: of which file this is the content; empty where it is none.
        first: PAGE#HEADING of the blocks that a reader has followed before; empty where none.
    """

    language: str
    text: str
    line: int
    not_run: str = ""
    file: str = ""
    first: str = ""


def text(page: Path) -> str:
    """A page as it is written."""
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _BLOCK.sub("", text(page))


def all_blocks(page: Path) -> list[Block]:
    """The blocks of code, in order, each with the remark before it that readers do not see."""
    written = text(page)
    found = []
    for block in _BLOCK.finditer(written):
        before = written[: block.start()]
        remark = _REMARK.search(before)
        known = {remark[1].replace(" ", "_"): remark[2]} if remark else {}
        found.append(Block(block[1], block[2], before.count("\n") + 1, **known))
    return found


def under(page: Path, anchor: str) -> list[Block]:
    """The blocks of the part of a page that links name by #anchor, up to the next heading."""
    written = text(page)
    headings = [
        (written.count("\n", 0, each.start()) + 1, _anchor(each[1]))
        for each in _HEADING.finditer(written)
    ]
    (at,) = [number for number, (_, found) in enumerate(headings) if found == anchor]
    begin, end = (line for line, _ in [*headings, (sys.maxsize, "")][at : at + 2])
    return [each for each in all_blocks(page) if begin < each.line < end]


def blocks(page: Path, language: str) -> list[str]:
    """The texts of the blocks of code in one language."""
    return [each.text for each in all_blocks(page) if each.language == language]


def links(page: Path) -> list[tuple[str, str]]:
    """Links within the repository: (path, fragment), either may be empty."""
    found = [link for link in _LINK.findall(prose(page)) if "://" not in link]
    return [(path, fragment) for path, _, fragment in (link.partition("#") for link in found)]


def anchors(page: Path) -> set[str]:
    """What links may name after #."""
    return {_anchor(heading) for heading in _HEADING.findall(prose(page))}


def _anchor(heading: str) -> str:
    return _NOT_WORDS.sub("", heading.lower()).replace(" ", "-")


def commands(page: Path, program: str) -> list[list[str]]:
    """The command lines of one program in shell blocks, as arguments without the program."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == program:
                ends = {"|", "||", "&&", "&", ">", "<"}
                stop = next((at for at, word in enumerate(words) if word in ends), len(words))
                found.append(words[1:stop])
    return found
