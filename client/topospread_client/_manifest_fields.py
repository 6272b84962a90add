"""Conversion of messages from and to manifests, by the messages' own descriptors.

A field's name is the camel case of its protobuf name but for the few listed here. Fields that a
message does not have are skipped, whatever their type. The readers of a message type are cached.
Values are those that the API server's decoder takes; ``None`` never reaches a check, because null
is like absent, or like the type's empty value.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.message import Message


Read: TypeAlias = Callable[[Any, Any], None]
"""Function that puts a value of a manifest, not null, into a message's field."""

_NAMES: Final = {"provider_id": "providerID"}
_INLINED: Final = frozenset({"volume_source"})
"""Messages whose fields stand among those of their parent in JSON."""


def fill(message: Message, fields: object, *, strict: bool = False) -> None:
    """Fill a message from an object of a manifest.

    Args:
        message: an empty one.
        fields: the object.
        strict: refuse fields that the message does not have.

    Raises:
        FieldTypeError: a value of a wrong type, with its path.
    """
    if not isinstance(fields, Mapping):
        raise field_type_error("object", fields)
    readers = _readers(message.DESCRIPTOR, strict)
    for name, value in fields.items():
        read = readers.get(name)
        if read is None:
            if strict:
                raise FieldTypeError("unknown field", f".{name}")
        elif value is not None:
            try:
                read(message, value)
            except FieldTypeError as error:
                error.path.append(f".{name}")
                raise


def plain(message: Message) -> dict[str, Any]:
    """Convert a message to an object of a manifest with sorted keys, without empty fields."""
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
            return check_text
        case FieldDescriptor.TYPE_BOOL:
            return check_boolean
        case FieldDescriptor.TYPE_INT32:
            return lambda value: check_integer(value, INT32)
        case FieldDescriptor.TYPE_INT64:
            return lambda value: check_integer(value, INT64)
        case FieldDescriptor.TYPE_BYTES:
            return _unread
    raise TypeError(f"{field.full_name}: no Kubernetes field has this type")


def _unread(value: object) -> bytes:
    """Value of a message of which only the presence matters."""
    if not isinstance(value, Mapping):
        raise field_type_error("object", value)
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
    seconds = check_time(value)
    time.SetInParent()
    if seconds != ZERO_TIME:
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
            raise field_type_error("array", value)
        parts = getattr(message, name)
        for index, element in enumerate(value):
            try:
                put(parts, empty if element is None else element)
            except FieldTypeError as error:
                error.path.append(f"[{index}]")
                raise

    return read


def _map(name: str, *, of_quantities: bool) -> Read:
    def read(message: Any, value: object) -> None:
        if not isinstance(value, Mapping):
            raise field_type_error("object", value)
        entries = getattr(message, name)
        for key, element in value.items():
            try:
                if of_quantities:
                    amount = "0" if element is None else check_quantity(element)
                    entries[check_key(key)].string = amount
                else:
                    entries[check_key(key)] = "" if element is None else check_text(element)
            except FieldTypeError as error:
                error.path.append(f"[{key}]")
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
        return time_text(value.seconds if value.ByteSize() else ZERO_TIME)
    return plain(value)


def _plain_scalar(value: Any) -> Any:
    return {} if isinstance(value, bytes) else value


def _name(field: FieldDescriptor) -> str:
    return _NAMES.get(field.name, field.json_name)


def _is_time(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.name == "Time"


def _map_values(field: FieldDescriptor) -> FieldDescriptor | None:
    """Field of a map's values; None for other fields."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]


INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)

ZERO_TIME: Final = -62135596800
"""Seconds of 0001-01-01T00:00:00Z, Go's zero time, which is an empty message on the wire."""

_LAST_TIME: Final = 253402300799

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_QUANTITY: Final = re.compile(
    r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SHOWN: Final = 60


class FieldTypeError(Exception):
    """Value of a type that its field does not take.

    Attributes:
        path: of the field, innermost part first; each level of the document adds its own.
    """

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = list(path)


def check_text(value: object) -> str:
    """Check a string; halves of surrogate pairs become U+FFFD, as Go's decoder makes them."""
    if not isinstance(value, str):
        raise field_type_error("string", value)
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


def check_boolean(value: object) -> bool:
    """Check a boolean."""
    if not isinstance(value, bool):
        raise field_type_error("boolean", value)
    return value


def check_integer(value: object, allowed: range) -> int:
    """Check a whole number; YAML's ``1.0`` is one, too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise field_type_error("integer", value)
    if value not in allowed:
        bits = allowed.stop.bit_length()
        raise FieldTypeError(f"expected integer of {bits} bits, got {value}")
    return value


def check_quantity(value: object) -> str:
    """Check a quantity, written as a string or as a number."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise field_type_error("quantity", value)
    written = value.strip()
    if not _QUANTITY.fullmatch(written):
        raise FieldTypeError(f"{_QUANTITY_TEXT}, got {_shown(value)}")
    return written


def check_time(value: object) -> int:
    """Convert a time in RFC 3339, or a datetime of YAML, to seconds since 1970."""
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise field_type_error("time in RFC 3339", value) from None
    if not isinstance(value, datetime):
        raise field_type_error("time in RFC 3339", value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return math.floor(value.timestamp())


def time_text(moment: int) -> str:
    """Convert seconds since 1970 to RFC 3339, limited to the years 1 to 9999."""
    shown = datetime.fromtimestamp(min(max(moment, ZERO_TIME), _LAST_TIME), UTC)
    return shown.isoformat().replace("+00:00", "Z")


def check_key(value: object) -> str:
    """Convert a key of a map, which YAML may have read as a number or a boolean, to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise FieldTypeError(f"expected string as key, got {_described(value)}")
    return check_text(value)


def field_type_error(expected: str, value: object) -> FieldTypeError:
    """Error for a value of another type than expected."""
    return FieldTypeError(f"expected {expected}, got {_described(value)}")


def _described(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {value}"
        case str():
            return f"string {_shown(value)}"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
    return type(value).__name__


def _shown(value: str) -> str:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
