"""The .proto files keep the rules that linters of protobuf APIs agree on."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from hatch_build import include_path, protoc
from tests.redis_server import ROOT
from tools import proto_rules
from topospread.codec.parsing import USUAL
from topospread_proto.options.v1 import options_pb2
from topospread_proto.v1.server_service_pb2 import ServerLimits

PROTO = ROOT / "proto"
FILES = sorted(
    path.relative_to(PROTO).as_posix() for path in (PROTO / "topospread/v1").glob("*.proto")
)

# Numbers of fields in descriptor.proto, from which the paths of source locations are made.
MESSAGES, ENUMS, SERVICES, METHODS, NESTED_MESSAGES, NESTED_ENUMS = 4, 5, 6, 2, 3, 4
FIELDS = 2


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
    described = [f"--descriptor_set_out={target}", "--include_source_info"]
    protoc(*include_path(PROTO), *described, *FILES)
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


def test_all_rules_of_buf_hold():
    assert proto_rules.main([]) == 0


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("int32 top_k = 3;", "int64 top_k = 3;"),
        ("int32 top_k = 3;", "int32 top_nodes = 3;"),
        ("service DecisionService {", "service JudgementService {"),
        ("repeated VerdictCount verdict_counts = 6;", "repeated VerdictCount verdict_counts = 66;"),
    ],
)
def test_changes_that_break_callers_are_found(tmp_path, monkeypatch, capfd, was, became):
    """The rules are asked as `make lint` asks them, of files in which something changed."""
    shutil.copytree(PROTO, tmp_path / "proto")
    changed = tmp_path / "proto/topospread/v1/decision_service.proto"
    text = changed.read_text("utf-8")
    assert was in text
    changed.write_text(text.replace(was, became), "utf-8")
    monkeypatch.setattr(proto_rules, "PROTOS", tmp_path / "proto")

    assert proto_rules.main([]) != 0
    assert "callers break" in capfd.readouterr().out


def test_the_package_follows_the_folder(files):
    for file in files:
        assert file.package == file.name.rsplit("/", 1)[0].replace("/", ".")


def test_every_response_begins_with_its_meta(files):
    """What an answer says of the state behind it has one place."""
    rpcs = every(files, "rpc")
    responses = {rpc.definition.output_type.rsplit(".", 1)[-1]: rpc for rpc in rpcs}
    assert responses
    messages = {found.name: found.definition for found in every(files, "message")}
    without = {name for name in responses if _first(messages[name]) != ("meta", 1)}
    assert not without


def _first(message):
    first = min(message.field, key=lambda field: field.number)
    return first.name, first.number


def test_numbers_are_signed_and_of_one_width_by_name(files):
    """JSON has an int64 as a string, and Java shows unsigned numbers as negative ones."""
    widths: dict[str, set[str]] = {}
    for message in every(files, "message"):
        for field in message.definition.field:
            kind = field.Type.Name(field.type)
            assert "UINT" not in kind, f"{message.name}.{field.name}"
            assert "FIXED" not in kind, f"{message.name}.{field.name}"
            if "INT" in kind:
                widths.setdefault(field.name, set()).add(kind)
    assert {name: found for name, found in widths.items() if len(found) > 1} == {}
    assert {name for name in widths if name.endswith("_count")}
    for name, found in widths.items():
        assert found == {"TYPE_INT32"} or not name.endswith("_count"), name


def test_every_service_rpc_and_enum_says_what_it_is(files):
    silent = [
        f"{file.name}: {found.kind} {found.name}"
        for file in files
        for found in definitions(file)
        if found.kind != "message" and not found.comment
    ]
    assert silent == []


def test_a_list_that_may_be_longer_than_usual_says_how_long(files):
    comments = dict(field_comments(files))
    limits = {
        f"{message.name}.{field.name}": field.options.Extensions[options_pb2.max_items]
        for file in files
        for message in file.message_type
        for field in message.field
    }
    assert any(limits.values())
    silent = [
        name
        for name, limit in limits.items()
        if limit not in (0, USUAL)
        if not re.search(rf"limits\.max_|{limit:,}|[Aa]s in PreFilterRequest", comments[name])
    ]
    assert silent == []
    named = {limit for each in comments.values() for limit in re.findall(r"limits\.(\w+)", each)}
    assert named <= set(ServerLimits.DESCRIPTOR.fields_by_name)


def field_comments(files):
    """The comment of each field, or of the last one before it that has one."""
    for file in files:
        comments = {
            tuple(location.path): location.leading_comments
            for location in file.source_code_info.location
        }
        for i, message in enumerate(file.message_type):
            above = ""
            for j, field in enumerate(message.field):
                above = comments.get((MESSAGES, i, FIELDS, j)) or above
                yield f"{message.name}.{field.name}", above
