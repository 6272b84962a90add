"""The command line, run in this process, with a server of its own."""

from __future__ import annotations

import io
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.servers import served
from topospread.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Said:
    """What a command line printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Command(Protocol):
    """Runs a command line."""

    def __call__(self, *arguments: str | Path, stdin: str = "") -> Said: ...


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    with served() as server:
        yield server.address


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may depend on what the person who runs it has set."""
    for name in ("ADDRESS", "CLUSTER", "CONFIG", "STORE", "LISTEN", "HTTP"):
        monkeypatch.delenv(f"TOPOSPREAD_{name}", raising=False)


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command as a person would type it."""

    def command(*arguments: str | Path, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return command


@pytest.fixture
def cluster() -> str:
    """The name of a cluster of the test's own."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def topospread(
    bare: Command, address: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command with the server and the cluster in its environment."""
    monkeypatch.setenv("TOPOSPREAD_ADDRESS", address)
    monkeypatch.setenv("TOPOSPREAD_CLUSTER", cluster)
    return bare
