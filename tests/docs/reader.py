"""Follows the pages as a reader does: in a shell of a checkout, with a server in another."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from tests.docs.pages import ROOT, under
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.apiserver.server import ApiServer
    from tests.docs.pages import Block

GRPC: Final = "127.0.0.1:7946"
HTTP: Final = "127.0.0.1:7947"
STATE: Final = "/tmp/topospread"
"""What the pages say where tests take a free port, and a folder of their own."""

LANGUAGES: Final = ROOT / ".tools" / "languages"
PATH: Final = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), str(LANGUAGES / "fetched" / "go" / "go" / "bin")]
)
"""Last the Go that `make languages` fetched where the machine had none."""

OF_OTHERS: Final = ("go", "grpcurl", "ghz", ".protoc/bin/pip", ".protoc/bin/python")
"""The programs that find what they need where `make languages` was."""

_LASTS: Final = re.compile(r"^(?:\.venv/bin/)?topospread (serve|watch)\b")
_LISTEN: Final = re.compile(r"\b(?:127\.0\.0\.1|0\.0\.0\.0):79\d\d\b")
_VARYING: Final = re.compile(r"^(revision|trace):")
_REVISION: Final = re.compile(r"\b[A-Za-z0-9_-]{60,}")
_CODE: Final = re.compile(r"#.*\bexit code (\d+)")
_CHECKOUT: Final = {".git", "build", "dist", ".hypothesis"}
"""What is made in a checkout, or is of no use to a reader."""


class Reader:
    """Somebody who follows a page, block after block.

    Each shell block begins in the folder, and with the variables, where the one before it ended.
    A command that fails is a failure, unless the page tells its exit code in a comment
    (`# exit code 1`).

    Attributes:
        folder: where the reader is.
        missing: the programs without which blocks were left out.
    """

    def __init__(self, parent: Path, api: ApiServer) -> None:
        """Come to a checkout in a folder of the test's own, with a kubeconfig for an API server.

        It is one of links, so that what a page writes beside the sources is not left there.
        """
        self._parent = parent
        self.folder = parent / "topospread"
        self.folder.mkdir()
        for each in ROOT.iterdir():
            if each.name not in {*_CHECKOUT, ".venv"}:
                (self.folder / each.name).symlink_to(each)
        (self.folder / ".venv").symlink_to(sys.prefix)
        (parent / "home" / ".kube").mkdir(parents=True)
        (parent / "home" / ".kube" / "config").write_text(json.dumps(_kubeconfig(api.url)))
        self._variables = _variables(parent / "home")
        self._server: subprocess.Popen[str] | None = None
        self._said = {STATE: str(parent / "state")}
        self.missing: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            assert _interrupted(self._server) == 0

    @property
    def address(self) -> str:
        """Of the server that the reader has started."""
        return self._said[GRPC]

    def follow(self, block: Block) -> None:
        """Do what a block says, and what its page sends the reader to before."""
        if block.first:
            page, _, heading = block.first.partition("#")
            for each in under(ROOT / "docs" / page, heading):
                self.follow(each)
        if block.file:
            (self.folder / block.file).write_text(self._here(block.text), encoding="utf-8")
        elif block.language in ("sh", "console") and (needed := _of_others(block.text)):
            self.missing |= needed
        elif block.language == "sh":
            self._shell(block)
        elif block.language == "console":
            self._console(block.text)
        elif block.language == "python":
            self._run(["python", "-"], block.text)

    def _shell(self, block: Block) -> None:
        if lasting := _LASTS.match(_last_command(block.text)):
            self._lasting(lasting[1], block.text)
        else:
            self._script(block.text)

    def _script(self, text: str) -> None:
        codes, after = self._parent / "codes", self._parent / "after"
        codes.write_text("")
        script = (
            f"set -uao pipefail\ntrap 'echo $? >>{shlex.quote(str(codes))}' ERR\n{self._here(text)}"
            f"\nenv -0 >{shlex.quote(str(after))}\n"
        )
        said = self._run(["bash", "-c", script])
        assert codes.read_text().split() == _CODE.findall(text), f"{text}\n{said}"
        found = (each.partition("=") for each in after.read_text().split("\0") if each)
        self._variables = {name: value for name, _, value in found}
        self.folder = self.folder.__class__(self._variables["PWD"])

    def _console(self, text: str) -> None:
        """Compare what commands print with what the page shows."""
        shown: list[str] = []
        for command in prompts(text):
            said = self._run(["bash", "-c", f"{self._here(command)} 2>&1"], check=False)
            for here, there in self._said.items():
                said = said.replace(there, here)
            lines = said.rstrip("\n").splitlines()
            shown += [f"$ {command}", *(each for each in lines if not _VARYING.match(each))]
        expected, found = (
            _REVISION.sub("REVISION", each).splitlines() for each in (text, "\n".join(shown))
        )
        differs = "\n".join(difflib.unified_diff(expected, found, lineterm=""))
        assert not differs, f"where `make docs` writes the page, run it\n{differs}"

    def _run(self, command: list[str], text: str = "", *, check: bool = True) -> str:
        """Run a command to its end; what it printed on stdout."""
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=self._variables,
            input=self._here(text),
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
        )
        assert not check or ran.returncode == 0, f"{command[-1]}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def _lasting(self, verb: str, text: str) -> None:
        """Start what lasts, and end it with Ctrl-C, at once but for the reader's own server."""
        text = _LISTEN.sub("127.0.0.1:0", self._here(text)) if verb == "serve" else self._here(text)
        with (self._parent / "errors").open("w") as errors:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self.folder,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        if verb != "serve":
            assert process.stdout.readline(), (self._parent / "errors").read_text()
            code = _interrupted(process)
            assert code == 130, (self._parent / "errors").read_text()
            return
        said: dict[str, str] = {}
        for line in process.stdout:
            if found := re.search(r"listens on (\S+)", line):
                said[GRPC] = found[1]
            elif found := re.search(r"metrics.* http://(\S+)", line):
                said[HTTP] = found[1]
            elif line.startswith("store ") and said:
                break
        assert said, (self._parent / "errors").read_text()
        if self._server is not None:
            assert _interrupted(process) == 0, (self._parent / "errors").read_text()
            return
        self._server = process
        self._said |= said
        self._variables |= {"TOPOSPREAD_ADDRESS": said[GRPC]}

    def _here(self, text: str) -> str:
        """A text of a page as it has to be here."""
        for there, here in self._said.items():
            text = text.replace(there, here)
        return text


