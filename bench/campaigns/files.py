"""Changed files through the command line: what reads them, and the verbs as a person types them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from bench.campaigns.campaign import Outcome, campaign, run, seed_option
from bench.campaigns.documents import EXAMPLES, changed_file
from bench.campaigns.findings import Findings, resident
from tests.servers import served
from topospread.cli import manifest_files, manifest_objects
from topospread.cli.errors import BadInput
from topospread.cli.main import run as run_topospread
from topospread.cli.manifest_objects import FieldValidation

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final[tuple[tuple[str, ...], ...]] = (
    ("apply",),
    ("apply", "--replace"),
    ("apply", "-o", "json"),
    ("delete",),
    ("evaluate",),
    ("evaluate", "-o", "yaml", "--validate=ignore"),
    ("explain",),
    ("explain", "-o", "json"),
    ("simulate",),
    ("simulate", "--validate=ignore"),
    ("rank-deletions", "--delete-count", "1"),
)
ENDS: Final = {0, 1, 2}
"""Done, no node fits, bad input: nothing else may come of a file."""

HANGS: Final = 60.0
"""Seconds."""

VERB_EVERY, PROCESS_EVERY = 10, 500

_UNPRINTABLE: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class Files:
    """Changed files for one server.

    Args:
        address: of the server, which verbs are asked of.
        seed: of all that is random.
    """

    def __init__(self, address: str, seed: int) -> None:
        self._server = ("--address", address, "--cluster", "files", "--timeout", str(HANGS))
        self._random = Random(seed)
        self.found = Findings()

    def run(self, files: int) -> Findings:
        """Read so many; one in ten with a verb, some of these in a process of their own."""
        half = 0
        for example in EXAMPLES[:2]:
            _here(["apply", "-f", str(example), *self._server])
        with TemporaryDirectory() as folder:
            path = Path(folder) / "input.yaml"
            for number in range(files):
                content = changed_file(self._random)
                path.write_bytes(content)
                began = time.monotonic()
                if number % VERB_EVERY == 0:
                    apart = number % PROCESS_EVERY == 0
                    self._verb((*self._random.choice(VERBS), "-f", str(path)), content, apart=apart)
                else:
                    self._read(str(path), content)
                if time.monotonic() - began > HANGS:
                    self._fault("takes too long", content)
                self.found.sent += 1
                if number == files // 2:
                    half = resident()
        self.found.grown = resident() - half
        return self.found

    def _read(self, path: str, content: bytes) -> None:
        try:
            manifests = manifest_files.read([path])
            manifest_objects.storable_objects(manifests, FieldValidation.STRICT)
            manifest_objects.manifest_pods(manifests, FieldValidation.STRICT)
        except BadInput as refused:
            self.found.codes["refused"] += 1
            if not refused.message.strip():
                self._fault("refused without a word", content)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._fault(repr(error), content)
        else:
            self.found.codes["read"] += 1

    def _verb(self, arguments: Sequence[str], content: bytes, *, apart: bool) -> None:
        try:
            ended = _apart if apart else _here
            code, out, err = ended([*arguments, *self._server])
        except Exception as error:  # noqa: BLE001 - as above
            self._fault(f"{arguments[0]}: {error!r}", content)
            return
        self.found.codes[f"{arguments[0]} {code}"] += 1
        if code not in ENDS:
            self._fault(f"{arguments[0]} ended {code}: {err}", content)
        elif code == 2 and not _complains(arguments, err) and "not found" not in out:
            self._fault(f"{arguments[0]} says {err[:200]!r}", content)
        elif "Traceback" in err or _UNPRINTABLE.search(out + err):
            self._fault(f"{arguments[0]} prints {(out + err)[:1000]!r}", content)

    def _fault(self, what: str, content: bytes) -> None:
        self.found.faults.append(f"{what}: {content[:2000]!r}")


def _complains(arguments: Sequence[str], err: str) -> bool:
    """Whether a command says what is wrong: to a program with a last line of JSON."""
    if "json" not in arguments:
        return "topospread: " in err
    last = json.loads(err.splitlines()[-1])
    return last["kind"] == "Error" and bool(last["error"]["message"].strip())


def _here(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Code, stdout and stderr of a command in this process."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace")
    )
    with redirect_stdout(out), redirect_stderr(err):
        code = run_topospread(arguments)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return code, texts[0], texts[1]


def _apart(arguments: Sequence[str]) -> tuple[int, str, str]:
    """The same in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "topospread", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS * 2,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    return ended.returncode, ended.stdout, ended.stderr


@campaign(
    "files",
    click.option("--files", type=click.IntRange(1), default=20_000, show_default=True),
    seed_option,
)
def command(files: int, seed: int) -> Outcome:
    """Give mutated files to the command line; what is neither read nor refused is a finding."""
    with served() as server:
        return Files(server.address, seed).run(files).outcome()


if __name__ == "__main__":
    sys.exit(run(command))
