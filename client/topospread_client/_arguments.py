"""Arguments of callers, made into request messages by the descriptors of their fields.

What is wrong raises `InvalidRequest` before anything is sent. Paths are those of the request's
fields, in JSON's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from topospread_client._errors import invalid, invalid_fields
from topospread_client._manifest_fields import field_type_error
from topospread_client._manifests import (
    CONTENTS,
    ManifestError,
    args_from_manifest,
    object_from_manifest,
    pod_from_manifest,
    pod_or_values,
    selector_from_query,
)
from topospread_client._unknown_fields import unknown_fields
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import scenario_pb2 as scenario

if TYPE_CHECKING:
    from topospread_client._methods import Method

_T = TypeVar("_T")

PodLike: TypeAlias = (
    kube.Pod | Mapping[str, Any] | bytes | str | common.PodReference | common.PodSource
)
"""A pod itself: a message, a manifest, the bytes that Marshal() of a Go corev1.Pod makes; or its
name in the state: a message, or ``NAMESPACE/NAME``.
"""

ObjectLike: TypeAlias = (
    state.ClusterObject
    | kube.Node
    | kube.Pod
    | kube.Service
    | kube.ReplicationController
    | kube.ReplicaSet
    | kube.StatefulSet
    | kube.PersistentVolume
    | kube.PersistentVolumeClaim
    | kube.StorageClass
    | kube.CSINode
    | kube.CSIDriver
    | kube.CSIStorageCapacity
    | kube.VolumeAttachment
    | kube.Namespace
    | kube.ResourceClaim
    | kube.DeviceClass
    | kube.ResourceSlice
    | kube.Job
    | Mapping[str, Any]
)
"""An object that a server keeps, as a message, bare or in its envelope, or as a manifest."""

SelectorLike: TypeAlias = kube.LabelSelector | Mapping[str, str] | str
"""A message, labels that must be equal, or a query as kubectl's ``-l`` takes it."""


class _How(NamedTuple):
    """How manifests are read.

    Attributes:
        strict: fields that Kubernetes does not have are errors.
        skipped: fields of pods to leave out.
    """

    strict: bool = False
    skipped: frozenset[str] = frozenset()


_Convert: TypeAlias = Callable[[Any, str, _How], Any]
"""Function from an argument, its path and how manifests are read to the value of a field."""

_DECISIONS: Final = frozenset({"PreFilter", "Filter", "Score", "EvaluatePod", "BatchEvaluatePods"})
_NOT_DECISIVE: Final = frozenset(
    {
        "ObjectMeta.annotations",
        "ObjectMeta.creation_timestamp",
        "PodSpec.containers",
        "PodSpec.init_containers",
        "PodSpec.overhead",
        "PodSpec.resources",
        "PodSpec.volumes",
        "PodStatus.conditions",
        "PodStatus.container_statuses",
        "PodStatus.init_container_statuses",
        "PodStatus.start_time",
    }
)
"""Fields of pods that matter where pods are kept, placed or simulated, and to no decision."""

_EXPECTED: Final = {
    FieldDescriptor.CPPTYPE_INT32: "integer of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "integer of 64 bits",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
}


def request(method: Method, arguments: Mapping[str, Any]) -> Any:
    """Make a method's request; None is an argument that is not given.

    Raises:
        InvalidRequest: an argument that its field does not take, or of no field; a ManifestError
            where it is a manifest.
    """
    return assembled(method.request, converted(method, arguments))


