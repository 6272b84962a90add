"""Generates the protobuf modules: as a hatch build hook, and by hand with `make proto`.

The compiler is older than the protobuf that tests and servers run on, so that its modules run on
the former major version as well. Both do not fit into one environment: an isolated build has the
compiler in its own, a checkout in .tools/build.

The `.proto` files are the one source of truth. Their paths are those of the API's packages
(`topospread/v1`), which Python cannot follow: `topospread` is the server there. So the modules that
protoc writes from them (`*_pb2.py`, `*_pb2_grpc.py` and both kinds of stub) are moved, and what
they import is renamed. They are never committed, and go into wheels as artifacts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTO_ROOT = "proto"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
_DECLARES_SERVICE = re.compile(r"^service\s+\w+", re.MULTILINE)


class Package(NamedTuple):
    """Where the modules of a directory of `.proto` files are.

    Attributes:
        protos: the directory, below `proto/`.
        root: what a module's dotted name is told from.
        modules: the directory of the modules, below `root`.
    """

    protos: str
    root: str
    modules: str


PUBLISHED = (
    Package("topospread/v1", "proto", "topospread_proto/v1"),
    Package("topospread/kubernetes/v1", "proto", "topospread_proto/kubernetes/v1"),
)
"""What callers need: it is in the client's distribution."""

INTERNAL = (
    Package("topospread/internal/v1", "server", "topospread/generated/internal/v1"),
    Package("third_party/cluster_autoscaler", "server", "topospread/generated/cluster_autoscaler"),
)
"""What the server alone needs."""


class ProtobufBuildHook(BuildHookInterface[Any]):
    """Runs protoc before a wheel or an editable install is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the modules and tell hatch to ship them although git ignores them."""
        del version
        if self.target_name != "wheel":
            return  # an sdist carries the .proto files; its wheel generates the modules anew
        root = Path(self.root)
        # A source distribution has the published packages alone.
        packages = [each for each in (*PUBLISHED, *INTERNAL) if (root / each.root).is_dir()]
        generate(root, packages)
        build_data["artifacts"].extend(f"/{PROTO_ROOT}/**/{pattern}" for pattern in GENERATED)


def generate(root: Path, packages: Sequence[Package] = (*PUBLISHED, *INTERNAL)) -> list[Path]:
    """Write the modules of all `.proto` files of some packages.

    Files whose text did not change are left untouched, so that a running process or a type
    checker's cache sees no needless change; modules whose `.proto` file is gone are removed.

    Args:
        root: the checkout, or what lies like it.
        packages: all that the files import from one another.

    Returns:
        The files that were written or removed.

    Raises:
        SystemExit: protoc refused a file; its own message stands above on stderr.
    """
    protos = root / PROTO_ROOT
    files = {each: sorted((protos / each.protos).glob("*.proto")) for each in packages}
    names = [path.relative_to(protos).as_posix() for found in files.values() for path in found]
    with tempfile.TemporaryDirectory(prefix="topospread-proto-") as made:
        out = Path(made)
        if names:
            _run_protoc(protos, names, out)
        changed: list[Path] = []
        for each in packages:
            fresh = _renamed(out / each.protos, packages)
            changed += _mirror(fresh, root / each.root / each.modules)
        return changed


def protoc(*arguments: str, python: Path | None = None) -> None:
    """Run the pinned compiler with the interpreter that has it.

    Raises:
        SystemExit: It refused a file; its own message stands above on stderr.
    """
    ran = subprocess.run([python or _interpreter(), "-m", "grpc_tools.protoc", *arguments])
    if ran.returncode != 0:
        sys.exit("protoc failed: correct the .proto file named above, then run `make proto`")


def include_path(root: Path) -> list[str]:
    """Protoc's options by which it finds our files and google.rpc's."""
    # google.rpc's own files come with the distribution of their modules.
    return [f"--proto_path={root}", f"--proto_path={_purelib(_interpreter())}"]


def _run_protoc(root: Path, protos: list[str], out: Path) -> None:
    python = _interpreter()
    messages = [f"--python_out={out}", f"--plugin={_plugin('protoc-gen-mypy', python)}"]
    messages.append(f"--mypy_out=quiet:{out}")
    paths = include_path(root)
    protoc(*paths, *messages, *protos, python=python)

    services = [p for p in protos if _DECLARES_SERVICE.search((root / p).read_text("utf-8"))]
    if services:
        stubs = [f"--plugin={_plugin('protoc-gen-mypy_grpc', python)}"]
        stubs += [f"--mypy_grpc_out=quiet:{out}", f"--grpc_python_out={out}"]
        protoc(*paths, *stubs, *services, python=python)


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


def _purelib(python: Path) -> str:
    """Where an interpreter has its packages."""
    if python == Path(sys.executable):
        return sysconfig.get_path("purelib")
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, check=True
    ).stdout.strip()


def _renamed(directory: Path, packages: Sequence[Package]) -> dict[str, str]:
    """The modules of a directory by file name, importing from where modules are."""
    modules = {each.protos.replace("/", "."): each.modules.replace("/", ".") for each in packages}
    names = "|".join(map(re.escape, modules))
    imports = re.compile(rf"^(from|import) ({names})(?= import )", re.MULTILINE)
    return {
        path.name: imports.sub(
            lambda found: f"{found[1]} {modules[found[2]]}", path.read_text("utf-8")
        )
        for path in directory.glob("*")
        if path.is_file()
    }


def _mirror(fresh: dict[str, str], target: Path) -> list[Path]:
    """Make the generated files of a directory these; return what changed."""
    stale = {path.name for pattern in GENERATED for path in target.glob(pattern)} - fresh.keys()
    changed = []
    for name, text in sorted(fresh.items()):
        path = target / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        # Renamed into place: whoever imports at this moment sees the old or the new module whole.
        target.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{name}.partial")
        partial.write_text(text, "utf-8")
        partial.replace(path)
        changed.append(path)
    for name in sorted(stale):
        (target / name).unlink()
    return [*changed, *(target / name for name in sorted(stale))]


if __name__ == "__main__":
    touched = generate(Path(__file__).resolve().parent)
    print(f"proto: {len(touched)} generated files changed")
