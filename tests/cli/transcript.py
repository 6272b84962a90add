"""Command lines and what they print, as a person sees them, in files below `transcripts`.

A line of a transcript begins with

- ``# ``: what the commands below it show;
- ``$ ``: a command, in the folder with the files of `transcripts/files` and `examples`; lines with
  ``> `` continue it. `topospread` runs in this process, everything else in a shell;
- ``! ``: a line on stderr; ``[2]``: the exit code, where it is not 0;
- anything else: a line on stdout. Revisions, times and the like stand as `…`.

`pytest tests/cli/test_transcripts.py --record` writes what is printed now.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Command

FOLDER: Final = Path(__file__).with_name("transcripts")
FILES: Final = FOLDER / "files"

_HIDDEN: Final = (
    (re.compile(r'((?:revision|Revision|reservationId)(?:"?: +)"?)[\w-]{16,}'), r"\1…"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "…"),
    (re.compile(r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z\b"), "…"),
    (re.compile(r"(?<=  )(…|HELD UNTIL|EXPIRES) {2,}"), r"\1  "),
)
"""What differs from one run to the next."""


class Step(NamedTuple):
    """One command of a transcript, with the comments that stand before it."""

    comments: list[str]
    command: list[str]


def steps(text: str) -> Iterator[Step]:
    """The commands of a transcript; what they printed is left out."""
    comments: list[str] = []
    command: list[str] = []
    for line in text.splitlines():
        if command and not line.startswith("> "):
            yield Step(comments, command)
            comments, command = [], []
        if line.startswith("# "):
            comments.append(line)
        elif line.startswith(("$ ", "> ")):
            command.append(line)
    if command:
        yield Step(comments, command)


def printed(step: Step, topospread: Command, folder: Path, cluster: str) -> str:
    """A step with what its command prints now."""
    line = "\n".join(each[2:] for each in step.command)
    if line.startswith("topospread "):
        _, *words = shlex.split(line)
        said = topospread(*words)
        code, out, err = said.code, said.out, said.err
    else:
        ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=folder)
        code, out, err = ran.returncode, ran.stdout, ran.stderr
    shown = [*out.splitlines(), *(f"! {each}" for each in err.splitlines())]
    text = "\n".join(shown).replace(cluster, "CLUSTER").replace(str(folder), "FOLDER")
    for pattern, instead in _HIDDEN:
        text = pattern.sub(instead, text)
    blank = [""] * bool(step.comments)
    lines = [
        *blank,
        *step.comments,
        *step.command,
        *text.splitlines(),
        *[f"[{code}]"] * (code != 0),
    ]
    return "\n".join(lines) + "\n"
