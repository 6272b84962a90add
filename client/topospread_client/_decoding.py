"""Messages from the server → answers.

A message becomes the class of the package that has its name, field by field: what a field's
annotation allows to be None is None where the message says nothing.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import topospread_client
from topospread_client import _answers as answers
from topospread_client._arrays import int_array
from topospread_client._status import error_in_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

    from topospread_client._operations import Reply
    from topospread_proto.v1 import decision_service_pb2 as decisions

_T = TypeVar("_T")
_A = TypeVar("_A", bound=answers.Answer)

_Read: TypeAlias = "Callable[[Any], Any]"

_KUBERNETES: Final = "topospread.kubernetes."
_OBJECT: Final = "topospread.v1.ClusterObject"
"""Messages that stay messages."""


def answer(kind: type[_A], reply: Reply[Any], **read: Any) -> _A:
    """A call's answer.

    Args:
        kind: its class.
        reply: of the call.
        read: fields that have been read already.

    Raises:
        ValueError: it says what this client cannot know.
    """
    message = reply.message
    values = _values(kind, message, *read)
    return kind(**values, **read, traceparent=reply.traceparent)


def value(kind: type[_T], message: Message) -> _T:
    """A message as the class of its name; raises as :func:`answer` does."""
    return kind(**_values(kind, message))


def _values(kind: Any, message: Message, *but: str) -> dict[str, Any]:
    return {name: get(message) for name, get in _readers(kind, message.DESCRIPTOR, *but)}


def filtered(
    reply: Reply[decisions.FilterResponse], names: Sequence[str]
) -> answers.FilterResponse:
    """Filter's answer; `names` has one name for each verdict."""
    verdicts = int_array(reply.message.verdicts, "int32")
    return answer(answers.FilterResponse, reply, node_names=names, verdicts=verdicts)


def scored(reply: Reply[decisions.ScoreResponse], names: Sequence[str]) -> answers.ScoreResponse:
    """Score's answer; `names` has one name for each score."""
    raw = int_array(reply.message.raw, "int64")
    normalized = int_array(reply.message.normalized, "int32")
    kind = answers.ScoreResponse
    return answer(kind, reply, node_names=names, raw=raw, normalized=normalized)


def batch(
    reply: Reply[decisions.BatchEvaluatePodsResponse],
) -> answers.BatchEvaluatePodsResponse:
    """BatchEvaluatePods' answer; a pod that could not be judged has its error in its place."""
    meta = value(answers.ResponseMeta, reply.message.meta)
    one = answers.EvaluatePodResponse
    read = _readers(one, reply.message.DESCRIPTOR.file.message_types_by_name[one.__name__], "meta")

    def result(message: decisions.BatchEvaluatePodsResult) -> Any:
        if message.WhichOneof("result") == "error":
            return error_in_answer(message.error)
        values = {name: get(message.response) for name, get in read}
        return one(meta=meta, traceparent=reply.traceparent, **values)

    results = tuple(map(result, reply.message.results))
    return answers.BatchEvaluatePodsResponse(
        meta=meta, traceparent=reply.traceparent, results=results
    )


@cache
def _readers(kind: Any, message: Descriptor, *but: str) -> tuple[tuple[str, _Read], ...]:
    """How each field of a class is read from its message; without those that are read already."""
    own = {"traceparent", *but} if issubclass(kind, answers.Answer) else set(but)
    return tuple(
        (each.name, _reader(message.fields_by_name[each.name], str(each.type).endswith("| None")))
        for each in fields(kind)
        if each.name not in own
    )


def _reader(field: FieldDescriptor, optional: bool) -> _Read:
    name = field.name
    get: _Read = attrgetter(name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda message: dict(get(message))
    convert = _converter(field)
    if field.is_repeated:
        if convert is None:
            return lambda message: tuple(get(message))
        return lambda message: tuple(map(convert, get(message)))
    if optional and field.has_presence:
        if convert is None:
            return lambda message: get(message) if message.HasField(name) else None
        return lambda message: convert(get(message)) if message.HasField(name) else None
    if optional:
        if convert is None:
            return lambda message: get(message) or None
        return lambda message: convert(get(message)) if get(message) else None
    return get if convert is None else lambda message: convert(get(message))


def _converter(field: FieldDescriptor) -> _Read | None:
    """What one value of a field becomes; None where it stays as it is."""
    if field.enum_type is not None:
        return _members(field.enum_type)
    message = field.message_type
    if message is None or message.full_name == _OBJECT:
        return None
    if message.full_name.startswith(_KUBERNETES):
        return None
    if message.full_name == "google.protobuf.Timestamp":
        return lambda stamp: stamp.ToDatetime(tzinfo=UTC)
    if message.full_name == "google.protobuf.Duration":
        return lambda duration: duration.seconds + duration.nanos / 1e9
    kind = getattr(topospread_client, message.name)
    reads = [read for _, read in _readers(kind, message)]
    return lambda part: kind(*[read(part) for read in reads])


def _members(enum: EnumDescriptor) -> _Read:
    """An enum's members by their numbers."""
    name = enum.name if enum.containing_type is None else enum.containing_type.name + enum.name
    kind = getattr(topospread_client, name)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    members = {
        number: kind[each.name.removeprefix(prefix)]
        for number, each in enum.values_by_number.items()
        if number
    }

    def member(number: int) -> Any:
        try:
            return members[number]
        except KeyError:
            raise ValueError(f"{name} {number} is not known here") from None

    return member
