"""Modules of the `.proto` files in other languages, generated and built once for all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hatch_build import PROTO_ROOT, include_path, protoc
from tests.languages.instances import PROTOS
from tests.requirements import ROOT, without

HERE = Path(__file__).resolve().parent
TOOLS = ROOT / ".tools" / "languages"
PATH = os.pathsep.join([str(TOOLS / "bin"), os.environ.get("PATH", os.defpath)])
"""Where programs are: first in what was fetched because the machine had none."""
GO_MODULE = "module=github.com/topospread/topospread/gen/go"
GOOGLE = ("google/rpc/status.proto", "google/rpc/error_details.proto")


def installed(tool: Path) -> Path:
    """A tool of `make languages`; see `without` where it is missing."""
    if not tool.exists():
        without(str(tool.relative_to(ROOT)), target="languages")
    return tool


def generate(*options: str, more: tuple[str, ...] = ()) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PATH", PATH)  # a plugin may be a script of Node.js
        protoc(*include_path(ROOT / PROTO_ROOT), *options, *PROTOS, *more)


def run(*command: object, cwd: Path) -> None:
    ran = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory) -> Path:
    """Where the programs in Go are: `convert`, the example's `caller`, and `ask`."""
    messages = installed(TOOLS / "bin" / "protoc-gen-go")
    services = installed(TOOLS / "bin" / "protoc-gen-go-grpc")
    module = tmp_path_factory.mktemp("go") / "module"
    shutil.copytree(HERE / "go", module)
    shutil.copytree(ROOT / "examples" / "go", module / "caller")
    # Both are compiled with the service config, and `ask` has the example's channel.
    shutil.copy(ROOT / "docs" / "service-config.json", module / "caller")
    for each in ("channel.go", "service-config.json"):
        shutil.copy(module / "caller" / each, module / "ask")
    generate(
        f"--plugin={messages}",
        f"--plugin={services}",
        f"--go_out={module}",
        f"--go_opt={GO_MODULE}",
        f"--go-grpc_out={module}",
        f"--go-grpc_opt={GO_MODULE}",
    )
    programs = module / "bin"
    packages = ("./convert", "./caller", "./ask")
    run(ROOT / "tools" / "go", "build", "-o", f"{programs}/", *packages, cwd=module)
    return programs


@pytest.fixture(scope="session")
def typescript_program(tmp_path_factory) -> list[str]:
    """The command that converts in JavaScript, after the TypeScript compiler found no fault."""
    packages = TOOLS / "typescript" / "node_modules"
    plugin = installed(packages / ".bin" / "protoc-gen-es")
    project = tmp_path_factory.mktemp("typescript") / "project"
    shutil.copytree(HERE / "typescript", project)
    (project / "node_modules").symlink_to(packages)
    made = project / "made"
    made.mkdir()
    options = "--es_opt=target=ts,import_extension=js"
    generate(f"--plugin={plugin}", f"--es_out={made}", options, more=GOOGLE)
    node = shutil.which("node", path=PATH) or "node"
    run(node, packages / "typescript" / "bin" / "tsc", "--project", project, cwd=project)
    modules = [f"./made/{name.removesuffix('.proto')}_pb.js" for name in (*PROTOS, *GOOGLE)]
    return [node, str(project / "built" / "main.js"), *modules]


@pytest.fixture(scope="session")
def java_program(tmp_path_factory) -> list[str]:
    """The command that converts in Java, built beside all messages and stubs."""
    if not (shutil.which("javac") and shutil.which("mvn")):
        pytest.skip("Java is tried where a JDK and Maven are on PATH, and here they are not")
    compiler = installed(TOOLS / "java" / "protoc")
    plugin = installed(TOOLS / "java" / "protoc-gen-grpc-java")
    made = tmp_path_factory.mktemp("java")
    ours, google = include_path(ROOT / PROTO_ROOT)
    # This protoc, unlike that of grpcio-tools, has no files of google/protobuf with it.
    paths = (ours, google, f"{google}/grpc_tools/_proto")
    out = (f"--plugin={plugin}", f"--java_out={made}", f"--grpc-java_out={made}")
    run(compiler, *paths, *out, *PROTOS, cwd=made)
    classpath = os.pathsep.join([str(TOOLS / "java" / "jars" / "*"), str(made)])
    # Half the time of a compiler that is made to run for longer.
    quick = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xms512m", "-g:none")
    sources = (*made.rglob("*.java"), HERE / "java" / "Convert.java")
    run("javac", *quick, "-encoding", "UTF-8", "-cp", classpath, "-d", made, *sources, cwd=made)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Convert"]
