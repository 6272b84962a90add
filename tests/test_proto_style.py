"""The .proto files keep the rules that linters of protobuf APIs agree on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from hatch_build import protoc
from tests.redis_server import ROOT

PROTO = ROOT / "proto"
FILES = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))

PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")
LOWER_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# kube-scheduler's own numbers, where 0 is Success.
ZERO_IS_MEANINGFUL = {"Code"}

# Their packages are not ours to name.
OTHERS_PROTOCOLS = {"topospread_proto/v1/expander.proto"}

# Numbers of fields in descriptor.proto, from which the paths of source locations are made.
MESSAGES, ENUMS, SERVICES, METHODS, NESTED_MESSAGES, NESTED_ENUMS = 4, 5, 6, 2, 3, 4


@dataclass(frozen=True)
class Named:
    """A definition with the comment that stands above it."""

    kind: str
    name: str
    comment: str
    definition: object


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[FileDescriptorProto]:
    target = tmp_path_factory.mktemp("proto") / "all.binpb"
    protoc(f"-I{PROTO}", f"--descriptor_set_out={target}", "--include_source_info", *FILES)
    return list(FileDescriptorSet.FromString(target.read_bytes()).file)


def definitions(file: FileDescriptorProto) -> list[Named]:
    comments = {
        tuple(location.path): location.leading_comments.strip()
        for location in file.source_code_info.location
    }

    def below(messages, path, prefix):
        for i, message in enumerate(messages):
            if message.options.map_entry:
                continue
            here, name = (*path, i), prefix + message.name
            yield Named("message", name, comments.get(here, ""), message)
            yield from below(message.nested_type, (*here, NESTED_MESSAGES), name + ".")
            for j, enum in enumerate(message.enum_type):
                comment = comments.get((*here, NESTED_ENUMS, j), "")
                yield Named("enum", f"{name}.{enum.name}", comment, enum)

    found = list(below(file.message_type, (MESSAGES,), ""))
    for i, enum in enumerate(file.enum_type):
        found.append(Named("enum", enum.name, comments.get((ENUMS, i), ""), enum))
    for i, service in enumerate(file.service):
        found.append(Named("service", service.name, comments.get((SERVICES, i), ""), service))
        for j, method in enumerate(service.method):
            comment = comments.get((SERVICES, i, METHODS, j), "")
            found.append(Named("rpc", f"{service.name}.{method.name}", comment, method))
    return found


def every(files, kind):
    return [d for file in files for d in definitions(file) if d.kind == kind]


def test_the_package_follows_the_folder(files):
    for file in files:
        assert file.syntax == "proto3"
        if file.name in OTHERS_PROTOCOLS:
            continue
        folder = file.name.rsplit("/", 1)[0]
        assert file.package == folder.replace("topospread_proto", "topospread").replace("/", ".")


def test_names_are_cased_as_protobuf_cases_them(files):
    for file in files:
        assert LOWER_SNAKE.fullmatch(file.name.rsplit("/", 1)[1].removesuffix(".proto")), file.name
        for found in definitions(file):
            assert PASCAL.fullmatch(found.name.rsplit(".", 1)[-1]), found.name
    for message in every(files, "message"):
        for field in message.definition.field:
            assert LOWER_SNAKE.fullmatch(field.name), f"{message.name}.{field.name}"


def test_enum_values_carry_their_enums_name_and_zero_means_unspecified(files):
    for enum in every(files, "enum"):
        short = enum.definition.name
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).upper() + "_"
        for value in enum.definition.value:
            assert value.name.startswith(prefix), f"{enum.name}: {value.name}"
        zero = next(value for value in enum.definition.value if value.number == 0)
        assert zero.name == f"{prefix}UNSPECIFIED" or short in ZERO_IS_MEANINGFUL, enum.name


def test_every_rpc_has_a_request_and_a_response_of_its_own(files):
    rpcs = every(files, "rpc")
    for rpc in rpcs:
        method = rpc.definition
        assert method.input_type.rsplit(".", 1)[-1] == f"{method.name}Request", rpc.name
        assert method.output_type.rsplit(".", 1)[-1] == f"{method.name}Response", rpc.name
    taken = [t for rpc in rpcs for t in (rpc.definition.input_type, rpc.definition.output_type)]
    assert len(taken) == len(set(taken))


def test_every_service_rpc_and_enum_says_what_it_is(files):
    silent = [
        f"{file.name}: {found.kind} {found.name}"
        for file in files
        for found in definitions(file)
        if found.kind != "message" and not found.comment
    ]
    assert silent == []
