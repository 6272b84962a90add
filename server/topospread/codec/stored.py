"""Objects to what the store holds, and back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from topospread.codec.trimming import relevant, trimmed
from topospread.errors import CorruptValue, InvalidRequest
from topospread.kube.objects import TERMINAL_PHASES
from topospread.kube.violations import required
from topospread.store.api import Key, Kind, StoredObject
from topospread.store.checks import wrong_words
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

    AnyObject = (
        pb.Node | pb.Pod | pb.Service | pb.ReplicationController | pb.ReplicaSet | pb.StatefulSet
    )

DIGEST_BYTES: Final = 8

_FIELDS: Final = {
    Kind.NODE: "node",
    Kind.POD: "pod",
    Kind.SERVICE: "service",
    Kind.REPLICATION_CONTROLLER: "replication_controller",
    Kind.REPLICA_SET: "replica_set",
    Kind.STATEFUL_SET: "stateful_set",
}
_KINDS: Final = {field: kind for kind, field in _FIELDS.items()}
_FIELD = ClusterObject.DESCRIPTOR.fields_by_name
_SETTABLE: Final = ", ".join(_FIELD[each].json_name for each in _KINDS)


def stored(message: ClusterObject) -> StoredObject:
    """An object as it is stored: trimmed to the fields that matter, with its digest.

    The namespace is ``default`` when the object has none, and empty for nodes. Equal content gives
    equal bytes. What is odd about the object is told by :func:`topospread.codec.oddities.oddities`.

    Raises:
        InvalidRequest: the message is empty, or the object has no name, or names, a uid or a
            resourceVersion that cannot be stored.
    """
    kind, given = _content(message)
    meta = given.metadata
    if not meta.name:
        raise InvalidRequest.of([required("metadata.name", "name is required")])
    kept = trimmed(kind, given.SerializeToString())
    key = Key(kind, kept.metadata.namespace, meta.name)
    if wrong := wrong_words(key, meta.uid, meta.resource_version):
        raise InvalidRequest.of([each.below("metadata") for each in wrong])
    payload = kept.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(meta.uid.encode(), digest_size=DIGEST_BYTES)
    digest.update(b"\0" + relevant(kept, payload))
    return StoredObject(
        key=key,
        payload=payload,
        digest=digest.digest(),
        resource_version=meta.resource_version,
        uid=meta.uid,
    )


def ends_reservation(message: ClusterObject) -> bool:
    """Whether this is a pod that needs no place any more, or has one: bound, terminating, ended."""
    if message.WhichOneof("content") != "pod":
        return False
    pod = message.pod
    return bool(
        pod.spec.node_name
        or pod.metadata.HasField("deletion_timestamp")
        or pod.status.phase in TERMINAL_PHASES
    )


def object_from_stored(stored: StoredObject) -> ClusterObject:
    """The object as it was trimmed, with its uid and resourceVersion.

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