def _of_others(text: str) -> set[str]:
    """The programs in a block that find nothing, because `make languages` was not here."""
    if (LANGUAGES / f".stamp-documented-{sys.implementation.cache_tag}").exists():
        return set()
    begins = r"(?:^|^\$ |&& )"
    return {each for each in OF_OTHERS if re.search(f"{begins}{each} ", text, re.MULTILINE)}


def prompts(text: str) -> list[str]:
    """The commands of a console block, without their prompts."""
    found = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        command = line.removeprefix("$ ")
        while not _whole(command):
            command += "\n" + next(lines)
        found.append(command)
    return found


def _whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def _interrupted(process: subprocess.Popen[str]) -> int:
    """Press Ctrl-C where it runs; its exit code."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": {"server": url}}],
        "users": [{"name": "reader", "user": {}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "reader"}}],
        "current-context": "prod",
    }


def _variables(home: Path) -> dict[str, str]:
    """A reader's variables: nothing of the person's who runs the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOPOSPREAD_", "OTEL_", "XDG_", "MAKE", "MFLAGS"))
        and name not in {"KUBECONFIG", "GOBIN", "GOPATH"}
    }
    return {
        **kept,
        "HOME": str(home),
        "PATH": PATH,
        # Targets are looked up and not made: they made what runs this.
        "MAKEFLAGS": "n",
        "TOPOSPREAD_LISTEN": "127.0.0.1:0",
        "TOPOSPREAD_HTTP": "127.0.0.1:0",
        # What `make languages` has fetched, so that nothing is asked of the network.
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(LANGUAGES / "documented" / "wheels"),
        "GOMODCACHE": str(LANGUAGES / "go" / "modules"),
        "GOCACHE": str(LANGUAGES / "go" / "builds"),
        "GOFLAGS": "-modcacherw -buildvcs=false -trimpath -ldflags=-s",
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOSUMDB": "off",
        "GOPROXY": f"file://{LANGUAGES / 'go' / 'modules' / 'cache' / 'download'}",
    }


def _last_command(text: str) -> str:
    return text.replace("\\\n", " ").rstrip().splitlines()[-1]
