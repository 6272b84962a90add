"""Generates the protobuf modules: as a hatch build hook, and by hand with `make proto`.

The compiler is older than the protobuf that tests and servers run on, so that its modules run on
the former major version as well. Both do not fit into one environment: an isolated build has the
compiler in its own, a checkout in .tools/build.

The `.proto` files are the one source of truth. What protoc writes from them (`*_pb2.py`,
`*_pb2_grpc.py` and both kinds of stub) lies beside them, is never committed, and goes into wheels
as an artifact. A module's name follows the path of its proto file below `proto/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO_ROOT = "proto"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
_DECLARES_SERVICE = re.compile(r"^service\s+\w+", re.MULTILINE)


class ProtobufBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs protoc before a wheel or an editable install is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the modules and tell hatch to ship them although git ignores them."""
        del version
        if self.target_name != "wheel":
            return  # an sdist carries the .proto files; its wheel generates the modules anew
        generate(Path(self.root) / PROTO_ROOT)
        build_data["artifacts"].extend(f"/{PROTO_ROOT}/**/{pattern}" for pattern in GENERATED)


def generate(root: Path) -> list[Path]:
    """Write the modules of every `.proto` file below `root` beside it.

    Files whose text did not change are left untouched, so that a running process or a type
    checker's cache sees no needless change; modules whose `.proto` file is gone are removed.

    Returns:
        The files that were written or removed.

    Raises:
        SystemExit: protoc refused a file; its own message stands above on stderr.
    """
    protos = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.proto"))
    with tempfile.TemporaryDirectory(prefix="topospread-proto-") as out:
        if protos:
            _run_protoc(root, protos, Path(out))
        return _mirror(Path(out), root)


def protoc(*arguments: str, python: Path | None = None) -> None:
    """Run the pinned compiler with the interpreter that has it.

    Raises:
        SystemExit: It refused a file; its own message stands above on stderr.
    """
    ran = subprocess.run([python or _interpreter(), "-m", "grpc_tools.protoc", *arguments])
    if ran.returncode != 0:
        sys.exit("protoc failed: correct the .proto file named above, then run `make proto`")


def _run_protoc(root: Path, protos: list[str], out: Path) -> None:
    python = _interpreter()
    messages = [f"--python_out={out}", f"--plugin={_plugin('protoc-gen-mypy', python)}"]
    messages.append(f"--mypy_out=quiet:{out}")
    protoc(f"--proto_path={root}", *messages, *protos, python=python)

    services = [p for p in protos if _DECLARES_SERVICE.search((root / p).read_text("utf-8"))]
    if services:
        stubs = [f"--plugin={_plugin('protoc-gen-mypy_grpc', python)}"]
        stubs += [f"--mypy_grpc_out=quiet:{out}", f"--grpc_python_out={out}"]
        protoc(f"--proto_path={root}", *stubs, *services, python=python)


def _interpreter() -> Path:
    """The checkout's own compiler where there is one, whatever else is installed beside us."""
    checkout = Path(__file__).resolve().parent / ".tools" / "build" / "bin" / "python"
    return checkout if checkout.exists() else Path(sys.executable)


def _plugin(name: str, python: Path) -> str:
    """`NAME=PATH` of a protoc plugin beside an interpreter or, in an isolated build, on PATH."""
    search = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=search)
    if found is None:
        sys.exit(f"{name} not found: install mypy-protobuf (`make setup` does)")
    return f"{name}={found}"


def _mirror(out: Path, root: Path) -> list[Path]:
    """Make the generated files below `root` equal those below `out`; return what changed."""
    fresh = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    stale = {p.relative_to(root) for pattern in GENERATED for p in root.rglob(pattern)} - fresh
    changed = [
        root / path
        for path in sorted(fresh)
        if not (root / path).is_file() or (root / path).read_bytes() != (out / path).read_bytes()
    ]
    for target in changed:
        # Renamed into place: whoever imports at this moment sees the old or the new module whole.
        partial = target.with_name(f".{target.name}.partial")
        shutil.copyfile(out / target.relative_to(root), partial)
        partial.replace(target)
    for path in sorted(stale):
        (root / path).unlink()
    return [*changed, *(root / path for path in sorted(stale))]


if __name__ == "__main__":
    root = Path(__file__).resolve().parent / PROTO_ROOT
    touched = generate(root)
    print(f"proto: {len(touched)} generated files changed below {root.name}/")
