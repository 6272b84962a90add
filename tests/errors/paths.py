"""Whether the paths of a BadRequest are those of fields that the request has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_STEP = re.compile(r"\.?(?:\{(?P<several>[^}]*)\}|(?P<name>\w+))(?P<at>(?:\[[^]]*\])*)")
"""A field's JSON name with indices or a map's key; or several fields, as the API server has it."""

BYTES_OF = {"object_proto": kubernetes_pb2.Pod.DESCRIPTOR}
"""What is in fields of bytes."""


def resolve(path: str, message: Descriptor) -> None:
    """Follow a path through a message's fields.

    Raises:
        AssertionError: the message has no such field.
    """
    at, here = 0, message
    while at < len(path):
        step = _STEP.match(path, at)
        assert step is not None, f"{path}: {path[at:]!r} is no step"
        assert here is not None, f"{path}: nothing is below {path[:at]!r}"
        at = step.end()
        if step["several"] is not None:
            for name in step["several"].split(", "):
                _field(here, name, path)
            assert at == len(path)
            return
        field = _field(here, step["name"], path)
        here = _below(field, re.findall(r"\[([^]]*)\]", step["at"]), path)


def _field(message: Descriptor, name: str, path: str) -> FieldDescriptor:
    found = {field.json_name: field for field in message.fields}
    assert name in found, f"{path}: {message.full_name} has no field {name!r}"
    return found[name]


def _below(field: FieldDescriptor, keys: list[str], path: str) -> Any:
    """The message of a field, or of one of its items; None for what has no fields."""
    message = field.message_type
    is_map = message is not None and message.GetOptions().map_entry
    assert len(keys) <= field.is_repeated, f"{path}: {field.full_name} is no list of lists"
    if keys and not is_map:
        assert keys[0].isdigit(), f"{path}: {keys[0]!r} is no position in {field.full_name}"
    if field.is_repeated and not keys:
        return None  # the list as a whole
    if message is not None and is_map:
        return message.fields_by_name["value"].message_type
    return BYTES_OF.get(field.name, message)
