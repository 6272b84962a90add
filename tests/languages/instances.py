"""Messages with something in every field, made from their descriptors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from google.protobuf import any_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from hatch_build import PROTO_ROOT, PUBLISHED
from tests.redis_server import ROOT
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

PROTOS = sorted(
    path.relative_to(ROOT / PROTO_ROOT).as_posix()
    for package in PUBLISHED
    for path in (ROOT / PROTO_ROOT / package.protos).glob("*.proto")
)
"""The public files, as protoc names them."""

DETAILS = [
    GetMessageClass(field.message_type)
    for field in common_pb2.ErrorDetails.DESCRIPTOR.fields
    if field.message_type
]
"""What errors of the server come with, packed in `google.rpc.Status.details`."""

# Numbers that JavaScript's cannot hold, the ends of their ranges, and text that JSON has to escape.
VALUES: dict[int, tuple[Any, Any]] = {
    FieldDescriptor.TYPE_STRING: ("web-0", '"\\/\n\u2028é€𝄞<&>'),
    FieldDescriptor.TYPE_BYTES: (b"\x00\xfb\xff", b"\xff"),
    FieldDescriptor.TYPE_BOOL: (True, True),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (2**53 + 1, -(2**63)),
    FieldDescriptor.TYPE_DOUBLE: (0.1, -1.5e300),
}
ENDS_OF_TIME = {
    "google.protobuf.Timestamp": ((1_700_000_000, 1), (-62_135_596_800, 0)),
    "google.protobuf.Duration": ((90, 500_000_000), (-315_576_000_000, -1)),
}
UNKNOWN_ENUM_NUMBER = 1000


def messages() -> Iterator[Descriptor]:
    """The types of all public messages that are in no other, and `google.rpc.Status`."""
    yield status_pb2.Status.DESCRIPTOR
    for name in PROTOS:
        module = name.removesuffix(".proto").replace("/", ".")
        module = module.replace("topospread", "topospread_proto", 1) + "_pb2"
        yield from import_module(module).DESCRIPTOR.message_types_by_name.values()


def instances(descriptor: Descriptor) -> Iterator[tuple[str, Message]]:
    """Messages of one type, each with a name for it.

    An empty one; one in which all that can be told from absent is there and zero; and full ones,
    until each arm of every oneof was set.
    """
    made = GetMessageClass(descriptor)
    yield "empty", made()
    yield "zeros", _zeros(made())
    for arm in range(_most_arms(descriptor, set())):
        yield f"full {arm}", _full(made(), arm)


def _full(message: Message, arm: int) -> Message:
    full_name = message.DESCRIPTOR.full_name
    if full_name in ENDS_OF_TIME:
        message.seconds, message.nanos = ENDS_OF_TIME[full_name][arm % 2]  # type: ignore[attr-defined]
        return message
    if full_name == any_pb2.Any.DESCRIPTOR.full_name:
        packed = _full(DETAILS[arm % len(DETAILS)](), arm)
        message.Pack(packed, deterministic=True)  # type: ignore[attr-defined]
        return message
    for field in _fields(message.DESCRIPTOR, arm):
        if _is_map(field):
            keys, values = _fields(field.message_type, arm)
            for number in range(2):
                _enter(message, field, _value(keys, number), values, number)
        elif field.is_repeated:
            for number in range(3):
                _add(message, field, arm + number)
        elif field.message_type:
            _full(getattr(message, field.name), arm).SetInParent()
        else:
            setattr(message, field.name, _value(field, arm))
    return message


def _zeros(message: Message) -> Message:
    for field in _fields(message.DESCRIPTOR, 0):
        if _is_map(field):
            keys, values = _fields(field.message_type, 0)
            held = getattr(message, field.name)
            if values.message_type:
                held[_zero(keys)].SetInParent()
            else:
                held[_zero(keys)] = _zero(values)
        elif field.is_repeated:
            held = getattr(message, field.name)
            held.add() if field.message_type else held.append(_zero(field))
        elif field.message_type:
            getattr(message, field.name).SetInParent()
        elif field.has_presence:
            setattr(message, field.name, _zero(field))
    return message


def _add(message: Message, field: FieldDescriptor, number: int) -> None:
    if field.message_type:
        _full(getattr(message, field.name).add(), number)
    else:
        getattr(message, field.name).append(_value(field, number))


def _enter(
    message: Message, field: FieldDescriptor, key: Any, values: FieldDescriptor, number: int
) -> None:
    if values.message_type:
        _full(getattr(message, field.name)[key], number)
    else:
        getattr(message, field.name)[key] = _value(values, number)


def _value(field: FieldDescriptor, number: int) -> Any:
    if field.enum_type:
        numbers = [each.number for each in field.enum_type.values]
        return [numbers[-1], UNKNOWN_ENUM_NUMBER, *numbers][number % (len(numbers) + 2)]
    return VALUES[field.type][number % 2]


def _zero(field: FieldDescriptor) -> Any:
    zeros = {FieldDescriptor.TYPE_STRING: "", FieldDescriptor.TYPE_BYTES: b""}
    return zeros.get(field.type, 0)


def _fields(descriptor: Any, arm: int) -> list[FieldDescriptor]:
    """All fields, but one alone of each oneof."""
    chosen = {each.full_name: each.fields[arm % len(each.fields)] for each in descriptor.oneofs}
    return [
        field
        for field in descriptor.fields
        if not field.containing_oneof or chosen[field.containing_oneof.full_name] is field
    ]


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _most_arms(descriptor: Descriptor, seen: set[str]) -> int:
    """The arms of the largest oneof of a message and of what is in it; 2 at least, as of values."""
    if descriptor.full_name in seen:
        return 2
    seen.add(descriptor.full_name)
    inner = [_most_arms(each.message_type, seen) for each in descriptor.fields if each.message_type]
    details = len(DETAILS) if descriptor is any_pb2.Any.DESCRIPTOR else 2
    return max([details, *inner, *(len(each.fields) for each in descriptor.oneofs)])
