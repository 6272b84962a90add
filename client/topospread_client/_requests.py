"""Parts of requests: the types of arguments, and their messages. Nothing here calls a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from topospread_client import _arguments as arguments
from topospread_client._enums import ConstraintValidation, Fit, Kind
from topospread_client._errors import invalid, invalid_fields
from topospread_client._manifests import (
    ManifestError,
    args_from_manifest,
    object_from_manifest,
    pod_from_manifest,
    pod_or_values,
    selector_from_query,
)
from topospread_client._references import PodReference, ResourceVersion, pod_reference, versions
from topospread_client._unknown_fields import unknown_fields
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common

PodObject: TypeAlias = kube.Pod | Mapping[str, Any] | bytes
"""A pod itself: a message, a manifest, or the bytes that Marshal() of a Go corev1.Pod makes."""

PodSource: TypeAlias = PodObject | PodReference | str
"""A pod itself, or its name in the state; as a string: ``NAMESPACE/NAME``."""

LabelSelector: TypeAlias = kube.LabelSelector | Mapping[str, str] | str
"""A message, labels that must be equal, or a query as kubectl's ``-l`` takes it."""

KubeObject: TypeAlias = (
    kube.Node
    | kube.Pod
    | kube.Service
    | kube.ReplicationController
    | kube.ReplicaSet
    | kube.StatefulSet
)
KeptObject: TypeAlias = state.ClusterObject | KubeObject | Mapping[str, Any]
"""An object as a message, bare or in its envelope, or as a manifest."""

_FIELDS: Final = {
    kube.Node: "node",
    kube.Pod: "pod",
    kube.Service: "service",
    kube.ReplicationController: "replication_controller",
    kube.ReplicaSet: "replica_set",
    kube.StatefulSet: "stateful_set",
}
_JSON_FIELDS: Final = {
    field.message_type.name: field.json_name
    for field in state.ClusterObject.DESCRIPTOR.fields
    if field.message_type is not None
}
"""Name of the field in a ClusterObject for each kind."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class RequestPart(Protocol[_T_co]):
    """Argument that becomes a message in a request."""

    def message(self, path: str) -> _T_co:
        """Message for the field with this path."""
        ...


class PodOnNode(NamedTuple):
    """A pod on a node, for what-if requests; without a node on the pod's own nodeName."""

    pod: PodSource
    node: str | None = None


