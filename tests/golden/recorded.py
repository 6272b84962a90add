"""The recorded answers, and how those of today differ from them."""

from __future__ import annotations

import contextlib
import difflib
import gzip
import io
import json
import os
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.golden.commands import all_commands, comparable
from tests.golden.questions import ROOT, SETTINGS, Conversation, ask_everything, ask_refusals
from tests.servers import served
from topospread.cli.main import run

FOLDER: Final = Path(__file__).parent / "recorded"

PARTS: Final = ("sample", "report", "large", "methods", "refusals", "commands")
MAX_LINES: Final = 60
"""Lines of a difference that are printed."""

RECORD: Final = "python -m tests.golden --record"


def found() -> dict[str, dict[str, Any]]:
    """Ask a server of its own; its answers by part and title."""
    with served(http="127.0.0.1:0", **SETTINGS) as server:
        talk = Conversation(server.address, server.http_address)
        try:
            ask_everything(talk)
            ask_refusals(talk)
        finally:
            talk.close()
        return {**talk.answers, "commands": _run_commands(server.address)}


def _run_commands(address: str) -> dict[str, Any]:
    """Run each command line in this process, from the root of the repository."""
    found = {}
    own = {name: value for name, value in os.environ.items() if "TOPOSPREAD" not in name}
    with contextlib.chdir(ROOT), mock.patch.dict(os.environ, own, clear=True):
        for title, arguments in all_commands(address).items():
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(arguments)
            found[title] = comparable(code, out.getvalue(), err.getvalue(), address)
    return found


def read(part: str) -> dict[str, Any]:
    """Return the answers that were recorded."""
    answers: dict[str, Any] = json.loads(gzip.decompress(_file(part).read_bytes()))
    return answers


def write(part: str, answers: dict[str, Any]) -> None:
    """Record answers; the same answers make the same bytes."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(answers, indent=1, ensure_ascii=False, sort_keys=True)
    _file(part).write_bytes(gzip.compress(text.encode(), mtime=0))


def difference(part: str, answers: dict[str, Any]) -> str:
    """Return what differs from the recorded answers, as a diff for people; empty: nothing."""
    expected = read(part) if _file(part).exists() else {}
    lines: list[str] = []
    for title in sorted({*expected, *answers}):
        before, now = (_lines(each.get(title)) for each in (expected, answers))
        if before != now:
            lines += difflib.unified_diff(
                before, now, f"{part}: {title} (recorded)", f"{part}: {title} (now)", lineterm=""
            )
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


def _lines(answer: Any) -> list[str]:
    if answer is None:
        return []
    return json.dumps(answer, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def _file(part: str) -> Path:
    return FOLDER / f"{part}.json.gz"
