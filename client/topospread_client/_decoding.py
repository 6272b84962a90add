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
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import topospread_client
from topospread_client import _answers as answers
from topospread_client._status import error_from_status
from topospread_proto.v1 import common_pb2

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

_VERDICT_CODE: Final = common_pb2.VerdictCode.DESCRIPTOR

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
    values = _values(cast("Any", kind), message.DESCRIPTOR, *read)(message)
    return kind(**values, **read, traceparent=reply.traceparent)


def evaluated(
    message: decisions.EvaluatePodResponse, traceparent: str | None, **read: Any
) -> answers.EvaluatePodResponse:
    """Convert a response of EvaluatePod, each field when it is first read.

    Most callers read few of them, and to convert all takes as long as to send the request. What
    could fail later is checked now.

    Args:
        message: of the response.
        traceparent: of the call.
        read: fields that have been converted already.

    Raises:
        ValueError: a verdict that this client does not know.
    """
    known = _members(_VERDICT_CODE)
    known(message.pre_filter_verdict.code)
    known(message.pre_score_verdict.code)
    for counted in message.verdict_counts[:]:
        known(counted.verdict.code)
    return answers.EvaluatePodResponse.from_message(
        message, field_reader, traceparent=traceparent, **read
    )


@cache
def field_reader(kind: type[answers.Answer], message: Descriptor, name: str) -> _Read:
    """Reader of one field of a class.

    Raises:
        AttributeError: the class has no such field.
    """
    if name not in {each.name for each in fields(kind)}:
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    read = _reader(kind, message, [name])
    return lambda part: read(part)[0]


def value(kind: type[_T], message: Message) -> _T:
    """Convert a message to a class; raises as :func:`answer` does."""
    return kind(**_values(cast("Any", kind), message.DESCRIPTOR)(message))


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

    def result(message: decisions.BatchEvaluatePodsResult) -> Any:
        if message.WhichOneof("result") == "error":
            return error_from_status(message.error)
        return evaluated(message.response, reply.traceparent, meta=meta)

    results = tuple(map(result, reply.message.results))
    return answers.BatchEvaluatePodsResponse(
        meta=meta, traceparent=reply.traceparent, results=results
    )


@cache
def _values(kind: Any, message: Descriptor, *but: str) -> Callable[[Message], dict[str, Any]]:
    """Reader of the fields of a class by name, except those that are read already."""
    own = {"traceparent", *but} if issubclass(kind, answers.Answer) else set(but)
    names = [each.name for each in fields(kind) if each.name not in own]
    read = _reader(kind, message, names)
    return lambda part: dict(zip(names, read(part), strict=True))


def _reader(kind: Any, message: Descriptor, names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Reader of some fields of a class, in their order.

    All are read at once as they are, and then converted where they have to be.
    """
    get: Callable[[Any], Sequence[Any]] = attrgetter(*names) if len(names) > 1 else _get(*names)
    optional = {each.name for each in fields(kind) if str(each.type).endswith("| None")}
    changes: list[tuple[int, str, _Read | None]] = []
    for at, name in enumerate(names):
        field = message.fields_by_name[name]
        convert = _field_converter(field)
        if name not in optional:
            changes.append((at, "", convert))
        elif field.has_presence:
            changes.append((at, name, convert))
        else:
            changes.append((at, "", _or_none(convert)))
    changes = [change for change in changes if change[1:] != ("", None)]
    if not changes:
        return get

    def read(part: Any) -> Sequence[Any]:
        values = list(get(part))
        for at, name, convert in changes:
            if name and not part.HasField(name):
                values[at] = None
            elif convert is not None:
                values[at] = convert(values[at])
        return values

    return read


def _get(*names: str) -> Callable[[Any], Sequence[Any]]:
    """As `attrgetter` for any number of names; it is quicker for several."""
    return lambda part: [getattr(part, name) for name in names]


def _or_none(convert: _Read | None) -> _Read:
    """Converter that makes None of an empty value."""
    if convert is None:
        return lambda empty: empty or None
    return lambda empty: convert(empty) if empty else None


def _field_converter(field: FieldDescriptor) -> _Read | None:
    """Converter of a field; None where the value stays as it is."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict
    convert = _converter(field)
    if not field.is_repeated:
        return convert
    # A slice takes a third of the time of an iteration.
    if convert is None:
        return lambda several: tuple(several[:])
    return lambda several: tuple([convert(each) for each in several[:]])


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
    read = _reader(kind, message, [each.name for each in fields(kind)])
    return lambda part: kind(*read(part))


@cache
def _members(enum: EnumDescriptor) -> _Read:
    """Converter of the numbers of an enum to its members."""
    name = enum.name if enum.containing_type is None else enum.containing_type.name + enum.name
    kind = getattr(topospread_client, name)
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    members = _Members(name)
    for number, each in enum.values_by_number.items():
        if number:
            members[number] = kind[each.name.removeprefix(prefix)]
    return members.__getitem__


class _Members(dict[int, Any]):
    """Members of an enum by their numbers."""

    def __init__(self, enum: str) -> None:
        super().__init__()
        self._enum: Final = enum

    def __missing__(self, number: int) -> Any:
        raise ValueError(f"{self._enum} {number} is not known here")


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
