"""A gigabyte that is given to a verb is refused before it is in memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest

GIB = 1 << 30
MEMORY = 1 << 31
"""Bytes of address space: what a verb needs by itself, and far less than a GiB of objects."""

SAID = "too much to read at once: at most 512 MiB of JSON, or 64 MiB of YAML"


SMALL = [
    sys.executable,
    "-c",
    f"""\
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from topospread.cli.main import main
main()
""",
]
"""The command, with so much memory."""


@pytest.mark.parametrize("begin", [b"", b"kind: List\n", b'{"kind":"List","items":['])
def test_file_over_the_limit_is_refused(tmp_path, begin):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(GIB)
    ended = subprocess.run(
        [*SMALL, "apply", "-f", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"topospread: {path}: {SAID}")
    assert ended.stderr.count("\n") == 1


def test_pipe_over_the_limit_is_refused():
    sent = 0
    with subprocess.Popen(
        [*SMALL, "apply", "-f", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        piece = b"kind: Pod\n---\n" * 100_000
        with suppress(BrokenPipeError):
            while sent < GIB:
                sent += process.stdin.write(piece)
        with suppress(BrokenPipeError):
            process.stdin.close()
        said = process.stderr.read().decode()
    assert process.returncode == 2
    assert said.startswith(f"topospread: standard input: {SAID}")
    assert sent < GIB // 4
