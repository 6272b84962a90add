"""Messages from and to manifests, field by field, after the messages' own descriptors.

A field's name is the camel case of its protobuf name but for the few listed here. What a message
does not declare is passed over, whatever its type. The readers of a message type are made once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from topospread_client import _manifest_values as values
from topospread_client._manifest_values import MisfitError, misfit

if TYPE_CHECKING:
    from google.protobuf.message import Message

Read: TypeAlias = Callable[[Any, Any], None]
"""Puts a value of a manifest, not null, into a message's field."""

_NAMES: Final = {"provider_id": "providerID"}
_INLINED: Final = frozenset({"volume_source"})
"""Messages whose fields stand among those of their parent in JSON."""


def fill(message: Message, fields: object, *, strict: bool = False) -> None:
    """Put an object of a manifest into a message.

    Args:
        message: an empty one.
        fields: the object.
        strict: refuse fields that the message does not have.

    Raises:
        MisfitError: a value of a wrong type, with its path.
    """
    if not isinstance(fields, Mapping):
        raise misfit("object", fields)
    readers = _readers(message.DESCRIPTOR, strict)
    for name, value in fields.items():
        read = readers.get(name)
        if read is None:
            if strict:
                raise MisfitError("unknown field", f".{name}")
        elif value is not None:
            try:
                read(message, value)
            except MisfitError as wrong:
                wrong.path.append(f".{name}")
                raise


def plain(message: Message) -> dict[str, Any]:
    """A message as an object of a manifest, keys sorted; absent and empty fields are left out."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name in _INLINED:
            found |= plain(value)
        else:
            found[_name(field)] = _plain_field(field, value)
    return dict(sorted(found.items()))


@functools.cache
def _readers(message: Descriptor, strict: bool) -> dict[str, Read]:
    readers: dict[str, Read] = {}
    for field in message.fields:
        if field.name in _INLINED:
            for name, read in _readers(field.message_type, strict).items():
                readers[name] = _inlined(field.name, read)
        else:
            readers[_name(field)] = _reader(field, strict)
    return readers


def _reader(field: FieldDescriptor, strict: bool) -> Read:
    map_values = _map_values(field)
    if map_values is not None:
        return _map(field.name, of_quantities=map_values.message_type is not None)
    if field.is_repeated:
        return _list(field, strict)
    if field.message_type is not None:
        return _message(field, strict)
    convert = _scalar(field)
    name = field.name
    return lambda message, value: setattr(message, name, convert(value))


def _scalar(field: FieldDescriptor) -> Callable[[object], Any]:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return values.text
        case FieldDescriptor.TYPE_BOOL:
            return values.boolean
        case FieldDescriptor.TYPE_INT32:
            return lambda value: values.integer(value, values.INT32)
        case FieldDescriptor.TYPE_INT64:
            return lambda value: values.integer(value, values.INT64)
        case FieldDescriptor.TYPE_BYTES:
            return _unread
    raise TypeError(f"{field.full_name}: no Kubernetes field has this type")


def _unread(value: object) -> bytes:
    """A message that is only looked at for being there."""
    if not isinstance(value, Mapping):
        raise misfit("object", value)
    return b""


def _message(field: FieldDescriptor, strict: bool) -> Read:
    name = field.name
    if _is_time(field):
        return lambda message, value: _read_time(getattr(message, name), value)

    def read(message: Any, value: object) -> None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, value, strict=strict)

    return read


def _read_time(time: Any, value: object) -> None:
    seconds = values.seconds(value)
    time.SetInParent()
    if seconds != values.ZERO_TIME:
        time.seconds = seconds


def _list(field: FieldDescriptor, strict: bool) -> Read:
    name = field.name
    convert = None if field.message_type is not None else _scalar(field)

    def put(parts: Any, value: object) -> None:
        if convert is not None:
            parts.append(convert(value))
        else:
            fill(parts.add(), value, strict=strict)

    # A null among the elements is an empty element, as in Go.
    empty: object = "" if field.type == FieldDescriptor.TYPE_STRING else {}

    def read(message: Any, value: object) -> None:
        if not isinstance(value, list | tuple):
            raise misfit("array", value)
        parts = getattr(message, name)
        for index, element in enumerate(value):
            try:
                put(parts, empty if element is None else element)
            except MisfitError as wrong:
                wrong.path.append(f"[{index}]")
                raise

    return read


def _map(name: str, *, of_quantities: bool) -> Read:
    def read(message: Any, value: object) -> None:
        if not isinstance(value, Mapping):
            raise misfit("object", value)
        entries = getattr(message, name)
        for key, element in value.items():
            try:
                if of_quantities:
                    amount = "0" if element is None else values.quantity(element)
                    entries[values.key(key)].string = amount
                else:
                    entries[values.key(key)] = "" if element is None else values.text(element)
            except MisfitError as wrong:
                wrong.path.append(f"[{key}]")
                raise

    return read


def _inlined(name: str, read: Read) -> Read:
    return lambda message, value: read(getattr(message, name), value)


def _plain_field(field: FieldDescriptor, value: Any) -> Any:
    map_values = _map_values(field)
    if map_values is not None:
        of_quantities = map_values.message_type is not None
        return {key: value[key].string if of_quantities else value[key] for key in sorted(value)}
    if field.message_type is None:
        return list(map(_plain_scalar, value)) if field.is_repeated else _plain_scalar(value)
    if field.is_repeated:
        return list(map(plain, value))
    if _is_time(field):
        return values.time_text(value.seconds if value.ByteSize() else values.ZERO_TIME)
    return plain(value)


def _plain_scalar(value: Any) -> Any:
    return {} if isinstance(value, bytes) else value


def _name(field: FieldDescriptor) -> str:
    return _NAMES.get(field.name, field.json_name)


def _is_time(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.name == "Time"


def _map_values(field: FieldDescriptor) -> FieldDescriptor | None:
    """The field of a map's values; None where there is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]
