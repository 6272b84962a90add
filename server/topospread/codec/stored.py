"""Converts objects of the cluster to their stored form, trimmed to the needed fields, and back.

Nothing that an API server accepted is refused; :func:`warnings_of` says what is odd about it, as
kube-apiserver's warnings do. Pods of requests are validated instead
(:mod:`topospread.kube.validation`).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from topospread.codec.pod_parts import too_much
from topospread.codec.pods import pod_from_proto, workload_from_proto
from topospread.codec.tidying import clear_if_empty, keep, relevant_part, tidy_pod
from topospread.errors import CorruptValue, InvalidRequest
from topospread.generated.internal.v1 import stored_pb2 as pb
from topospread.kube import volumes
from topospread.kube.affinity import EFFECTS, compile_requirements
from topospread.kube.objects import (
    DEFAULT_NAMESPACE,
    DO_NOT_SCHEDULE,
    HONOR,
    IGNORE,
    SCHEDULE_ANYWAY,
    TERMINAL_PHASES,
    LabelSelector,
    NodeRequirements,
    Pod,
    SpreadConstraint,
)
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.kube.violations import required
from topospread.spread.deletion import DELETION_COST
from topospread.store.checks import wrong_words
from topospread.store.model import CLUSTER_SCOPED, Key, Kind, StoredObject
from topospread.store.values import DIGEST_BYTES, OBSERVABLE
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as api

    AnyObject = (
        api.Node
        | api.Pod
        | api.Service
        | api.ReplicationController
        | api.ReplicaSet
        | api.StatefulSet
        | api.PersistentVolume
        | api.PersistentVolumeClaim
        | api.StorageClass
        | api.CSINode
        | api.CSIDriver
        | api.CSIStorageCapacity
        | api.VolumeAttachment
        | api.Namespace
        | api.ResourceClaim
        | api.DeviceClass
        | api.ResourceSlice
        | api.Job
    )
    Kept = (
        pb.StoredNode
        | pb.StoredPod
        | pb.StoredService
        | pb.StoredReplicationController
        | pb.StoredReplicaSet
        | pb.StoredStatefulSet
        | pb.StoredPersistentVolume
        | pb.StoredPersistentVolumeClaim
        | pb.StoredStorageClass
        | pb.StoredCSINode
        | pb.StoredCSIDriver
        | pb.StoredCSIStorageCapacity
        | pb.StoredVolumeAttachment
        | pb.StoredNamespace
        | pb.StoredResourceClaim
        | pb.StoredDeviceClass
        | pb.StoredResourceSlice
        | pb.StoredJob
    )
    from collections.abc import Iterator


_FIELDS: Final = {kind: kind.name.lower() for kind in OBSERVABLE}
_KINDS: Final = {field: kind for kind, field in _FIELDS.items()}
_FIELD = ClusterObject.DESCRIPTOR.fields_by_name
_SETTABLE: Final = ", ".join(_FIELD[each].json_name for each in _KINDS)

_KEPT: Final[dict[Kind, type[Kept]]] = {
    Kind.NODE: pb.StoredNode,
    Kind.POD: pb.StoredPod,
    Kind.SERVICE: pb.StoredService,
    Kind.REPLICATION_CONTROLLER: pb.StoredReplicationController,
    Kind.REPLICA_SET: pb.StoredReplicaSet,
    Kind.STATEFUL_SET: pb.StoredStatefulSet,
    Kind.PERSISTENT_VOLUME: pb.StoredPersistentVolume,
    Kind.PERSISTENT_VOLUME_CLAIM: pb.StoredPersistentVolumeClaim,
    Kind.STORAGE_CLASS: pb.StoredStorageClass,
    Kind.CSI_NODE: pb.StoredCSINode,
    Kind.CSI_DRIVER: pb.StoredCSIDriver,
    Kind.CSI_STORAGE_CAPACITY: pb.StoredCSIStorageCapacity,
    Kind.VOLUME_ATTACHMENT: pb.StoredVolumeAttachment,
    Kind.NAMESPACE: pb.StoredNamespace,
    Kind.RESOURCE_CLAIM: pb.StoredResourceClaim,
    Kind.DEVICE_CLASS: pb.StoredDeviceClass,
    Kind.RESOURCE_SLICE: pb.StoredResourceSlice,
    Kind.JOB: pb.StoredJob,
}

_ANNOTATIONS: Final[dict[Kind, frozenset[str]]] = {
    Kind.POD: frozenset({DELETION_COST}),
    Kind.PERSISTENT_VOLUME: frozenset({volumes.CLASS_ANNOTATION}),
    Kind.PERSISTENT_VOLUME_CLAIM: frozenset(
        {volumes.BIND_COMPLETED, volumes.SELECTED_NODE, volumes.CLASS_ANNOTATION}
    ),
    Kind.STORAGE_CLASS: frozenset({volumes.DEFAULT_CLASS}),
    Kind.CSI_NODE: frozenset({volumes.MIGRATED_PLUGINS}),
}
"""Annotations that decide something."""

_OWNERS: Final = (pb.StoredReplicationController, pb.StoredReplicaSet, pb.StoredStatefulSet)

_LABELS_DECIDE: Final = frozenset({Kind.PERSISTENT_VOLUME, Kind.NAMESPACE})
"""Of those of volumes and namespaces; others have labels for those who list them."""


def stored(message: ClusterObject) -> StoredObject:
    """An object as it is stored: trimmed to the fields that matter, with its digest.

    The namespace is ``default`` when the object has none, and empty for kinds without. Equal
    content gives equal bytes. See :func:`topospread.codec.stored.warnings_of` for warnings about
    the object.

    Raises:
        InvalidRequest: the message is empty, or the object has no name, or names, a uid or a
            resourceVersion that cannot be stored.
    """
    kind, given = _content(message)
    meta = given.metadata
    if not meta.name:
        raise InvalidRequest.of([required("metadata.name", "name is required")])
    merged = kind is Kind.POD and bool(meta.uid and message.pod.status.phase)
    kept = stored_form(kind, given.SerializeToString(), merged=merged)
    key = Key(kind, kept.metadata.namespace, meta.name)
    if wrong := wrong_words(key, meta.uid, meta.resource_version):
        raise InvalidRequest.of([each.below("metadata") for each in wrong])
    payload = kept.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(meta.uid.encode(), digest_size=DIGEST_BYTES)
    digest.update(b"\0" + digest_input(kind, kept, payload))
    return StoredObject(
        key=key,
        payload=payload,
        digest=digest.digest(),
        resource_version=meta.resource_version,
        uid=meta.uid,
    )


def ends_reservation(message: ClusterObject) -> bool:
    """Whether the object is a pod that needs no reservation: bound, terminating or ended."""
    if message.WhichOneof("content") != "pod":
        return False
    pod = message.pod
    return bool(
        pod.spec.node_name
        or pod.metadata.HasField("deletion_timestamp")
        or pod.status.phase in TERMINAL_PHASES
    )


def object_from_stored(stored: StoredObject) -> ClusterObject:
    """Read a trimmed object, with its uid and resourceVersion.

    Raises:
        CorruptValue: the payload cannot be read, or is a reservation.
    """
    field = _FIELDS.get(stored.key.kind)
    if field is None:
        raise CorruptValue(f"{stored.key.kind.name} is no object of the cluster")
    message = ClusterObject()
    content: AnyObject = getattr(message, field)
    content.SetInParent()
    try:
        content.MergeFromString(stored.payload)
    except DecodeError as cause:
        raise CorruptValue(f"the payload does not parse as a {field}") from cause
    content.metadata.uid = stored.uid
    content.metadata.resource_version = stored.resource_version
    return message


def _content(message: ClusterObject) -> tuple[Kind, AnyObject]:
    field = message.WhichOneof("content")
    if field is None:
        text = f"an object without content: set one of {_SETTABLE}"
        raise InvalidRequest.at("", text, "Required value")
    if field not in _KINDS:
        text = f"is only watched: PlacementService makes it; set one of {_SETTABLE}"
        raise InvalidRequest.at("", text, "Forbidden")
    content: AnyObject = getattr(message, field)
    return _KINDS[field], content


def stored_form(kind: Kind, encoded: bytes, *, merged: bool = False) -> Kept:
    """The fields of an object that are stored, normalized.

    Args:
        kind: anything but a reservation.
        encoded: the whole object; it has been parsed before, so it does parse.
        merged: an API server stored it, with its label keys in the selectors of its affinity.
    """
    kept = _KEPT[kind].FromString(encoded)
    kept.DiscardUnknownFields()
    _tidy_meta(kind, kept.metadata)
    if isinstance(kept, pb.StoredPod):
        tidy_pod(kept, merged=merged)
    elif isinstance(kept, pb.StoredNode):
        clear_if_empty(kept.status, "node_info")
    for name in ("spec", "status"):
        if name in kept.DESCRIPTOR.fields_by_name:
            clear_if_empty(kept, name)
    return kept


def digest_input(kind: Kind, kept: Kept, encoded: bytes) -> bytes:
    """The part of a stored object that decisions about other pods depend on, as bytes to hash."""
    if isinstance(kept, pb.StoredNode):
        return encoded
    if isinstance(kept, pb.StoredPod):
        # Without what concerns the pod alone: its constraints, its readiness, its restarts.
        part = relevant_part(encoded)
        terminating = kept.metadata.HasField("deletion_timestamp")
        ended = kept.status.phase in TERMINAL_PHASES
        return b"%d%d" % (terminating, ended) + part.SerializeToString(deterministic=True)
    if isinstance(kept, pb.StoredService):
        return kept.spec.SerializeToString(deterministic=True)
    if isinstance(kept, pb.StoredJob):
        return b""
    copy = type(kept).FromString(encoded)
    if isinstance(copy, _OWNERS):
        copy.spec.ClearField("replicas")
        return copy.spec.SerializeToString(deterministic=True)
    copy.metadata.ClearField("creation_timestamp")
    if kind not in _LABELS_DECIDE:
        copy.metadata.ClearField("labels")
    if copy.metadata.HasField("deletion_timestamp"):
        copy.metadata.deletion_timestamp.Clear()
    return copy.SerializeToString(deterministic=True)


def _tidy_meta(kind: Kind, meta: pb.StoredMeta) -> None:
    meta.namespace = "" if kind in CLUSTER_SCOPED else meta.namespace or DEFAULT_NAMESPACE
    clear_if_empty(meta, "creation_timestamp")
    decisive = _ANNOTATIONS.get(kind, frozenset())
    kept = {name: text for name, text in meta.annotations.items() if name in decisive}
    meta.annotations.clear()
    meta.annotations.update(kept)
    keep(meta.owner_references, lambda owner: owner.controller)
    del meta.owner_references[1:]


PHASES: Final = ("", "Pending", "Running", "Succeeded", "Failed", "Unknown")


def warnings_of(message: ClusterObject) -> list[str]:
    """Warnings about an object, for a person to read; mostly none."""
    match message.WhichOneof("content"):
        case "node":
            return list(_of_node(message.node))
        case "pod":
            return list(_of_pod(message.pod))
        case "replica_set":
            return list(
                _of_selector("spec.selector", workload_from_proto(message.replica_set).selector)
            )
        case "stateful_set":
            return list(
                _of_selector("spec.selector", workload_from_proto(message.stateful_set).selector)
            )
    return []


def _of_node(node: api.Node) -> Iterator[str]:
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in EFFECTS:
            yield f'spec.taints[{index}].effect: "{taint.effect}" is unknown and keeps no pod away'


def _of_pod(message: api.Pod) -> Iterator[str]:
    pod = pod_from_proto(message)
    if reason := too_much(message):
        yield f"the pod is left out: {reason}"
    if sum(owner.controller for owner in message.metadata.owner_references) > 1:
        yield "metadata.ownerReferences: several controllers; the first one is taken"
    if pod.phase not in PHASES:
        yield f'status.phase: "{pod.phase}" is unknown; the pod counts as running'
    for index, constraint in enumerate(pod.constraints):
        yield from _of_constraint(f"spec.topologySpreadConstraints[{index}]", constraint)
    yield from _of_affinity(pod)


def _of_constraint(path: str, constraint: SpreadConstraint) -> Iterator[str]:
    if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        unknown = constraint.when_unsatisfiable
        yield f'{path}.whenUnsatisfiable: "{unknown}" is unknown; the constraint does nothing'
    for name, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy not in (None, HONOR, IGNORE):
            yield f'{path}.{name}: "{policy}" is unknown and acts as {IGNORE}'
    yield from _of_selector(f"{path}.labelSelector", constraint.label_selector)


def _of_selector(path: str, selector: LabelSelector | None) -> Iterator[str]:
    try:
        compile_selector(selector)
    except SelectorError as error:
        yield f"{path}: {error}"


def _of_affinity(pod: Pod) -> Iterator[str]:
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(pod.requirements.terms or ()):
        if not compile_requirements(NodeRequirements(terms=(term,))).terms:
            yield f"{path}.nodeSelectorTerms[{index}]: does not parse or is empty; matches no node"
