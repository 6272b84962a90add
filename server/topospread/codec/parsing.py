"""Parses protobuf messages, with our own errors and with limits on repeated fields.

How often a field is repeated is counted in the bytes, before they are parsed.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from topospread.errors import CorruptValue, FieldViolation, InvalidRequest
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.options.v1 import options_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping


_M = TypeVar("_M", bound=Message)

LARGE: Final = 64 << 10
"""Bytes from which also those fields are counted that a frame passes over."""

USUAL: Final = 1000
"""Items of a repeated field or map that :data:`LIMITS` does not name."""

SMALL: Final = 2 * USUAL
"""Bytes up to which no limit can be passed: an item takes at least two."""

FIELDS: Final = 40_000
"""Fields of one request in all, of those that are looked into, where no option says more."""

NODES: Final = 20_000
"""Nodes that one request may name: four times those that Kubernetes supports."""

PODS: Final = 10_000
"""Pods that one request may name."""

_OF_OTHERS: Final[Mapping[str, int]] = {"Option.pod": PODS, "Option.pod_bytes": PODS}
"""Limits of fields whose `.proto` file is not ours, by message and field."""

_FIELDS_OF_OTHERS: Final[Mapping[str, int]] = {"BestOptionsRequest": 500_000}

_PARTS_OF_A_POD: Final[Mapping[str, str]] = {
    "MetadataFrame": "ObjectMeta",
    "DemandMetadataFrame": "ObjectMeta",
    "SpecFrame": "PodSpec",
    "DemandSpecFrame": "PodSpec",
    "PodFrame": "Pod",
    "DemandFrame": "Pod",
}

_UNPACKED: Final = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)
_BYTES: Final = 2
_HIGH: Final = bytes(range(128, 256))


def parse_request(
    message: type[_M],
    sent: bytes,
    public_message: type[Message] | None = None,
    *,
    frame: type[Message] | None = None,
) -> _M:
    """Parse a message that a caller sent.

    Args:
        message: how to read it.
        sent: the bytes.
        public_message: the message of the API, where it is read as a frame.
        frame: it was read as this frame before, so that large bytes were looked at.

    Raises:
        InvalidRequest: the bytes are no such message, hold text that is not UTF-8, or repeat a
            field more often than its limit.
    """
    # What a frame passes over costs next to nothing, up to a size that no real object has; and
    # what it keeps as bytes is counted when they are parsed.
    if len(sent) > LARGE:
        if frame is None:
            check_repeats(public_message or message, sent)
    elif public_message is None:
        check_repeats(message, sent, frame)
    try:
        return message.FromString(sent)
    except DecodeError as cause:
        raise unparsable(public_message or message) from cause


def unparsable(message: type[Message]) -> InvalidRequest:
    """The error for bytes that are no such message."""
    return InvalidRequest(
        f"the bytes do not parse as {message.DESCRIPTOR.full_name}: send the protobuf encoding "
        "of that message, with all text in UTF-8"
    )


def parse_stored(message: type[_M], payload: bytes) -> _M:
    """Parse a message from the store.

    Raises:
        CorruptValue: the bytes are no such message.
    """
    try:
        return message.FromString(payload)
    except DecodeError as cause:
        raise CorruptValue(f"the payload does not parse as {message.DESCRIPTOR.name}") from cause


def check_repeats(message: type[Message], sent: bytes, frame: type[Message] | None = None) -> None:
    """Refuse a request that repeats a field more often than its limit, at a cost of the limit.

    Args:
        message: what the bytes will be parsed as; bytes that do not parse may pass.
        sent: the bytes.
        frame: only the fields that this frame of the message has are counted.

    Raises:
        InvalidRequest: naming the field and its limit.
    """
    if len(sent) > SMALL:
        kind: Any = message.DESCRIPTOR
        fields = _fields(kind) if frame is None else _fields_read(frame.DESCRIPTOR, kind)
        walk = _Walk(sent, _most_fields(kind))
        walk.message(0, len(sent), fields, "")


def limit_of(field: Any) -> int:
    """The limit of a repeated field or map in one message."""
    message = public_message(field.containing_type)
    stated = message.fields_by_name[field.name].GetOptions().Extensions[options_pb2.max_items]
    return stated or _OF_OTHERS.get(f"{message.name}.{field.name}", USUAL)


@cache
def _most_fields(message: Any) -> int:
    message = public_message(message)
    stated = message.GetOptions().Extensions[options_pb2.max_fields]
    return stated or _FIELDS_OF_OTHERS.get(message.name, FIELDS)


def public_message(message: Any) -> Any:
    """The API's message that a frame is read from; of others they themselves."""
    name = message.name
    if part := _PARTS_OF_A_POD.get(name):
        return kubernetes_pb2.DESCRIPTOR.message_types_by_name[part]
    try:
        request = f"topospread.v1.{name.replace('Frame', 'Request')}"
        return descriptor_pool.Default().FindMessageTypeByName(request)
    except KeyError:
        return message


