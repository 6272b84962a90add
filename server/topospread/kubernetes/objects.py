"""The kinds that are synced: listed page by page, and decoded from an API server's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.stored import stored
from topospread.errors import ClusterUnavailable, InvalidRequest, RevisionUnavailable
from topospread.store.checks import check_size
from topospread.store.model import CLUSTER_SCOPED, Key, Kind
from topospread.store.values import OBJECT_KINDS
from topospread_client import ManifestError, object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from topospread.kubernetes.api_server import ApiServer, Refusal
    from topospread.store.model import StoredObject
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject


# Pods that have ended count nowhere; kube-scheduler's own watch leaves them out in the same way,
# and reports the end of one as a deletion.
_ENDED: Final = ("status.phase!=Failed", "status.phase!=Succeeded")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind that is synced.

    Attributes:
        kind: the store's name for it.
        name: Kubernetes' name, which its lists do not repeat for each object.
        api_version: for example ``apps/v1``.
        path: of the collection over all namespaces.
        selectors: field selectors that exclude objects that never count.
    """

    kind: Kind
    name: str
    api_version: str
    path: str
    selectors: tuple[str, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Whether a cluster is synced without this kind, where it may not be listed."""
        return self.kind in OBJECT_KINDS

    @property
    def may_exclude(self) -> bool:
        """Whether its objects are left out with their namespace.

        Capacities stand in the namespace of their driver, and are for the pods of all; what a claim
        has of devices, no other gets.
        """
        for_all = (Kind.CSI_STORAGE_CAPACITY, Kind.RESOURCE_CLAIM)
        return self.kind not in CLUSTER_SCOPED and self.kind not in for_all

    @property
    def plural(self) -> str:
        """The name that rules of RBAC have for it, for example ``pods``."""
        return self.path.rpartition("/")[2]

    def query(self, excluded_namespaces: Collection[str]) -> dict[str, str]:
        """The query of a list or watch without some namespaces."""
        selectors = list(self.selectors)
        if self.may_exclude:
            selectors += [f"metadata.namespace!={name}" for name in sorted(excluded_namespaces)]
        return {"fieldSelector": ",".join(selectors)} if selectors else {}


RESOURCES: Final = (
    Resource(Kind.NODE, "Node", "v1", "/api/v1/nodes"),
    Resource(Kind.SERVICE, "Service", "v1", "/api/v1/services"),
    Resource(
        Kind.REPLICATION_CONTROLLER,
        "ReplicationController",
        "v1",
        "/api/v1/replicationcontrollers",
    ),
    Resource(Kind.REPLICA_SET, "ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets"),
    Resource(Kind.STATEFUL_SET, "StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets"),
    Resource(Kind.JOB, "Job", "batch/v1", "/apis/batch/v1/jobs"),
    Resource(Kind.NAMESPACE, "Namespace", "v1", "/api/v1/namespaces"),
    Resource(Kind.PERSISTENT_VOLUME, "PersistentVolume", "v1", "/api/v1/persistentvolumes"),
    Resource(
        Kind.PERSISTENT_VOLUME_CLAIM,
        "PersistentVolumeClaim",
        "v1",
        "/api/v1/persistentvolumeclaims",
    ),
    *(
        Resource(kind, name, "storage.k8s.io/v1", f"/apis/storage.k8s.io/v1/{plural}")
        for kind, name, plural in (
            (Kind.STORAGE_CLASS, "StorageClass", "storageclasses"),
            (Kind.CSI_NODE, "CSINode", "csinodes"),
            (Kind.CSI_DRIVER, "CSIDriver", "csidrivers"),
            (Kind.CSI_STORAGE_CAPACITY, "CSIStorageCapacity", "csistoragecapacities"),
            (Kind.VOLUME_ATTACHMENT, "VolumeAttachment", "volumeattachments"),
        )
    ),
    *(
        Resource(kind, name, "resource.k8s.io/v1", f"/apis/resource.k8s.io/v1/{plural}")
        for kind, name, plural in (
            (Kind.DEVICE_CLASS, "DeviceClass", "deviceclasses"),
            (Kind.RESOURCE_SLICE, "ResourceSlice", "resourceslices"),
            (Kind.RESOURCE_CLAIM, "ResourceClaim", "resourceclaims"),
        )
    ),
    Resource(Kind.POD, "Pod", "v1", "/api/v1/pods", _ENDED),
)
"""In the order in which they are listed: pods last, when their nodes and workloads are there."""

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404

PAGE: Final = 500
"""Objects in a page: what client-go asks for."""


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object that a list or an event has.

    Attributes:
        message: as it was given, without the fields that spreading never looks at.
        stored: trimmed, as the store holds it.
    """

    message: ClusterObject
    stored: StoredObject

    @property
    def key(self) -> Key:
        """Identifies the object."""
        return self.stored.key

    @property
    def content_hash(self) -> int:
        """Equal where the stored content is equal, but for the resourceVersion."""
        return hash((self.stored.uid, self.stored.payload))


@dataclass(frozen=True, slots=True)
class DeletedObject:
    """An object that was deleted, as of a resourceVersion."""

    key: Key
    version: str


def decode_object(resource: Resource, manifest: Any) -> ObservedObject:
    """An object of a list or an event.

    Raises:
        InvalidRequest: what the API server gave cannot be read as that kind, or not be stored.
        LimitExceeded: it is too large to be stored.
    """
    if not isinstance(manifest, dict):
        raise InvalidRequest(f"expected an object, got {type(manifest).__name__}")
    # Lists do not repeat these two for each object.
    manifest.setdefault("kind", resource.name)
    manifest.setdefault("apiVersion", resource.api_version)
    try:
        message = object_from_manifest(manifest)
    except ManifestError as error:
        raise InvalidRequest(str(error)) from error
    if message is None:
        raise InvalidRequest(f"kind: expected {resource.name}, got {manifest['kind']!r}")
    decoded = ObservedObject(message, stored(message))
    # Here, where one object can be left out, and not where it would hold up five hundred.
    check_size(decoded.stored)
    return decoded


def key_of(resource: Resource, manifest: dict[str, Any]) -> Key:
    """The key of an event's object.

    Raises:
        InvalidRequest: it has no name.
    """
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise InvalidRequest("metadata.name: required")
    return Key(resource.kind, str(metadata.get("namespace") or ""), name)


def version_of(manifest: dict[str, Any]) -> str:
    """The resourceVersion of an object or list; empty when it has none."""
    metadata = manifest.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def why_unread(resource: Resource, refusal: Refusal, verb: str, *, lasts: bool = True) -> str:
    """Why a kind is not read that the API server refused; empty where it can be no other time.

    An API server that has just started refuses what it permits a moment later.
    """
    if refusal.status not in (FORBIDDEN, NOT_FOUND):
        return ""
    plural = resource.plural
    if refusal.status == NOT_FOUND:
        missing = f"the API server has no {plural}"
        return missing if lasts else f"{missing} so far: it is starting, or too old"
    if lasts:
        return f"no right to {verb} {plural}"
    return f"the API server refuses to {verb} {plural} so far: it is starting, or there is no right"


def list_objects(
    api: ApiServer,
    path: str,
    query: Mapping[str, str],
    decode: Callable[[Any], ObservedObject | None],
    goes_on: Callable[[int, int], bool],
) -> tuple[list[ObservedObject], str]:
    """All objects of a collection, and the version that they were listed at.

    Args:
        api: where it is read.
        path: of the collection.
        query: without limit and continue.
        decode: an object; None leaves it out.
        goes_on: asked before each page, with the objects so far and how many the API server says
            remain; False stops.

    Raises:
        ClusterUnavailable: no answer, a refusal, or it was stopped.
    """
    found: dict[Key, ObservedObject] = {}
    paged = {**query, "limit": str(PAGE)}
    remaining = 0
    while goes_on(len(found), remaining):
        try:
            page = api.list_page(path, paged)
        except RevisionUnavailable:
            if "limit" not in paged or "continue" not in paged:
                raise
            # The list takes longer than old versions are kept: all at once, as client-go does.
            found.clear()
            paged = dict(query)
            continue
        for manifest in page.get("items") or ():
            if (decoded := decode(manifest)) is not None:
                found[decoded.key] = decoded
        token = page["metadata"].get("continue")
        if not token:
            return list(found.values()), version_of(page)
        count = page["metadata"].get("remainingItemCount")
        remaining = count if isinstance(count, int) else 0
        paged["continue"] = token
    raise ClusterUnavailable("stopping")