WhatIf: TypeAlias = Iterable[tuple[PodSource, str | None]]
"""Pods to add or to remove hypothetically: PodOnNode, or such pairs."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """Freshness of the state behind a response; at most one of the first three.

    Attributes:
        at_least_as_fresh: a revision from an earlier answer to wait for.
        fully_consistent: read the store's head first, then wait for it.
        not_older_than: versions of the API server that the sync must have read.
        max_staleness: seconds; the server refuses when it has been without its store for longer.
    """

    at_least_as_fresh: str | None = None
    fully_consistent: bool = False
    not_older_than: Sequence[ResourceVersion] | None = None
    max_staleness: float | None = None

    def message(self, path: str) -> common.Consistency:
        """Message of the request."""
        asked: dict[str, Any] = {}
        if self.at_least_as_fresh:
            asked["at_least_as_fresh"] = self.at_least_as_fresh
        if self.fully_consistent:
            asked["fully_consistent"] = self.fully_consistent
        if self.not_older_than is not None:
            read = versions(self.not_older_than, f"{path}.notOlderThan.versions")
            asked["not_older_than"] = common.ObservedVersions(versions=read)
        if len(asked) > 1:
            raise invalid(path, f"{' and '.join(asked)} exclude each other")
        longest = arguments.duration(self.max_staleness, f"{path}.maxStaleness")
        return arguments.part(path, common.Consistency, max_staleness=longest, **asked)


@dataclass(frozen=True, slots=True)
class Settings:
    """Rules by which pods are judged, instead of those of their schedulerName's profile.

    Attributes:
        profile: name of a profile of the server's configuration.
        args: PodTopologySpreadArgs, as a message or as a manifest, instead of a profile's.
        feature_gates: by upstream's names; unnamed ones keep the server's values.
    """

    profile: str | None = None
    args: common.PodTopologySpreadArgs | Mapping[str, Any] | None = None
    feature_gates: Mapping[str, bool] | None = None

    def message(self, path: str) -> common.Settings:
        """Message of the request."""
        if self.profile is not None and self.args is not None:
            raise invalid(path, "profile and args exclude each other")
        rules: dict[str, Any] = {}
        if isinstance(self.args, Mapping):
            rules["args"] = manifest(args_from_manifest, self.args, f"{path}.args")
        elif self.args is not None:
            rules["args"] = self.args
        elif self.profile is not None:
            rules["profile"] = self.profile
        return arguments.part(
            path, common.Settings, feature_gates=self.feature_gates or {}, **rules
        )


def part_message(part: RequestPart[_T] | None, kind: type[RequestPart[_T]], path: str) -> _T | None:
    """Message of an argument; None leaves the field to the server."""
    return None if part is None else arguments.checked(kind, part, path).message(path)


def settings_message(settings: Settings | None) -> common.Settings | None:
    """Message of the rules by which pods are judged."""
    return part_message(settings, Settings, "settings")


def consistency_message(consistency: Consistency | None) -> common.Consistency | None:
    """Message of the freshness of the state."""
    return part_message(consistency, Consistency, "consistency")


def fit_message(fit: Fit | None, path: str = "fit") -> common.Fit.ValueType:
    """Message of the filters beside spreading."""
    made: common.Fit.ValueType = arguments.enum_value(common.Fit, Fit, fit, path)
    return made


def validation_message(
    validation: ConstraintValidation | None, path: str = "validation"
) -> common.ConstraintValidation.ValueType:
    """Message of how strictly constraints are validated."""
    made: common.ConstraintValidation.ValueType
    made = arguments.enum_value(common.ConstraintValidation, ConstraintValidation, validation, path)
    return made


def label_selector(
    selector: LabelSelector | None, path: str = "labelSelector"
) -> kube.LabelSelector | None:
    """Message of a label selector."""
    if selector is None or isinstance(selector, kube.LabelSelector):
        return selector
    if isinstance(selector, str):
        return selector_from_query(selector, path)
    if isinstance(selector, Mapping):
        return arguments.part(path, kube.LabelSelector, match_labels=selector)
    raise arguments.type_violation(path, "LabelSelector", selector)


def pod_source(
    pod: PodSource | None, path: str = "pod", validation: ConstraintValidation | None = None
) -> common.PodSource | None:
    """Message of a pod: itself, or its name in the state.

    Args:
        pod: itself or its name.
        path: of the field.
        validation: STRICT refuses a manifest with fields that Kubernetes does not have.

    Raises:
        ManifestError: a manifest that is no pod.
        InvalidRequest: an argument of another type, or unknown fields.
    """
    values = _source_values(pod, path, validation)
    return None if values is None else common.PodSource(**values)


def decided_pod(
    pod: PodSource | None, path: str = "pod", validation: ConstraintValidation | None = None
) -> Any:
    """Pod of a decision, as the fields of its message, which the request copies only once.

    Of a manifest, fields that no decision reads are skipped, but their names are known to be right
    with STRICT. Raises as :func:`pod_source` does.
    """
    return _source_values(pod, path, validation, _NOT_DECISIVE)


def decided_pods(
    pods: Iterable[PodSource], path: str, validation: ConstraintValidation | None
) -> list[Any]:
    """Several pods as :func:`decided_pod` gives them."""
    return [
        _required(decided_pod, pod, where, validation)
        for where, pod in arguments.with_paths(pods, path)
    ]


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


def _source_values(
    pod: PodSource | None,
    path: str,
    validation: ConstraintValidation | None,
    skipped: frozenset[str] = frozenset(),
) -> dict[str, Any] | None:
    """Fields of a PodSource."""
    if isinstance(pod, kube.Pod):
        return {"object": pod}
    if pod is None:
        return None
    if isinstance(pod, str | PodReference):
        return {"ref": pod_reference(pod, f"{path}.ref")}
    if isinstance(pod, bytes):
        return {"object_proto": pod}
    where = f"{path}.object"
    return {"object": checked_manifest(pod_or_values, pod, where, validation, skipped)}


def pod_message(pod: PodObject, path: str) -> kube.Pod:
    """Convert a pod in any of its three forms to a message.

    Raises:
        InvalidRequest: bytes that are no v1.Pod.
        ManifestError: a manifest that is no pod.
    """
    if isinstance(pod, kube.Pod):
        return pod
    if isinstance(pod, bytes):
        try:
            return kube.Pod.FromString(pod)
        except DecodeError as error:
            raise invalid(path, "these bytes are no serialized v1.Pod") from error
    return manifest(pod_from_manifest, pod, path)


def pods_on_nodes(
    pods: WhatIf, path: str, validation: ConstraintValidation | None = None
) -> list[common.PodOnNode]:
    """Messages of what-if pods, each with its node."""
    if pods == ():
        return []
    made = []
    for where, pair in arguments.with_paths(pods, path):
        pod, node = arguments.checked_pair(pair, where)
        source = _required(pod_source, pod, f"{where}.pod", validation)
        made.append(arguments.part(where, common.PodOnNode, pod=source, node=node or ""))
    return made


def _required(
    make: Callable[[PodSource, str, ConstraintValidation | None], _T | None],
    pod: PodSource,
    path: str,
    validation: ConstraintValidation | None,
) -> _T:
    source = make(pod, path, validation)
    if source is None:
        raise arguments.type_violation(path, "PodSource", pod)
    return source


def selection(nodes: Iterable[str] | None) -> common.NodeSelection | None:
    """Message of a choice of nodes; None (the server's own choice) and an empty one differ."""
    if nodes is None:
        return None
    names = arguments.as_list(nodes, "candidates")
    return common.NodeSelection(
        names=arguments.part("candidates.names", common.NodeNames, names=names)
    )


def manifest(
    read: Callable[Concatenate[Any, _P], _T],
    content: object,
    path: str,
    /,
    *args: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Convert a manifest; errors get the path of its field.

    Args:
        read: converts it.
        content: the manifest.
        path: of the field that it is for.
        args, options: what else the function takes.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    try:
        return read(content, *args, **options)
    except ManifestError as error:
        raise error.below(path) from None


def checked_manifest(
    read: Callable[Concatenate[Any, _P], _T],
    content: Any,
    path: str,
    validation: ConstraintValidation | None,
    /,
    *args: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Convert a manifest as :func:`manifest` does; with STRICT also its unknown fields are errors.

    Raises:
        ManifestError: the manifest cannot be read.
        InvalidRequest: the same, together with unknown fields.
    """
    if validation != ConstraintValidation.STRICT:
        return manifest(read, content, path, *args, **options)
    unknown = unknown_fields(content, path)
    try:
        converted = manifest(read, content, path, *args, **options)
    except ManifestError as error:
        if not unknown:
            raise
        raise invalid_fields((*unknown, *error.violations)) from None
    if unknown:
        raise invalid_fields(unknown)
    return converted


def object_message(kept: KeptObject, path: str) -> state.ClusterObject:
    """Convert an object to a ClusterObject.

    Raises:
        InvalidRequest: a kind that is not stored.
        ManifestError: a manifest that cannot be read.
    """
    if isinstance(kept, state.ClusterObject):
        return kept
    if type(kept) in _FIELDS:
        made = state.ClusterObject()
        getattr(made, _FIELDS[type(kept)]).CopyFrom(kept)
        return made
    kind = kept.get("kind") if isinstance(kept, Mapping) else None
    field = _JSON_FIELDS.get(kind) if isinstance(kind, str) else None
    read = manifest(object_from_manifest, kept, f"{path}.{field}" if field else path)
    if read is None:
        kinds = ", ".join(kind.label for kind in Kind if kind is not Kind.RESERVATION)
        text = f"kind {kind!r} is not kept: a server keeps {kinds}"
        raise invalid(path, text, "FIELD_VALUE_NOT_SUPPORTED")
    return read


def object_messages(kept: Iterable[KeptObject], path: str = "objects") -> list[state.ClusterObject]:
    """Convert several objects; raises as :func:`object_message` does."""
    return [object_message(each, where) for where, each in arguments.with_paths(kept, path)]


def kind_of(given: state.ClusterObject) -> Kind | None:
    """Kind of the object in a ClusterObject; None for an empty one."""
    name = arguments.checked(state.ClusterObject, given, "object").WhichOneof("content")
    return None if name is None else Kind[name.upper()]


def has_version(given: state.ClusterObject) -> bool:
    """Whether the object in a ClusterObject has a resourceVersion."""
    name = given.WhichOneof("content")
    return name is not None and bool(getattr(given, name).metadata.resource_version)


def batches(objects: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Split objects into batches that a server takes at once."""
    for start in range(0, len(objects), size):
        yield objects[start : start + size]