class _Field(NamedTuple):
    """A field whose items are counted: a repeated one, or a message that contains such."""

    name: str
    limit: int  # 0 when it is not repeated
    packed: bool
    parts: Mapping[int, _Field]
    harmless: float = inf  # bytes in which no limit of a part can be passed

    def holding(self, parts: Mapping[int, _Field]) -> _Field:
        """The same with these parts."""
        return self._replace(parts=parts, harmless=min(map(_harmless, parts.values()), default=inf))


def _harmless(field: _Field) -> float:
    """Bytes in which neither a field's limit nor one of its parts' can be passed."""
    items = field.limit if field.packed else 2 * field.limit
    return min(items or inf, field.harmless)


@cache
def _fields(message: Any) -> Mapping[int, _Field]:
    """The fields of a message that are repeated or contain repeated ones, by number."""
    found: dict[int, _Field] = {}
    for field in message.fields:
        inner = field.message_type
        parts = {} if inner is None or inner is message else _fields(inner)
        if field.is_repeated or parts:
            limit = limit_of(field) if field.is_repeated else 0
            known = _Field(field.json_name, limit, field.cpp_type not in _UNPACKED, {})
            found[field.number] = known.holding(parts)
    return found


@cache
def _fields_read(frame: Any, message: Any) -> Mapping[int, _Field]:
    """The :func:`_fields` that a frame reads of its message; in full where it keeps bytes."""
    every = _fields(message)
    found: dict[int, _Field] = {}
    for number, field in frame.fields_by_number.items():
        known = every.get(number)
        if known is not None and field.message_type is not None:
            inner = message.fields_by_number[number].message_type
            known = known.holding(_fields_read(field.message_type, inner))
        if known is not None:
            found[number] = known
    return found


class _Walk:
    """Counts items in the bytes of one request."""

    def __init__(self, sent: bytes, budget: int) -> None:
        self._sent = sent
        self._budget = self._left = budget
        # A field takes two bytes: what is short enough need not be counted, only looked into where
        # it is long enough to pass a limit.
        self._counts = len(sent) > 2 * budget

    def message(self, at: int, end: int, fields: Mapping[int, _Field], path: str) -> None:
        """Look at the fields from a position to another; stops at what does not parse."""
        sent = self._sent
        counts: dict[int, int] = {}
        # They are looked into when there are not too many of them.
        inside: list[tuple[int, int, _Field, int]] = []
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise InvalidRequest.of([_too_many(path or "request", "fields", self._budget)])
            tag = sent[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(at - 1, end)
            wire = tag & 7
            if wire == _BYTES:
                if at >= end:
                    break
                size = sent[at]
                at += 1
                if size > 127:
                    size, at = self._varint(at - 1, end)
                start, at = at, at + size
            elif wire == 0:
                if at >= end:
                    break
                start = at
                at += 1
                if sent[start] > 127:
                    _, at = self._varint(start, end)
            else:
                start, at = at, at + {1: 8, 5: 4}.get(wire, 0)
            field = fields.get(tag >> 3)
            if field is None or at > end:
                continue
            if field.limit:
                items = 1
                if field.packed and wire == _BYTES:
                    items = len(sent[start:at].translate(None, _HIGH))
                count = counts[tag >> 3] = counts.get(tag >> 3, 0) + items
                if count > field.limit:
                    here = f"{path}.{field.name}" if path else field.name
                    raise InvalidRequest.of([_too_many(here, "items", field.limit)])
            if field.parts and wire == _BYTES and (self._counts or at - start > field.harmless):
                inside.append((start, at, field, counts.get(tag >> 3, 0) - 1))
        for start, at, field, index in inside:
            here = f"{path}.{field.name}" if path else field.name
            self.message(start, at, field.parts, f"{here}[{index}]" if field.limit else here)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 64:
            byte = self._sent[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        return 0, end  # it does not parse, which the parser reports


def _too_many(field: str, what: str, limit: int) -> FieldViolation:
    return FieldViolation(field, f"must have at most {limit} {what}", "Too many")
