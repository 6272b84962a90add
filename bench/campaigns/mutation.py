"""Requests that almost are what a server takes: valid messages changed field by field, and bytes.

Everything is drawn from one generator of random numbers, so that a seed names a campaign.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from random import Random

    from google.protobuf.message import Message

_INTEGERS: Final = (0, 1, -1, 2, 7, 63, 64, 65, 1000, 2**31 - 1, -(2**31), 2**31, 2**32 - 1)
_LARGE: Final = (2**53, 2**63 - 1, -(2**63), 2**64 - 1)
_TEXTS: Final = (
    *(
        "",
        "default",
        "a",
        "web-0",
        "a1",
        "b1",
        "node-0",
        "zone",
        "DoNotSchedule",
        "Honor",
        "Exists",
    ),
    *("In", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "app", "web", "x" * 300, "/"),
    *("\0", "../..", "%s%n", "ä\u202e", "a/b/c", "-1", "1e999", "99999999999999999999", "100m"),
    *("LjAu", "tsp_0_x", "*", "a=b,c!=d", "\ud7ff", "'\"`;--", "{{7*7}}", "conf-0", "NoSchedule"),
)
_BOUNDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


def mutated_message(message: Message, random: Random, depth: int = 0) -> None:
    """Change a few fields, of any kind, at any depth."""
    fields: Any = message.DESCRIPTOR.fields
    for _ in range(random.randint(1, 3) if fields else 0):
        _change(message, random.choice(fields), random, depth)


def mutated_bytes(raw: bytes, random: Random) -> bytes:
    """Flip, cut, double, insert, or make up bytes."""
    kind = random.randrange(7)
    if kind == 0 or not raw:
        return random.randbytes(random.choice((0, 1, 5, 40, 400)))
    at = random.randrange(len(raw))
    if kind == 1:
        return raw[:at]
    if kind == 2:
        return raw[:at] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :]
    if kind == 3:
        return raw[:at] + random.randbytes(random.randint(1, 8)) + raw[at:]
    if kind == 4:
        return raw + raw[at:]
    if kind == 5:
        # A length or number far beyond what there is.
        return raw[:at] + b"\xff\xff\xff\xff\x0f" + raw[at:]
    other = random.randrange(len(raw))
    return raw[: min(at, other)] + raw[max(at, other) :]


def _change(message: Message, field: FieldDescriptor, random: Random, depth: int) -> None:
    if random.random() < 0.15:
        message.ClearField(field.name)
        return
    if field.is_repeated:
        _change_repeated(message, field, random, depth)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        if depth < 12:
            mutated_message(inner, random, depth + 1)
    else:
        setattr(message, field.name, _value(field, random))


def _change_repeated(message: Message, field: FieldDescriptor, random: Random, depth: int) -> None:
    values: Any = getattr(message, field.name)
    times = random.choice((1, 1, 1, 2, 30))
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        if inner.fields_by_name["value"].message_type is None:
            for _ in range(times):
                key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
                values[_value(key, random)] = _value(value, random)
        return
    for _ in range(times):
        if inner is None:
            values.append(_value(field, random))
        elif len(values) and random.random() < 0.6:
            target = values[random.randrange(len(values))]
            if random.random() < 0.2:
                values.add().CopyFrom(target)
            elif depth < 12:
                mutated_message(target, random, depth + 1)
        elif depth < 12:
            mutated_message(values.add(), random, depth + 1)


def _value(field: FieldDescriptor, random: Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return random.choice((0.0, -1.0, 1e300, float("inf"), float("nan"), 0.5))
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(_TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return random.choice((text.encode(), struct.pack("<q", -1), random.randbytes(20)))
        return text
    least, most = _BOUNDS[kind]
    if kind == FieldDescriptor.CPPTYPE_ENUM and random.random() < 0.7:
        kinds: Any = field.enum_type
        return random.choice(kinds.values).number
    chosen = random.choice((*_INTEGERS, *_LARGE, random.getrandbits(31)))
    return min(most, max(least, chosen))
