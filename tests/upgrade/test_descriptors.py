"""Calls and stored values of the release before this one mean the same now: changes only add."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tests.upgrade.descriptors import current, released


def broken(before: FileDescriptorSet, after: FileDescriptorSet) -> list[str]:
    """What a program of the release before would stumble over."""
    messages, enums, methods = (_all(after, kind) for kind in ("message", "enum", "method"))
    problems: list[str] = []
    for name, message in _all(before, "message").items():
        problems += _message_problems(name, message, messages.get(name))
    for name, enum in _all(before, "enum").items():
        problems += _enum_problems(name, enum, enums.get(name))
    for name, method in _all(before, "method").items():
        if methods.get(name) != method:
            problems.append(f"{name}: gone, or takes or answers something else")
    return problems


def _message_problems(
    name: str, before: DescriptorProto, after: DescriptorProto | None
) -> list[str]:
    if after is None:
        return [f"{name}: gone"]
    problems = []
    fields = {field.number: field for field in after.field}
    kept_free = {n for each in after.reserved_range for n in range(each.start, each.end)}
    for field in before.field:
        now = fields.get(field.number)
        if now is None:
            if field.number not in kept_free:
                problems.append(f"{name}.{field.name}: gone, and its number is not reserved")
        elif _shape(before, field) != _shape(after, now):
            problems.append(f"{name}.{field.name}: another name, type, label or oneof")
    return problems


def _shape(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return (field.name, field.type, field.label, field.type_name, oneof, field.proto3_optional)


def _enum_problems(
    name: str, before: EnumDescriptorProto, after: EnumDescriptorProto | None
) -> list[str]:
    if after is None:
        return [f"{name}: gone"]
    now = {value.name: value.number for value in after.value}
    return [
        f"{name}.{value.name}: gone, or of another number"
        for value in before.value
        if now.get(value.name) != value.number
    ]


def _all(files: FileDescriptorSet, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in files.file:
        if kind == "method":
            found.update(_methods(file))
            continue
        nested = [(f"{file.package}.{each.name}", each) for each in file.message_type]
        if kind == "enum":
            found.update({f"{file.package}.{each.name}": each for each in file.enum_type})
        while nested:
            name, message = nested.pop()
            if kind == "message":
                found[name] = message
            else:
                found.update({f"{name}.{each.name}": each for each in message.enum_type})
            nested += [(f"{name}.{each.name}", each) for each in message.nested_type]
    return found


def _methods(file: FileDescriptorProto) -> dict[str, object]:
    return {
        f"{file.package}.{service.name}/{method.name}": (
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        )
        for service in file.service
        for method in service.method
    }


def test_what_was_released_still_means_the_same():
    assert _all(released(), "method"), "there is something to compare with"
    assert broken(released(), current()) == []


def test_each_kind_of_break_is_found():
    def changed(change) -> list[str]:
        after = FileDescriptorSet()
        after.CopyFrom(released())
        file = next(
            each for each in after.file if each.name.endswith("cluster_state_service.proto")
        )
        change(file)
        return broken(released(), after)

    def request(file):
        return next(each for each in file.message_type if each.name == "ApplyObjectsRequest")

    def rename(file):
        request(file).field[0].name = "other"

    def retype(file):
        request(file).field[0].type = FieldDescriptorProto.TYPE_BYTES

    def remove(file):
        del request(file).field[0]

    def reserve(file):
        number = request(file).field[0].number
        del request(file).field[0]
        request(file).reserved_range.add(start=number, end=number + 1)

    def renumber(file):
        file.enum_type[0].value[1].number += 100

    def drop_call(file):
        del file.service[0].method[0]

    def drop_message(file):
        del file.message_type[0]

    def add(file):
        request(file).field.add(name="more", number=1000, type=FieldDescriptorProto.TYPE_STRING)
        file.message_type.add(name="New")
        file.enum_type[0].value.add(name="NEW", number=1000)

    for change in (rename, retype, remove, renumber, drop_call, drop_message):
        assert len(changed(change)) == 1, change.__name__
    assert changed(add) == []
    assert changed(reserve) == []