def converted(method: Method, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the fields of a method's request; raises as :func:`request`."""
    skipped = _NOT_DECISIVE if method.name in _DECISIONS else frozenset[str]()
    given = arguments.get("scenario")
    strictness = arguments.get("validation")
    if isinstance(given, scenario.Scenario):
        strictness = given.validation
    elif isinstance(given, Mapping):
        strictness = given.get("validation")
    strict = strictness is not None and _is_strict(strictness)
    return _values(method.request.DESCRIPTOR, "", arguments, _How(strict, skipped))


def part(kind: type[Any], path: str, arguments: Mapping[str, Any]) -> Any:
    """Make a message within a request; raises as :func:`request`."""
    return assembled(kind, _values(kind.DESCRIPTOR, path, arguments, _How()), path)


def assembled(kind: type[_T], values: Mapping[str, Any], path: str = "") -> _T:
    """Make a message of converted values; InvalidRequest names the first that its field refuses."""
    try:
        return kind(**values)
    except (TypeError, ValueError, OverflowError) as error:
        for name, value in values.items():
            _check(kind, path, name, value)
        raise invalid(path, str(error)) from error


def checked(kind: type[_T], argument: object, path: str) -> _T:
    """Return an argument of this class; of another one it is an InvalidRequest."""
    if isinstance(argument, kind):
        return argument
    raise _type_violation(path, kind.__name__, argument)


def several(argument: Iterable[_T], path: str) -> Iterable[_T]:
    """Return an iterable; strings, bytes, mappings and messages are none: InvalidRequest."""
    if isinstance(argument, str | bytes | Mapping | Message) or not isinstance(argument, Iterable):
        raise _type_violation(path, "list", argument)
    return argument


def _type_violation(path: str, expected: str, argument: object) -> Exception:
    if argument is None:
        return invalid(path, "", "FIELD_VALUE_REQUIRED")
    return invalid(path, str(field_type_error(expected, argument)))


def _values(
    message: Descriptor, path: str, arguments: Mapping[str, Any], how: _How
) -> dict[str, Any]:
    fields = _fields(message)
    values: dict[str, Any] = {}
    chosen: dict[str, str] = {}
    for name, argument in arguments.items():
        if argument is None:
            continue
        field = fields.get(name)
        if field is None:
            where = f"{path}.{name}".removeprefix(".")
            text = f"{message.name} has {', '.join(fields)}"
            if not path:
                text += "; a call takes timeout and traceparent beside them"
            raise invalid(where, text, "FIELD_UNKNOWN")
        json_name, convert, choice = field
        if choice and chosen.setdefault(choice, name) != name:
            raise invalid(path, f"{chosen[choice]} and {name} exclude each other")
        if convert is not None:
            argument = convert(argument, f"{path}.{json_name}" if path else json_name, how)
        values[name] = argument
    return values


@cache
def _fields(message: Descriptor) -> dict[str, tuple[str, _Convert | None, str]]:
    """Of each field of a message its name in JSON, its converter, and its oneof."""
    return {
        field.name: (
            field.json_name,
            _converter(field),
            field.containing_oneof.name if field.containing_oneof is not None else "",
        )
        for field in message.fields
    }


def _converter(field: FieldDescriptor) -> _Convert | None:
    """Converter of a field; None where protobuf itself takes what is given."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return None
    convert: _Convert | None = None
    if field.enum_type is not None:
        convert = _enum(field.enum_type)
    elif kind is not None:
        convert = _message(kind)
    if not field.is_repeated:
        return convert

    def convert_all(argument: Any, path: str, how: _How) -> list[Any]:
        elements = list(several(argument, path))
        if convert is None:
            return elements
        paths = (f"{path}[{at}]" for at in range(len(elements)))
        return [
            convert(_present(each, at), at, how) for each, at in zip(elements, paths, strict=True)
        ]

    return convert_all


def _present(argument: Any, path: str) -> Any:
    if argument is None:
        raise invalid(path, "", "FIELD_VALUE_REQUIRED")
    return argument


_SHORT: Final = {
    "ConstraintMatch": "topology_key",
    "Consistency": "at_least_as_fresh",
    "DrainedNode": "node",
    "RankConstraint": "topology_key",
    "Settings": "profile",
}
"""Fields that a text stands for, where the message is given as one."""


@cache
def _message(message: Descriptor) -> _Convert:
    """Converter of a message: itself, another form that stands for it, or a mapping of fields."""
    kind, short = GetMessageClass(message), _SHORT.get(message.name)
    special = _SPECIAL.get(message.name)

    def convert(argument: Any, path: str, how: _How) -> Any:
        if isinstance(argument, kind):
            return argument
        if special is not None and (made := special(argument, path, how)) is not NotImplemented:
            return made
        if short is not None and isinstance(argument, str):
            return assembled(kind, {short: argument} if argument else {}, path)
        if not isinstance(argument, Mapping) or not all(isinstance(each, str) for each in argument):
            raise _type_violation(path, message.name, argument)
        return assembled(kind, _values(message, path, argument, how), path)

    return convert


@cache
def _enum(enum: EnumDescriptor) -> _Convert:
    """Converter of an enum: a number, or a name with or without its prefix, in any case."""
    short = value_names(enum)
    names = [name for number, name in short.items() if number]
    numbers = {_folded(each.name): each.number for each in enum.values}
    numbers |= {_folded(name): number for number, name in short.items()}

    def convert(argument: Any, path: str, how: _How) -> int:
        if isinstance(argument, str) and _folded(argument) in numbers:
            return numbers[_folded(argument)]
        if type(argument) is int and argument in short:
            return argument
        text = f"{argument!r} is no {enum.name}: there are {', '.join(names)}"
        raise invalid(path, text, "FIELD_VALUE_NOT_SUPPORTED")

    return convert


@cache
def value_names(enum: EnumDescriptor) -> Mapping[int, str]:
    """Names of an enum's values without their prefix, by number: ``VIOLATED``."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {each.number: each.name.removeprefix(prefix) for each in enum.values}


def _folded(name: str) -> str:
    """A name as it is compared: ``ReplicaSet`` is ``REPLICA_SET``."""
    return name.replace("_", "").upper()


def _is_strict(strictness: Any) -> bool:
    number = _enum(common.ConstraintValidation.DESCRIPTOR)(strictness, "validation", _How())
    return bool(number == common.CONSTRAINT_VALIDATION_STRICT)


# What stands for a message, by the message's name: functions that make it, or NotImplemented.


def _pod_source(pod: Any, path: str, how: _How) -> Any:
    """A pod as the fields of its message, which the request copies only once."""
    if isinstance(pod, kube.Pod):
        return {"object": pod}
    if isinstance(pod, str | common.PodReference):
        return {"ref": _message(common.PodReference.DESCRIPTOR)(pod, f"{path}.ref", how)}
    if isinstance(pod, bytes):
        return {"object_proto": pod}
    return {"object": _manifest(pod_or_values, pod, f"{path}.object", how, how.skipped)}


def _pod_reference(pod: Any, path: str, how: _How) -> Any:
    if not isinstance(pod, str):
        return NotImplemented
    if pod.count("/") > 1:
        raise invalid(path, f"{pod[:200]!r} is no name of a pod: write NAMESPACE/NAME")
    namespace, _, name = pod.rpartition("/")
    return assembled(common.PodReference, {"namespace": namespace, "name": name}, path)


def _pod_on_node(pair: Any, path: str, how: _How) -> Any:
    """A pair of a pod and its node, or None."""
    pod, node = _pair(pair, path)
    return assembled(common.PodOnNode, {"pod": _pod_in(pod, path, how), "node": node or ""}, path)


def _pods_to_place(pods: Any, path: str, how: _How) -> Any:
    """A pod, or a pair of a pod and its replicas."""
    if isinstance(pods, Mapping) and "pod" in pods:
        return NotImplemented
    pod, replicas = _pair(pods, path) if isinstance(pods, tuple) else (pods, None)
    values = {"pod": _pod_in(pod, path, how), "replicas": replicas}
    return assembled(scenario.PodsToPlace, values, path)


def _pod_in(pod: Any, path: str, how: _How) -> Any:
    where = f"{path}.pod"
    return _message(common.PodSource.DESCRIPTOR)(_present(pod, where), where, how)


def _pair(argument: Any, path: str) -> Any:
    if len(checked(tuple, argument, path)) != 2:
        raise invalid(path, "expected a pair")
    return argument


def _node_selection(nodes: Any, path: str, how: _How) -> Any:
    """Nodes by their names; an empty selection is none of them."""
    names = assembled(common.NodeNames, {"names": list(several(nodes, path))}, f"{path}.names")
    return common.NodeSelection(names=names)


def _node_labels(labels: Any, path: str, how: _How) -> Any:
    return assembled(scenario.NodeLabels, {"labels": labels}, path)


def _label_selector(selector: Any, path: str, how: _How) -> Any:
    if isinstance(selector, str):
        return selector_from_query(selector, path)
    if isinstance(selector, Mapping):
        return assembled(kube.LabelSelector, {"match_labels": selector}, path)
    return NotImplemented


def _args(args: Any, path: str, how: _How) -> Any:
    return _manifest(args_from_manifest, args, path, _How())


def _duration(seconds: Any, path: str, how: _How) -> Duration:
    message = Duration()
    try:
        message.FromTimedelta(timedelta(seconds=seconds))
    except TypeError:
        raise _type_violation(path, "number of seconds", seconds) from None
    except (ValueError, OverflowError):  # NaN, infinity, or more than a Duration holds
        raise invalid(path, f"{seconds} is no duration in seconds") from None
    return message


def _timestamp(time: Any, path: str, how: _How) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(checked(datetime, time, path))
    return message


def _pod(pod: Any, path: str, how: _How) -> kube.Pod:
    if not isinstance(pod, bytes):
        return _manifest(pod_from_manifest, pod, path, how)
    try:
        return kube.Pod.FromString(pod)
    except DecodeError as error:
        raise invalid(path, "these bytes are no serialized v1.Pod") from error


def _object_of(kind: str) -> _Convert:
    """Converter of an object that must be of one kind."""

    def convert(given: Any, path: str, how: _How) -> Any:
        read = _manifest(object_from_manifest, given, path, how)
        if read is None or read.WhichOneof("content") != CONTENTS[kind].name:
            raise invalid(path, f"kind {given['kind']!r}: this must be a {kind}")
        return getattr(read, CONTENTS[kind].name)

    return convert


def _cluster_object(given: Any, path: str, how: _How) -> state.ClusterObject:
    if isinstance(given, Message) and given.DESCRIPTOR.name in CONTENTS:
        return assembled(state.ClusterObject, {CONTENTS[given.DESCRIPTOR.name].name: given}, path)
    kind = given.get("kind") if isinstance(given, Mapping) else None
    field = CONTENTS.get(kind) if isinstance(kind, str) else None
    where = f"{path}.{field.json_name}" if field is not None else path
    read = _manifest(object_from_manifest, given, where, how)
    if read is None:
        kinds = ", ".join(each for each in CONTENTS if each != "Reservation")
        text = f"kind {kind!r} is not kept: a server keeps {kinds}"
        raise invalid(path, text, "FIELD_VALUE_NOT_SUPPORTED")
    return read


_SPECIAL: Final[Mapping[str, _Convert]] = {
    "ClusterObject": _cluster_object,
    "Duration": _duration,
    "LabelSelector": _label_selector,
    "Node": _object_of("Node"),
    "NodeLabels": _node_labels,
    "NodeSelection": _node_selection,
    "Pod": _pod,
    "PodOnNode": _pod_on_node,
    "PodReference": _pod_reference,
    "PodSource": _pod_source,
    "PodTopologySpreadArgs": _args,
    "PodsToPlace": _pods_to_place,
    "ReplicaSet": _object_of("ReplicaSet"),
    "Timestamp": _timestamp,
}


def _manifest(read: Callable[..., _T], content: Any, path: str, how: _How, /, *options: Any) -> _T:
    """Convert a manifest; errors get the path of its field, and with strict name unknown ones."""
    unknown = unknown_fields(content, path) if how.strict else ()
    try:
        made = read(content, *options)
    except ManifestError as error:
        below = error.below(path)
        raise (invalid_fields((*unknown, *below.violations)) if unknown else below) from None
    if unknown:
        raise invalid_fields(unknown)
    return made


def _check(kind: type[Any], path: str, name: str, value: Any) -> None:
    """Find the error in one field by trying it alone, and each element of a list."""
    field = kind.DESCRIPTOR.fields_by_name[name]
    where = f"{path}.{field.json_name}".removeprefix(".")
    tries = [(where, value, value)]
    if isinstance(value, list):
        tries = [(f"{where}[{number}]", [each], each) for number, each in enumerate(value)]
    for at, tried, element in tries:
        try:
            kind(**{name: tried})
        except UnicodeError as error:
            raise invalid(at, str(error)) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise _type_violation(at, _expected(field), element) from error


def _expected(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is None:
        return _EXPECTED[field.cpp_type]
    if not message.GetOptions().map_entry:
        return message.name
    key, value = map(_expected, message.fields)
    return f"map of {key} to {value}"
