"""Conversion of messages from and to manifests, by the messages' own descriptors.

A field's name is the camel case of its protobuf name but for the few listed here. Fields that a
message does not have are skipped, whatever their type. The converters of a message type are cached.
Values are those that the API server's decoder takes; ``None`` never reaches a converter, because
null is like absent, or like the type's empty value.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from topospread_proto.kubernetes.v1.kubernetes_pb2 import Quantity

if TYPE_CHECKING:
    from google.protobuf.message import Message

Convert: TypeAlias = Callable[[Any], Any]
"""Function from a value of a manifest, not null, to the value of a message's field."""

_NAMES: Final = {
    "provider_id": "providerID",
    "host_ip": "hostIP",
    "volume_id": "volumeID",
    "disk_uri": "diskURI",
    "share_id": "shareID",
}
_INLINED: Final = frozenset({"volume_source", "persistent_volume_source"})
"""Messages whose fields stand among those of their parent in JSON."""

_ZERO_TIME: Final = -62135596800
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
    """Value of a type that its field does not take; `path` is built from the innermost part."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str] = []


def field_values(
    message: Descriptor,
    fields: object,
    *,
    strict: bool = False,
    skipped: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Convert an object of a manifest to the fields of a message, by name.

    Messages within it are such dictionaries, too: a message is made of all of them at once, which
    is much quicker than to set one field after the other. `strict` refuses fields that the message
    does not have; `skipped`, for example ``PodSpec.volumes``, are treated as such. A value of a
    wrong type is a FieldTypeError.
    """
    values: dict[str, Any] = _object(message, strict, skipped)(fields)
    return values


@functools.cache
def _object(message: Descriptor, strict: bool, skipped: frozenset[str]) -> Convert:
    converters: dict[str, tuple[str, Convert]] = {}
    inlined: list[tuple[str, Convert]] = []
    for field in message.fields:
        if field.name in _INLINED:
            inlined.append((field.name, _object(field.message_type, strict, skipped)))
        elif f"{message.name}.{field.name}" not in skipped:
            converters[_name(field)] = (field.name, _converter(field, strict, skipped))
    of = converters.get

    def convert(fields: Any) -> dict[str, Any]:
        if type(fields) is not dict and not isinstance(fields, Mapping):
            raise field_type_error("object", fields)
        values = {}
        name = ""
        try:
            for name, value in fields.items():
                found = of(name)
                if found is None:
                    if strict:
                        raise FieldTypeError("unknown field")
                elif value is not None:
                    values[found[0]] = found[1](value)
        except FieldTypeError as error:
            error.path.append(f".{name}")
            raise
        for name, convert_inlined in inlined:
            if part := convert_inlined(fields):
                values[name] = part
        return values

    return convert


def _converter(field: FieldDescriptor, strict: bool, skipped: frozenset[str]) -> Convert:
    map_values = _map_values(field)
    if map_values is not None:
        return _quantities if map_values.message_type is not None else _texts
    if field.message_type is None:
        one = _SCALARS[field.type]
    else:
        special = _SPECIAL.get(field.message_type.name)
        one = special or _object(field.message_type, strict, skipped)
    if not field.is_repeated:
        return one
    return _text_list if one is check_text else _list(one)


def _list(convert: Convert, empty: object = MappingProxyType({})) -> Convert:
    """Converter of lists; a null among the elements is an empty element, as in Go."""

    def convert_all(value: Any) -> list[Any]:
        if type(value) is not list and not isinstance(value, list | tuple):
            raise field_type_error("array", value)
        made: list[Any] = []
        add = made.append
        try:
            for element in value:
                add(convert(empty if element is None else element))
        except FieldTypeError as error:
            error.path.append(f"[{len(made)}]")
            raise
        return made

    return convert_all


def _text_list(value: Any) -> Any:
    if type(value) is list:
        try:
            if all(map(str.isascii, value)):
                return value
        except TypeError:
            pass  # a null, or a wrong type
    return _checked_text_list(value)


def _texts(value: Any) -> Mapping[str, str]:
    if type(value) is dict:
        try:
            if all(map(str.isascii, value)) and all(map(str.isascii, value.values())):
                return value
        except TypeError:
            pass  # a null, a key that YAML read as a number, or a wrong type
    return _entries(value, lambda element: "" if element is None else check_text(element))


