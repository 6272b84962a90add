"""`topospread serve` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPOSPREAD = [sys.executable, "-m", "topospread"]


def environment(**variables: str) -> dict[str, str]:
    """The test's own environment, without settings of the person who runs it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPOSPREAD_")}
    return {**kept, **variables}


def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [*TOPOSPREAD, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=environment(**variables),
    )


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a port that the system chooses, and its address; ended with SIGKILL at worst."""
    command = [*TOPOSPREAD, "serve", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(**variables)
    ) as process:
        try:
            assert process.stdout is not None
            said = re.search(r"listens on (\S+)", process.stdout.readline())
            assert said, "the server ended without serving"
            yield process, said.group(1)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
