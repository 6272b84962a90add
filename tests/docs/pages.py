"""Reads the Markdown pages: their links, headings and blocks of code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NOT_WORDS = re.compile(r"[^\w\- ]")


def text(page: Path) -> str:
    """A page as it is written."""
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _BLOCK.sub("", text(page))


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code in one language."""
    return [body for found, body in _BLOCK.findall(text(page)) if found == language]


def links(page: Path) -> list[tuple[str, str]]:
    """Links within the repository: (path, fragment), either may be empty."""
    found = [link for link in _LINK.findall(prose(page)) if "://" not in link]
    return [(path, fragment) for path, _, fragment in (link.partition("#") for link in found)]


def anchors(page: Path) -> set[str]:
    """What links may name after #."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {_NOT_WORDS.sub("", heading.lower()).replace(" ", "-") for heading in headings}


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
