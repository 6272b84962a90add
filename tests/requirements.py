"""What tests need beside Python and a machine may lack.

A program that `make` fetches is, where it is missing, a skip that names the target, and a failure
with CI=true. What only a machine can have is a skip everywhere.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
FETCHED: Final = ROOT / ".tools" / "bin"


def need(program: str, *, target: str = "") -> str:
    """Return the path of a program on PATH, or that a target of make left in `FETCHED`.

    The target has the program's name unless it is given.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(FETCHED)])
    return shutil.which(program, path=path) or without(program, target=target or program)


def without(missing: str, *, target: str) -> NoReturn:
    """Skip a test for lack of what a target of make fetches; in CI, fail it."""
    text = f"{missing} is missing: `make {target}` fetches it, or says why not"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def machine_has(program: str) -> pytest.MarkDecorator:
    """Return a mark that skips tests where a program is not on PATH."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} on PATH")
