"""What the build makes of the .proto files, and what the package asks of those who install it."""

from __future__ import annotations

import re
import tomllib

import pytest

from hatch_build import generate
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
    for path in PROTO.rglob(files):
        found = re.search(pattern, path.read_text("utf-8"))
        assert found, f"{path.name} names no version"
        named.add(tuple(int(part) for part in found[1].split(".")))
    return named


def test_the_floors_are_what_the_generated_modules_ask_for():
    assert {floor("protobuf")} == versions_named(r"Protobuf Python Version: ([\d.]+)", "*_pb2.py")
    grpc_versions = versions_named(r"GRPC_GENERATED_VERSION = '([\d.]+)'", "*_pb2_grpc.py")
    assert {floor("grpcio")} == grpc_versions


def test_the_client_needs_grpcio_and_protobuf_only():
    names = {re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]}
    assert names == {"grpcio", "protobuf"}


def test_the_compiler_is_pinned_alike_for_the_build_and_for_development():
    for pin in PYPROJECT["build-system"]["requires"]:
        assert pin in PYPROJECT["dependency-groups"]["build"]


def test_modules_are_written_beside_their_proto(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1/asking.proto").write_text(SERVICE)
    (tmp_path / "v1/things.proto").write_text(MESSAGE)

    generate(tmp_path)

    assert sorted(p.name for p in (tmp_path / "v1").iterdir()) == [
        "asking.proto",
        "asking_pb2.py",
        "asking_pb2.pyi",
        "asking_pb2_grpc.py",
        "asking_pb2_grpc.pyi",
        "things.proto",
        "things_pb2.py",
        "things_pb2.pyi",
    ]


def test_only_what_changed_is_written_and_what_lost_its_proto_is_removed(tmp_path):
    (tmp_path / "a.proto").write_text(MESSAGE)
    (tmp_path / "b.proto").write_text(MESSAGE.replace("M", "N"))
    generate(tmp_path)
    assert generate(tmp_path) == []

    (tmp_path / "a.proto").unlink()

    assert {p.name for p in generate(tmp_path)} == {"a_pb2.py", "a_pb2.pyi"}
    assert not list(tmp_path.glob("a_*"))
    assert (tmp_path / "b_pb2.py").exists()


def test_a_proto_that_does_not_compile_leaves_the_modules_as_they_were(tmp_path, capfd):
    (tmp_path / "a.proto").write_text(MESSAGE)
    generate(tmp_path)
    before = (tmp_path / "a_pb2.py").read_bytes()
    (tmp_path / "a.proto").write_text(MESSAGE + "message {")

    with pytest.raises(SystemExit, match="protoc failed"):
        generate(tmp_path)

    assert "a.proto:3" in capfd.readouterr().err
    assert (tmp_path / "a_pb2.py").read_bytes() == before
