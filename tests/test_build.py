"""What the build makes of the .proto files, and what the package asks of those who install it."""

from __future__ import annotations

import re
import tomllib

import pytest

from hatch_build import INTERNAL, PUBLISHED, Package, generate
from tests.redis_server import ROOT

PROTO = ROOT / "proto"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
SERVICE = 'syntax = "proto3";\nmessage Q {}\nservice S { rpc Ask(Q) returns (Q); }\n'
MESSAGE = 'syntax = "proto3";\nmessage M { string name = 1; }\n'


def floor(package: str) -> tuple[int, ...]:
    (wanted,) = (line for line in PROJECT["dependencies"] if line.startswith(package + ">="))
    return tuple(int(part) for part in re.findall(r">=([\d.]+)", wanted)[0].split("."))


def versions_named(pattern: str, files: str) -> set[tuple[int, ...]]:
    named = set()
    packages = [ROOT / each.root / each.modules for each in (*PUBLISHED, *INTERNAL)]
    for path in (path for package in packages for path in package.glob(files)):
        found = re.search(pattern, path.read_text("utf-8"))
        assert found, f"{path.name} names no version"
        named.add(tuple(int(part) for part in found[1].split(".")))
    return named


def test_the_floors_are_what_the_generated_modules_ask_for():
    assert {floor("protobuf")} == versions_named(r"Protobuf Python Version: ([\d.]+)", "*_pb2.py")
    grpc_versions = versions_named(r"GRPC_GENERATED_VERSION = '([\d.]+)'", "*_pb2_grpc.py")
    assert {floor("grpcio")} == grpc_versions


def test_the_client_needs_grpc_and_protobuf_only():
    names = {re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]}
    assert names == {"googleapis-common-protos", "grpcio", "protobuf"}


def test_the_compiler_is_pinned_alike_for_the_build_and_for_development():
    for pin in PYPROJECT["build-system"]["requires"]:
        assert pin in PYPROJECT["dependency-groups"]["build"]


APART = [Package("asking/v1", "server", "made/asking"), Package("things/v1", "proto", "things/v1")]


@pytest.fixture
def root(tmp_path):
    """A checkout with two packages of .proto files."""
    for each in APART:
        (tmp_path / "proto" / each.protos).mkdir(parents=True)
    return tmp_path


def test_modules_are_written_where_their_package_has_them(root):
    (root / "proto/asking/v1/asking.proto").write_text(SERVICE)
    (root / "proto/things/v1/things.proto").write_text(MESSAGE)

    generate(root, APART)

    assert sorted(p.name for p in (root / "server/made/asking").iterdir()) == [
        "asking_pb2.py",
        "asking_pb2.pyi",
        "asking_pb2_grpc.py",
        "asking_pb2_grpc.pyi",
    ]
    assert sorted(p.name for p in (root / "proto/things/v1").iterdir()) == [
        "things.proto",
        "things_pb2.py",
        "things_pb2.pyi",
    ]


def test_modules_import_one_another_from_where_they_are(root):
    (root / "proto/things/v1/things.proto").write_text(MESSAGE)
    imports = 'import "things/v1/things.proto";\n'
    asking = SERVICE.replace("message Q {}", imports + "message Q { M what = 1; }")
    (root / "proto/asking/v1/asking.proto").write_text(asking)

    generate(root, [Package("asking/v1", "server", "made/asking"), MOVED])

    for written in ("asking_pb2.py", "asking_pb2.pyi"):
        text = (root / "server/made/asking" / written).read_text("utf-8")
        assert "elsewhere.things" in text
        assert "from things.v1" not in text


MOVED = Package("things/v1", "server", "elsewhere/things")


def test_only_what_changed_is_written_and_what_lost_its_proto_is_removed(root):
    (root / "proto/things/v1/a.proto").write_text(MESSAGE)
    (root / "proto/things/v1/b.proto").write_text(MESSAGE.replace("M", "N"))
    generate(root, APART)
    assert generate(root, APART) == []

    (root / "proto/things/v1/a.proto").unlink()

    assert {p.name for p in generate(root, APART)} == {"a_pb2.py", "a_pb2.pyi"}
    assert not list((root / "proto/things/v1").glob("a_*"))
    assert (root / "proto/things/v1/b_pb2.py").exists()


def test_a_proto_that_does_not_compile_leaves_the_modules_as_they_were(root, capfd):
    (root / "proto/things/v1/a.proto").write_text(MESSAGE)
    generate(root, APART)
    before = (root / "proto/things/v1/a_pb2.py").read_bytes()
    (root / "proto/things/v1/a.proto").write_text(MESSAGE + "message {")

    with pytest.raises(SystemExit, match="protoc failed"):
        generate(root, APART)

    assert "a.proto:3" in capfd.readouterr().err
    assert (root / "proto/things/v1/a_pb2.py").read_bytes() == before
