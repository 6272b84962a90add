"""What is kept of an object, and the part of it that decisions about others rest on.

stored.proto says which fields are kept; here is what a declaration cannot say. Two lists of one
thing, two ways of writing an empty field, and the order of a map must not make different bytes:
the store writes nothing when the bytes are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from topospread.generated.internal.v1 import stored_pb2 as pb
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES
from topospread.store.api import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from google.protobuf.message import Message

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as api

    Kept = (
        pb.StoredNode
        | pb.StoredPod
        | pb.StoredService
        | pb.StoredReplicationController
        | pb.StoredReplicaSet
        | pb.StoredStatefulSet
    )

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
READY: Final = "Ready"

_P = TypeVar("_P", bound="Message")

_KEPT: Final[dict[Kind, type[Kept]]] = {
    Kind.NODE: pb.StoredNode,
    Kind.POD: pb.StoredPod,
    Kind.SERVICE: pb.StoredService,
    Kind.REPLICATION_CONTROLLER: pb.StoredReplicationController,
    Kind.REPLICA_SET: pb.StoredReplicaSet,
    Kind.STATEFUL_SET: pb.StoredStatefulSet,
}


def trimmed(kind: Kind, encoded: bytes) -> Kept:
    """The fields of an object that are kept, tidied up.

    Args:
        kind: anything but a reservation.
        encoded: the whole object; it has been parsed before, so it does parse.
    """
    kept = _KEPT[kind].FromString(encoded)
    kept.DiscardUnknownFields()
    _tidy_meta(kind, kept.metadata)
    if isinstance(kept, pb.StoredPod):
        _tidy_spec(kept.spec)
        _tidy_status(kept.status)
    _clear_if_empty(kept, "spec")
    if isinstance(kept, pb.StoredPod | pb.StoredNode):
        _clear_if_empty(kept, "status")
    return kept


def relevant(kept: Kept, encoded: bytes) -> bytes:
    """The part of a trimmed object that decisions about other pods rest on, as bytes to hash.

    Args:
        kept: the object.
        encoded: its deterministic serialization.
    """
    if isinstance(kept, pb.StoredNode):
        return encoded
    if isinstance(kept, pb.StoredPod):
        # Without what concerns the pod alone: its constraints, its readiness, its restarts.
        part = pb.RelevantPod.FromString(encoded)
        part.DiscardUnknownFields()
        terminating = kept.metadata.HasField("deletion_timestamp")
        ended = kept.status.phase in TERMINAL_PHASES
        return b"%d%d" % (terminating, ended) + part.SerializeToString(deterministic=True)
    if isinstance(kept, pb.StoredService):
        return kept.spec.SerializeToString(deterministic=True)
    copy = type(kept).FromString(encoded).spec
    copy.ClearField("replicas")
    return copy.SerializeToString(deterministic=True)


def _tidy_meta(kind: Kind, meta: pb.StoredMeta) -> None:
    meta.namespace = "" if kind is Kind.NODE else meta.namespace or DEFAULT_NAMESPACE
    _clear_if_empty(meta, "creation_timestamp")
    cost = meta.annotations.get(DELETION_COST)
    meta.annotations.clear()
    if kind is Kind.POD and cost is not None:
        meta.annotations[DELETION_COST] = cost
    _keep(meta.owner_references, lambda owner: owner.controller)
    del meta.owner_references[1:]


def _tidy_spec(spec: pb.StoredPodSpec) -> None:
    _keep(spec.volumes, lambda v: v.volume_source.HasField("persistent_volume_claim"))
    for containers in (spec.containers, spec.init_containers):
        for container in containers:
            _keep(container.ports, lambda port: port.host_port != 0)
            _default_requests(container.resources)
            _clear_if_empty(container, "resources")
    spec.resources.limits.clear()
    _clear_if_empty(spec, "resources")
    _tidy_affinity(spec.affinity)
    _clear_if_empty(spec, "affinity")


def _default_requests(resources: pb.StoredResources) -> None:
    """What the API server does to a new pod: a limit without a request is a request, too."""
    for name, limit in resources.limits.items():
        if name not in resources.requests:
            resources.requests[name].CopyFrom(limit)
    resources.limits.clear()


def _tidy_affinity(affinity: api.Affinity) -> None:
    if not affinity.node_affinity.HasField("required_during_scheduling_ignored_during_execution"):
        affinity.ClearField("node_affinity")
    for name in ("pod_affinity", "pod_anti_affinity"):
        required = getattr(affinity, name).required_during_scheduling_ignored_during_execution
        if required:
            required[:] = [b""]  # that there are terms is all that is looked at
        else:
            affinity.ClearField(name)


def _tidy_status(status: pb.StoredPodStatus) -> None:
    _keep(status.conditions, lambda condition: condition.type == READY)
    for condition in status.conditions:
        _clear_if_empty(condition, "last_transition_time")
    _keep(status.container_statuses, lambda container: container.restart_count != 0)
    _keep(status.init_container_statuses, lambda container: container.restart_count != 0)


def _keep(parts: RepeatedCompositeFieldContainer[_P], wanted: Callable[[_P], bool]) -> None:
    """Remove the other elements."""
    for index in reversed(range(len(parts))):
        if not wanted(parts[index]):
            del parts[index]


def _clear_if_empty(message: Message, field: str) -> None:
    """Make an empty sub-message an absent one; for fields where that means the same."""
    if message.HasField(field) and not getattr(message, field).ByteSize():
        message.ClearField(field)
