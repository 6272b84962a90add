"""What callers give → parts of request messages. Nothing here calls a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from topospread_client.answers import Kind
from topospread_client.errors import InvalidRequest
from topospread_client.manifests import args_from_manifest, object_from_manifest, pod_from_manifest
from topospread_proto.v1 import cluster_state_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import kubernetes_pb2 as kube

MAX_WRITE: Final = 500
"""Objects that a server writes in one atomic step."""

PodLike: TypeAlias = kube.Pod | Mapping[str, Any] | bytes | str
"""A message, a manifest, bytes of a v1.Pod, or ``namespace/name`` of a pod in the state."""

PodGiven: TypeAlias = kube.Pod | Mapping[str, Any] | bytes
"""A pod itself, in one of the three forms."""

KubeObject: TypeAlias = (
    kube.Node
    | kube.Pod
    | kube.Service
    | kube.ReplicationController
    | kube.ReplicaSet
    | kube.StatefulSet
)
ObjectLike: TypeAlias = state.Object | KubeObject | Mapping[str, Any]
"""An object as a message, bare or in its envelope, or as a manifest."""

_FIELDS: Final = {
    kube.Node: "node",
    kube.Pod: "pod",
    kube.Service: "service",
    kube.ReplicationController: "replication_controller",
    kube.ReplicaSet: "replica_set",
    kube.StatefulSet: "stateful_set",
}
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Carried(Protocol[_T_co]):
    """What a request carries as a message."""

    def message(self) -> _T_co:
        """As the request carries it."""
        ...


@dataclass(frozen=True, slots=True)
class Consistency:
    """How fresh the state behind an answer must be; at most one of the first two.

    Attributes:
        at_least_as_fresh: a revision from an earlier answer to wait for.
        fully_consistent: ask the store for its head first, then wait for it.
        max_staleness: seconds; the server refuses when it has been without its store for longer.
    """

    at_least_as_fresh: str = ""
    fully_consistent: bool = False
    max_staleness: float | None = None

    def message(self) -> common.Consistency:
        """As the request carries it."""
        if self.at_least_as_fresh and self.fully_consistent:
            raise InvalidRequest(
                "consistency: at_least_as_fresh and fully_consistent exclude each other"
            )
        message = common.Consistency(max_staleness=duration(self.max_staleness))
        if self.fully_consistent:
            message.fully_consistent = True
        elif self.at_least_as_fresh:
            message.at_least_as_fresh = self.at_least_as_fresh
        return message


@dataclass(frozen=True, slots=True)
class Settings:
    """By which rules pods are judged, instead of those of their schedulerName's profile.

    Attributes:
        profile: name of a profile of the server's configuration.
        args: PodTopologySpreadArgs, as a message or as a manifest, instead of a profile's.
        gates: feature gates by upstream's names; unnamed ones keep the server's values.
    """

    profile: str = ""
    args: common.PodTopologySpreadArgs | Mapping[str, Any] | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)

    def message(self) -> common.Settings:
        """As the request carries it."""
        args = self.args
        if isinstance(args, Mapping):
            args = args_from_manifest(args)
        return common.Settings(profile=self.profile, args=args, feature_gates=self.gates)


@dataclass(frozen=True, slots=True)
class Reference:
    """Names an object; `uid` and `resource_version`, when given, must be those stored."""

    kind: Kind
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    def message(self) -> state.ObjectReference:
        """As the request carries it."""
        return state.ObjectReference(
            kind=kind_message(self.kind),
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            resource_version=self.resource_version,
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod that a decision is about; at most one of the two is set."""

    pod: kube.Pod | None = None
    pod_ref: common.PodReference | None = None


def carried(given: Carried[_T] | None) -> _T | None:
    """The message of what was given; None leaves the field to the server."""
    return None if given is None else given.message()


def duration(seconds: float | None) -> Duration | None:
    """Seconds as requests carry them; None leaves the field to the server."""
    if seconds is None:
        return None
    message = Duration()
    message.FromTimedelta(timedelta(seconds=seconds))
    return message


def subject(pod: PodLike | None) -> Subject:
    """The pod itself, or its name in the state.

    Raises:
        InvalidRequest: bytes that are no v1.Pod.
        ManifestError: a manifest that is no pod.
    """
    if pod is None:
        return Subject()
    if isinstance(pod, str):
        namespace, _, name = pod.rpartition("/")
        return Subject(pod_ref=common.PodReference(namespace=namespace, name=name))
    return Subject(pod=pod_message(pod))


def pod_message(pod: PodGiven) -> kube.Pod:
    """A pod in any of its three forms as a message; raises as :func:`subject` does."""
    if isinstance(pod, kube.Pod):
        return pod
    if isinstance(pod, bytes):
        try:
            return kube.Pod.FromString(pod)
        except DecodeError as error:
            raise InvalidRequest("these bytes are no serialized v1.Pod") from error
    return pod_from_manifest(pod)


def pods_on_nodes(pods: Iterable[tuple[PodGiven, str]]) -> Iterator[common.PodOnNode]:
    """What-if pods, each with its node; an empty node stands for the pod's own nodeName."""
    for pod, node in pods:
        yield common.PodOnNode(pod=pod_message(pod), node=node)


def selection(nodes: Iterable[str] | None) -> common.NodeSelection | None:
    """A choice of nodes; None (the server's own choice) and an empty one differ."""
    return None if nodes is None else common.NodeSelection(names=nodes)


def object_message(given: ObjectLike) -> state.Object:
    """An object in its envelope.

    Raises:
        InvalidRequest: a manifest of a kind that is not kept.
        ManifestError: a manifest that cannot be read.
    """
    if isinstance(given, state.Object):
        return given
    if isinstance(given, Mapping):
        made = object_from_manifest(given)
        if made is None:
            kinds = ", ".join(kind.label for kind in Kind)
            raise InvalidRequest(f"kind {given.get('kind')!r} is not kept: a server keeps {kinds}")
        return made
    made = state.Object()
    getattr(made, _FIELDS[type(given)]).CopyFrom(given)
    return made


def kind_of(given: state.Object) -> Kind | None:
    """The kind of the object in an envelope; None for an empty one."""
    name = given.WhichOneof("object")
    return None if name is None else Kind[name.upper()]


def has_version(given: state.Object) -> bool:
    """Whether the object in an envelope says which version of it this is."""
    name = given.WhichOneof("object")
    return name is not None and bool(getattr(given, name).metadata.resource_version)


def kind_message(kind: Kind) -> state.Kind.ValueType:
    """A kind as requests carry it."""
    return state.Kind.Value(f"KIND_{kind.name}")


def pieces(objects: Sequence[_T], size: int = MAX_WRITE) -> Iterator[Sequence[_T]]:
    """The objects in runs that a server takes at once."""
    for start in range(0, len(objects), size):
        yield objects[start : start + size]