def _quantities(value: Any) -> Mapping[str, Quantity]:
    def convert(element: Any) -> Quantity:
        written = "0" if element is None else element
        return (_known_quantity if type(written) is str else _quantity)(written)

    return _entries(value, convert)


def _entries(value: object, convert: Convert) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise field_type_error("object", value)
    values: dict[str, Any] = {}
    key: Any = None
    try:
        for key, element in value.items():
            values[_key(key)] = convert(element)
    except FieldTypeError as error:
        error.path.append(f"[{key}]")
        raise
    return values


def check_text(value: object) -> str:
    """Check a string; halves of surrogate pairs become U+FFFD, as Go's decoder makes them."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise field_type_error("string", value)
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


_checked_text_list: Final = _list(lambda value: check_text(value), "")


def _key(value: object) -> str:
    """Key of a map, which YAML may have read as a number or a boolean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise field_type_error("string as key", value)
    return check_text(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise field_type_error("boolean", value)
    return value


def _integer(bits: int, value: object) -> int:
    """Whole number; YAML's ``1.0`` is one, too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise field_type_error("integer", value)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise FieldTypeError(f"expected integer of {bits} bits, got {value}")
    return value


def _quantity(value: object) -> Quantity:
    """Quantity, written as a string or as a number."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise field_type_error("quantity", value)
    written = value.strip()
    if not _QUANTITY.fullmatch(written):
        raise FieldTypeError(f"{_QUANTITY_TEXT}, got {_shown(value)}")
    return Quantity(string=written)


_known_quantity: Final = functools.lru_cache(1024)(_quantity)
"""The same quantities come again and again; their messages are copied where they are used."""


def _time(value: object) -> dict[str, int]:
    """Time in RFC 3339, or a datetime of YAML, which is in UTC where it has no zone."""
    moment = value
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        with suppress(ValueError):  # a 30th of February
            moment = datetime.fromisoformat(value)
    if not isinstance(moment, datetime):
        raise field_type_error("time in RFC 3339", value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = math.floor(moment.timestamp())
    return {} if seconds == _ZERO_TIME else {"seconds": seconds}


_SPECIAL: Final[Mapping[str, Convert]] = {"Time": _time, "Quantity": _known_quantity}
"""Converters of messages that stand for one value, by their names."""


def _presence(value: object) -> bytes:
    """Value of a message of which only the presence matters."""
    if not isinstance(value, Mapping):
        raise field_type_error("object", value)
    return b""


_SCALARS: Final[Mapping[int, Convert]] = {
    FieldDescriptor.TYPE_STRING: check_text,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_INT32: functools.partial(_integer, 32),
    FieldDescriptor.TYPE_INT64: functools.partial(_integer, 64),
    FieldDescriptor.TYPE_BYTES: _presence,
}
"""Converters by the type of a field; no Kubernetes field has another one."""


def plain(message: Message) -> dict[str, Any]:
    """Convert a message to an object of a manifest with sorted keys, without empty fields."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name in _INLINED:
            found |= plain(value)
        else:
            found[_name(field)] = _plain_field(field, value)
    return dict(sorted(found.items()))


def _plain_field(field: FieldDescriptor, value: Any) -> Any:
    map_values = _map_values(field)
    if map_values is not None:
        of_quantities = map_values.message_type is not None
        return {key: value[key].string if of_quantities else value[key] for key in sorted(value)}
    if field.message_type is not None and field.message_type.name == "Quantity":
        return value.string
    if _is_time(field):
        moment = value.seconds if value.ByteSize() else _ZERO_TIME
        shown = datetime.fromtimestamp(min(max(moment, _ZERO_TIME), _LAST_TIME), UTC)
        return shown.isoformat().replace("+00:00", "Z")
    one = _plain_scalar if field.message_type is None else plain
    return list(map(one, value)) if field.is_repeated else one(value)


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


def field_type_error(expected: str, value: object) -> FieldTypeError:
    """Error for a value of another type than expected."""
    match value:
        case None:
            got = "null"
        case bool():
            got = f"boolean {str(value).lower()}"
        case int() | float():
            got = f"number {value}"
        case str():
            got = f"string {_shown(value)}"
        case dict():
            got = "object"
        case list() | tuple():
            got = "array"
        case _:
            got = type(value).__name__
    return FieldTypeError(f"expected {expected}, got {got}")


def _shown(value: str) -> str:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
