"""Documents of ``-o json`` and ``-o yaml``: messages under the API's names, in Kubernetes' style.

Every document has ``apiVersion`` and ``kind``. Names are camel case, constants CamelCase,
times RFC 3339 in UTC, and durations seconds with their unit (``2.5s``). Absent values have no key;
a count of 0 and an empty list are there, except where they mean that the value is unknown.
docs/output.schema.json describes all documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from topospread.cli import output
from topospread_client import manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import EnumDescriptor

API_VERSION: Final = "topospread.io/v1"

MEANT_EMPTY: Final = frozenset({"value", "domain"})
"""Names of fields in which "" is a value: the values of labels may be empty."""

UNKNOWN_EMPTY: Final = frozenset({"observed"})
"""Names of fields that are empty where their value is unknown."""

MERGED: Final[Mapping[str, tuple[str, ...]]] = {
    "ConstraintStatus.constraint": ("id",),
    "GetConstraintResponse.constraint": (),
}
"""Fields whose own fields stand in their place, as those of `meta` do; without these."""

LEFT_OUT: Final = frozenset({"next_page_token"})
"""Names of fields that no document has."""


def show(kind: str, form: str, **content: object) -> None:
    """Print a document as JSON or YAML; `content` has values that :func:`plain` takes."""
    output.dump(document(kind, **content), form)


def present(
    form: str, kind: str, table: Callable[[], object], names: Iterable[str], **content: object
) -> None:
    """Print an answer in the form of `--output`; `names` are the lines of ``-o name``."""
    if form == "table":
        table()
    elif form == "name":
        for name in names:
            output.echo(name)
    else:
        show(kind, form, **content)


def document(kind: str, **content: object) -> dict[str, Any]:
    """Document of a kind; the fields of an ``answer`` in its content become its own."""
    made: dict[str, Any] = {"apiVersion": API_VERSION, "kind": kind}
    for name, value in content.items():
        if name == "answer":
            made |= plain(value)
        elif not _absent(name, value):
            made[camel(name)] = plain(value)
    return made


def plain(value: Any) -> Any:
    """Message, or a value of this program, in JSON's types."""
    if isinstance(value, Message):
        return to_dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        members = {each.name: getattr(value, each.name) for each in fields(value)}
        return {
            camel(name): plain(each) for name, each in members.items() if not _absent(name, each)
        }
    if isinstance(value, Enum):
        return constant(str(value.value))
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def joined(*parts: Any) -> dict[str, Any]:
    """One object with the fields of several."""
    return {name: value for part in parts for name, value in plain(part).items()}


def to_dict(message: Message) -> Any:
    """Message in JSON's types: numbers are numbers, and constants have no prefix.

    Kubernetes objects are written as manifests.
    """
    kind = message.DESCRIPTOR.full_name
    if kind in _WHOLE:
        return _WHOLE[kind](message)
    if kind.startswith("topospread.kubernetes."):
        return MessageToDict(message)
    made: dict[str, Any] = {}
    for name, has_presence, shown_empty, write in _writers(message.DESCRIPTOR):
        value = getattr(message, name)
        if message.HasField(name) if has_presence else value or shown_empty:
            write(made, value)
    return made


@cache
def _writers(descriptor: Any) -> Sequence[tuple[str, bool, bool, Callable[[Any, Any], None]]]:
    """Name of each field, whether it has presence, is written when empty, and what writes it."""
    return [
        (field.name, field.has_presence, _shown_empty(field), _writer(field))
        for field in descriptor.fields
        if field.name not in LEFT_OUT
    ]


def _shown_empty(field: Any) -> bool:
    if field.is_repeated:
        return field.name not in UNKNOWN_EMPTY
    if field.enum_type is not None:
        return False
    return field.cpp_type != field.CPPTYPE_STRING or field.name in MEANT_EMPTY


def _writer(field: Any) -> Callable[[Any, Any], None]:
    """Function that writes the value of a field into an object."""
    key, left_out, convert = field.json_name, merged(field), _converter(field)
    if left_out is not None:
        return lambda made, value: made.update(
            (name, each) for name, each in to_dict(value).items() if name not in left_out
        )
    if field.name == "traceparent":
        key, convert = "traceId", _trace
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda made, value: made.__setitem__(key, dict(value))
    if field.is_repeated:
        return lambda made, value: made.__setitem__(key, list(map(convert, value)))
    return lambda made, value: made.__setitem__(key, convert(value))


def _converter(field: Any) -> Callable[[Any], Any]:
    """Function that converts one value of a field."""
    if field.enum_type is not None:
        return lambda number: constant_of(field.enum_type, number)
    return (lambda value: value) if field.message_type is None else to_dict


def merged(field: Any) -> Sequence[str] | None:
    """Names that are left out of a field whose own fields stand in its place; None for others."""
    if field.name == "meta":
        return ()
    return MERGED.get(f"{field.containing_type.name}.{field.name}")


_WHOLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": lambda stamp: moment(stamp.ToDatetime(tzinfo=UTC)),
    "google.protobuf.Duration": lambda length: seconds(length.seconds + length.nanos / 1e9),
    "topospread.v1.ClusterObject": manifest_from_object,
}
"""How messages are written that are a value of their own."""


def value_name(enum: Any, number: int) -> str:
    """Name of a value of an enum without its prefix: ``VIOLATED``; its digits if it has none.

    The enum is that of the messages (``pb.SpreadState``), or its descriptor.
    """
    return _value_names(getattr(enum, "DESCRIPTOR", enum)).get(number, str(number))


def constant_of(enum: Any, number: int) -> str:
    """Value of an enum as documents have it: ``IgnoredStale``; see :func:`value_name`."""
    return constant(value_name(enum, number))


@cache
def _value_names(enum: EnumDescriptor) -> Mapping[int, str]:
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {each.number: each.name.removeprefix(prefix) for each in enum.values}


def _absent(name: str, value: object) -> bool:
    return value is None or (value == "" and name not in MEANT_EMPTY)


def camel(name: str) -> str:
    """Name in camel case: ``top_nodes`` becomes ``topNodes``."""
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def constant(name: str) -> str:
    """Constant as Kubernetes writes it: ``IGNORED_STALE`` becomes ``IgnoredStale``."""
    return name.title().replace("_", "")


def words(name: str) -> str:
    """Constant for people: ``IGNORED_STALE`` becomes ``ignored stale``."""
    return name.lower().replace("_", " ")


def moment(time: Any) -> str:
    """Time, or Timestamp, as RFC 3339 in UTC; "" for an unset Timestamp."""
    if isinstance(time, Message):
        if not time.ByteSize():
            return ""
        time = time.ToDatetime(tzinfo=UTC)  # type: ignore[attr-defined] # a Timestamp
    text: str = time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text.replace(".000Z", "Z")


def seconds(duration: float, digits: int = 3) -> str:
    """Duration with its unit: ``2.5s``."""
    return f"{duration:.{digits}f}".rstrip("0").rstrip(".") + "s"


def trace_id(answer: Any) -> str:
    """Trace id of the call behind an answer; "" where its server told none."""
    return _trace(answer.meta.traceparent)


def _trace(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 else ""
