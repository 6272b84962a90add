"""What callers give → parts of request messages. Nothing here calls a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from topospread_client import _given as given
from topospread_client._enums import ConstraintValidation, Fit, Kind
from topospread_client._errors import invalid
from topospread_client._manifests import (
    ManifestError,
    args_from_manifest,
    object_from_manifest,
    pod_from_manifest,
)
from topospread_client._references import PodReference, ResourceVersion, pod_reference, versions
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
"""Of each kind, the field in a ClusterObject."""

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Carried(Protocol[_T_co]):
    """What a request carries as a message."""

    def message(self, path: str) -> _T_co:
        """As the request carries it, in the field with this path."""
        ...


class PodOnNode(NamedTuple):
    """A pod on a node, for what-if questions; without a node on the pod's own nodeName."""

    pod: PodSource
    node: str | None = None


WhatIf: TypeAlias = Iterable[tuple[PodSource, str | None]]
"""Pods to imagine or to imagine away: PodOnNode, or such pairs."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """How fresh the state behind an answer must be; at most one of the first three.

    Attributes:
        at_least_as_fresh: a revision from an earlier answer to wait for.
        fully_consistent: ask the store for its head first, then wait for it.
        not_older_than: versions of the API server that the feed must have read.
        max_staleness: seconds; the server refuses when it has been without its store for longer.
    """

    at_least_as_fresh: str | None = None
    fully_consistent: bool = False
    not_older_than: Sequence[ResourceVersion] | None = None
    max_staleness: float | None = None

    def message(self, path: str) -> common.Consistency:
        """As the request carries it."""
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
        longest = given.duration(self.max_staleness, f"{path}.maxStaleness")
        return given.part(path, common.Consistency, max_staleness=longest, **asked)


@dataclass(frozen=True, slots=True)
class Settings:
    """By which rules pods are judged, instead of those of their schedulerName's profile.

    Attributes:
        profile: name of a profile of the server's configuration.
        args: PodTopologySpreadArgs, as a message or as a manifest, instead of a profile's.
        feature_gates: by upstream's names; unnamed ones keep the server's values.
    """

    profile: str | None = None
    args: common.PodTopologySpreadArgs | Mapping[str, Any] | None = None
    feature_gates: Mapping[str, bool] | None = None

    def message(self, path: str) -> common.Settings:
        """As the request carries it."""
        if self.profile is not None and self.args is not None:
            raise invalid(path, "profile and args exclude each other")
        rules: dict[str, Any] = {}
        if isinstance(self.args, Mapping):
            rules["args"] = manifest(args_from_manifest, self.args, f"{path}.args")
        elif self.args is not None:
            rules["args"] = self.args
        elif self.profile is not None:
            rules["profile"] = self.profile
        return given.part(path, common.Settings, feature_gates=self.feature_gates or {}, **rules)


def carried(part: Carried[_T] | None, kind: type[Carried[_T]], path: str) -> _T | None:
    """The message of what was given; None leaves the field to the server."""
    return None if part is None else given.expect(kind, part, path).message(path)


def settings_message(settings: Settings | None) -> common.Settings | None:
    """By which rules pods are judged."""
    return carried(settings, Settings, "settings")


def consistency_message(consistency: Consistency | None) -> common.Consistency | None:
    """How fresh the state must be."""
    return carried(consistency, Consistency, "consistency")


def fit_message(fit: Fit | None, path: str = "fit") -> common.Fit.ValueType:
    """How much is asked beside spreading."""
    made: common.Fit.ValueType = given.member(common.Fit, Fit, fit, path)
    return made


def validation_message(
    validation: ConstraintValidation | None, path: str = "validation"
) -> common.ConstraintValidation.ValueType:
    """How closely constraints are looked at."""
    made: common.ConstraintValidation.ValueType
    made = given.member(common.ConstraintValidation, ConstraintValidation, validation, path)
    return made


def label_selector(
    selector: LabelSelector | None, path: str = "labelSelector"
) -> kube.LabelSelector | None:
    """A label selector as requests carry it."""
    if selector is None or isinstance(selector, kube.LabelSelector):
        return selector
    if isinstance(selector, str):
        from topospread_client._label_query import selector_from_query

        return selector_from_query(selector, path)
    if isinstance(selector, Mapping):
        return given.part(path, kube.LabelSelector, match_labels=selector)
    raise given.unexpected(path, "LabelSelector", selector)


def pod_source(pod: PodSource | None, path: str = "pod") -> common.PodSource | None:
    """The pod itself, or its name in the state.

    Raises:
        ManifestError: a manifest that is no pod.
        InvalidRequest: nothing of which there is a pod.
    """
    if pod is None:
        return None
    if isinstance(pod, str | PodReference):
        return common.PodSource(ref=pod_reference(pod, f"{path}.ref"))
    if isinstance(pod, bytes):
        return common.PodSource(object_proto=pod)
    return common.PodSource(object=pod_message(pod, f"{path}.object"))


def pod_sources(pods: Iterable[PodSource], path: str = "pods") -> list[common.PodSource]:
    """Several pods; raises as :func:`pod_source` does."""
    return [_required(pod, where) for where, pod in given.each(pods, path)]


def pod_message(pod: PodObject, path: str) -> kube.Pod:
    """A pod in any of its three forms as a message.

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


def pods_on_nodes(pods: WhatIf, path: str) -> list[common.PodOnNode]:
    """What-if pods, each with its node."""
    made = []
    for where, pair in given.each(pods, path):
        pod, node = given.pair(pair, where)
        source = _required(pod, f"{where}.pod")
        made.append(given.part(where, common.PodOnNode, pod=source, node=node or ""))
    return made


def _required(pod: PodSource, path: str) -> common.PodSource:
    source = pod_source(pod, path)
    if source is None:
        raise given.unexpected(path, "PodSource", pod)
    return source


def selection(nodes: Iterable[str] | None) -> common.NodeSelection | None:
    """A choice of nodes; None (the server's own choice) and an empty one differ."""
    if nodes is None:
        return None
    names = given.several(nodes, "candidates")
    return common.NodeSelection(names=given.part("candidates.names", common.NodeNames, names=names))


def manifest(read: Callable[[Any], _T], content: object, path: str) -> _T:
    """What a manifest means.

    Args:
        read: reads it.
        content: the manifest.
        path: of the field that it is for.

    Raises:
        ManifestError: it cannot be read.
    """
    try:
        return read(content)
    except ManifestError as error:
        raise error.below(path) from None


def object_message(kept: KeptObject, path: str) -> state.ClusterObject:
    """An object in its envelope.

    Raises:
        InvalidRequest: nothing that is kept.
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
    """Several objects; raises as :func:`object_message` does."""
    return [object_message(each, where) for where, each in given.each(kept, path)]


def kind_of(given: state.ClusterObject) -> Kind | None:
    """The kind of the object in an envelope; None for an empty one."""
    name = given.WhichOneof("content")
    return None if name is None else Kind[name.upper()]


def has_version(given: state.ClusterObject) -> bool:
    """Whether the object in an envelope says which version of it this is."""
    name = given.WhichOneof("content")
    return name is not None and bool(getattr(given, name).metadata.resource_version)


def pieces(objects: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The objects in runs that a server takes at once."""
    for start in range(0, len(objects), size):
        yield objects[start : start + size]
