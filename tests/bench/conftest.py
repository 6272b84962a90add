"""The benches as a person would run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bench.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Completed:
    """A bench that ran to its end."""

    code: int
    out: str
    err: str


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., Completed]:
    """Run `python -m bench` with some arguments."""

    def run(*arguments: object) -> Completed:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Completed(code, *capsys.readouterr())

    return run
