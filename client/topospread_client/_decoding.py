"""Response messages → the classes of this package.

A message becomes the class with its name, field by field: a field whose annotation allows None is
None where the message lacks it.
"""

from __future__ import annotations

from array import array
from dataclasses import fields
from datetime import UTC
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import topospread_client
from topospread_client import _answers as answers
from topospread_client._status import error_in_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

    from topospread_client._operations import RpcReply
    from topospread_proto.v1 import decision_service_pb2 as decisions

_T = TypeVar("_T")
_A = TypeVar("_A", bound=answers.Answer)

_Read: TypeAlias = "Callable[[Any], Any]"

_KUBERNETES: Final = "topospread.kubernetes."
_OBJECT: Final = "topospread.v1.ClusterObject"
"""Names of messages that stay messages."""

_TYPECODES: Final = {"int32": "i", "int64": "q"}


def answer(kind: type[_A], reply: RpcReply[Any], **read: Any) -> _A:
    """Convert the response of a call.

    Args:
        kind: class of the response.
        reply: of the call.
        read: fields that have been converted already.

    Raises:
        ValueError: a value that this client does not know.
    """
    message = reply.message
    values = _values(kind, message, *read)
    return kind(**values, **read, traceparent=reply.traceparent)


def value(kind: type[_T], message: Message) -> _T:
    """Convert a message to a class; raises as :func:`answer` does."""
    return kind(**_values(kind, message))


def _values(kind: Any, message: Message, *but: str) -> dict[str, Any]:
    return {name: get(message) for name, get in _readers(kind, message.DESCRIPTOR, *but)}


def filtered(
    reply: RpcReply[decisions.FilterResponse], names: Sequence[str]
) -> answers.FilterResponse:
    """Convert a response of Filter; `names` has one name for each verdict."""
    verdicts = int_array(reply.message.verdicts, "int32")
    return answer(answers.FilterResponse, reply, node_names=names, verdicts=verdicts)


def scored(reply: RpcReply[decisions.ScoreResponse], names: Sequence[str]) -> answers.ScoreResponse:
    """Convert a response of Score; `names` has one name for each score."""
    raw = int_array(reply.message.raw, "int64")
    normalized = int_array(reply.message.normalized, "int32")
    kind = answers.ScoreResponse
    return answer(kind, reply, node_names=names, raw=raw, normalized=normalized)


def batch(
    reply: RpcReply[decisions.BatchEvaluatePodsResponse],
) -> answers.BatchEvaluatePodsResponse:
    """Convert a response of BatchEvaluatePods; a pod that failed has its error in its place."""
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
    """Readers of the fields of a class from its message, except those that are read already."""
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
    """Converter of one value of a field; None where the value stays as it is."""
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
    """Converter of the numbers of an enum to its members."""
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


def int_array(values: Sequence[int], dtype: str) -> answers.IntArray:
    """Copy a field to an array: NumPy's where it is installed, the standard library's otherwise.

    Args:
        values: a repeated field.
        dtype: ``int32`` or ``int64``.
    """
    from_iterable = _numpy_fromiter()
    if from_iterable is None:
        return array(_TYPECODES[dtype], values)
    made: answers.IntArray = from_iterable(values, dtype=dtype, count=len(values))
    return made


@cache
def _numpy_fromiter() -> Callable[..., Any] | None:
    try:
        import numpy as np
    except ImportError:
        return None
    return np.fromiter
