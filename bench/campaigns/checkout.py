"""Another commit of this repository, set up beside this one, and a server of it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bench.processes import started
from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor import MethodDescriptor

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".tools" / "against"

_DESCRIBE: Final = """
import importlib, pkgutil, sys
import topospread_proto.v1 as api
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
files = {}
def add(file):
    if file.name not in files:
        for each in file.dependencies:
            add(each)
        file.CopyToProto(files.setdefault(file.name, FileDescriptorProto()))
for each in pkgutil.iter_modules(api.__path__):
    if each.name.endswith("_pb2"):
        add(importlib.import_module(f"{api.__name__}.{each.name}").DESCRIPTOR)
add(importlib.import_module("topospread.generated.cluster_autoscaler.expander_pb2").DESCRIPTOR)
sys.stdout.buffer.write(FileDescriptorSet(file=files.values()).SerializeToString())
"""
"""Prints the files of the API as a checkout has them, those that others import first."""


@dataclass(frozen=True)
class Checkout:
    """A commit that can be run.

    Attributes:
        name: of the commit.
        python: its interpreter, with the project in it.
    """

    name: str
    python: str

    @cached_property
    def api(self) -> Api:
        """Its methods and messages."""
        return Api(self._run("-c", _DESCRIBE))

    def command(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Run its command line in this checkout's root; exit code, stdout and stderr."""
        command = [self.python, "-m", "topospread", *arguments]
        ran = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()

    @contextmanager
    def serving(self, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """A server of it whose state is in memory; host:port of gRPC and of HTTP."""
        flags = [
            part
            for name, value in settings.items()
            for part in (f"--{name.replace('_', '-')}", value)
        ]
        where = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "error")
        command = ("-m", "topospread", "serve", *where, *flags)
        with started(command, {"TOPOSPREAD_STORE": "memory:"}, self.python) as running:
            assert running.output is not None
            for line in running.output:
                _, found, http = line.rstrip().partition(" http://")
                if found:
                    yield running.address, http
                    return
        raise BadInput(f"the server of {self.name} serves no HTTP")

    def _run(self, *arguments: str) -> bytes:
        return subprocess.run([self.python, *arguments], capture_output=True, check=True).stdout


DESCRIBING: Final = frozenset(("google.protobuf", "topospread.options.v1"))
"""Packages of what describes the API, and is in none of its messages."""


class Api:
    """The API as one commit has it, beside that of others in the same process.

    Attributes:
        methods: by path.
    """

    def __init__(self, described: bytes) -> None:
        files = FileDescriptorSet.FromString(described)
        pool: Any = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        self.methods: dict[str, MethodDescriptor] = {
            f"/{service.full_name}/{method.name}": method
            for file in files.file
            for service in pool.FindFileByName(file.name).services_by_name.values()
            for method in service.methods
        }
        self._answers = {
            path: GetMessageClass(method.output_type) for path, method in self.methods.items()
        }
        self.names = _names(files)

    def answer(self, path: str, raw: bytes) -> Any:
        """Parse an answer of a method."""
        return self._answers[path].FromString(raw)


def _names(files: FileDescriptorSet) -> set[str]:
    """Return a name for each method, field and value of an enum that callers see."""
    found: set[str] = set()
    for file in files.file:
        if file.package in DESCRIBING:
            continue
        for service in file.service:
            found |= {f"method {service.name}.{each.name}" for each in service.method}
        for message in file.message_type:
            found |= {f"field {message.name}.{each.name}" for each in message.field}
        for enum in file.enum_type:
            found |= {f"value {enum.name}.{each.name}" for each in enum.value}
    return found


def this_checkout() -> Checkout:
    """Return what is run from here, with changes that are not committed."""
    return Checkout("this checkout", sys.executable)


def checkout_of(revision: str) -> Checkout:
    """Clone a commit below .tools and set it up, unless that was done before.

    Raises:
        BadInput: there is no such commit, or its setup fails.
    """
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.returncode:
        raise BadInput(f"{revision}: no commit of this repository")
    commit = found.stdout.strip()
    folder = FOLDER / commit[:12]
    if not (folder / ".git").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        _git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder))
    for command in (["git", "checkout", "--quiet", "--detach", commit], ["make", "setup"]):
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise BadInput(f"{folder}: {' '.join(command)} fails: {ran.stderr.strip()[-2000:]}")
    return Checkout(commit[:12], str(folder / ".venv" / "bin" / "python"))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
