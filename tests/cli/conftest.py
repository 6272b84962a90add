"""The command line, run in this process, with a server of its own."""

from __future__ import annotations

import io
import json
import os
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest
from jsonschema import Draft202012Validator

from tests.cli.manifests import CLUSTER
from tests.redis_server import ROOT
from tests.servers import served
from topospread.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SCHEMA: Final[dict[str, Any]] = json.loads((ROOT / "docs/output.schema.json").read_text())


@dataclass(frozen=True)
class CommandResult:
    """What a command line printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Command(Protocol):
    """Runs a command line."""

    def __call__(self, *arguments: str | Path, stdin: str = "") -> CommandResult: ...


def check_output(out: str, err: str) -> None:
    """Whatever a verb prints for programs is described by the schema."""
    documents = [json.loads(out)] if out else []
    last = err.splitlines()[-1:]
    documents += [json.loads(line) for line in last if line.startswith("{")]
    for document in documents:
        check_document(document)


def check_document(document: dict[str, Any]) -> None:
    """That it is of its kind; said by the schema of this kind alone, which is short."""
    ours = document["apiVersion"].startswith("topospread") or document["kind"] == "List"
    chosen = f"#/$defs/{document['kind'] if ours else 'KubernetesObject'}"
    validator = Draft202012Validator({"$defs": SCHEMA["$defs"], "$ref": chosen})
    wrong = [f"{each.json_path}: {each.message}" for each in validator.iter_errors(document)]
    assert wrong == []


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    with served() as server:
        yield server.address


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may depend on what the person who runs it has set."""
    for name in list(os.environ):
        if name.startswith("TOPOSPREAD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command as a person would type it."""

    def command(*arguments: str | Path, stdin: str = "") -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        if "json" in arguments:
            check_output(out, err)
        return CommandResult(code, out, err)

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


@pytest.fixture
def loaded(topospread: Command) -> Command:
    """The command, with a small cluster written."""
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write what the transcripts print now")
