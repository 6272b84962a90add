"""Stored volumes, claims, drivers, namespaces, devices to values; parts that recur are shared."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.cache import BUDGETS, Cache
from topospread.codec.amounts import lenient_amounts
from topospread.codec.devices import device_class, resource_claim, resource_slice
from topospread.codec.owners import controlling
from topospread.codec.parsing import parse_stored
from topospread.codec.pod_parts import IN_TREE
from topospread.codec.pods import node_terms, selector_from_proto
from topospread.kube.demands import whole_units
from topospread.kube.objects import LabelSelector, NodeRequirements
from topospread.kube.volumes import (
    BIND_COMPLETED,
    CLASS_ANNOTATION,
    DEFAULT_CLASS,
    IMMEDIATE,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    ClaimRef,
    ClaimSpec,
    ClusterValue,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeTraits,
    claim_key,
)
from topospread.store.model import Kind
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from topospread.store.model import StoredObject

ObjectMessage = (
    pb.PersistentVolume
    | pb.PersistentVolumeClaim
    | pb.StorageClass
    | pb.CSINode
    | pb.CSIDriver
    | pb.CSIStorageCapacity
    | pb.VolumeAttachment
    | pb.Namespace
    | pb.ResourceClaim
    | pb.DeviceClass
    | pb.ResourceSlice
)

OBJECTS: Final[Mapping[Kind, type[ObjectMessage]]] = {
    Kind.PERSISTENT_VOLUME: pb.PersistentVolume,
    Kind.PERSISTENT_VOLUME_CLAIM: pb.PersistentVolumeClaim,
    Kind.STORAGE_CLASS: pb.StorageClass,
    Kind.CSI_NODE: pb.CSINode,
    Kind.CSI_DRIVER: pb.CSIDriver,
    Kind.CSI_STORAGE_CAPACITY: pb.CSIStorageCapacity,
    Kind.VOLUME_ATTACHMENT: pb.VolumeAttachment,
    Kind.NAMESPACE: pb.Namespace,
    Kind.RESOURCE_CLAIM: pb.ResourceClaim,
    Kind.DEVICE_CLASS: pb.DeviceClass,
    Kind.RESOURCE_SLICE: pb.ResourceSlice,
}
"""Messages by kind: all that is neither a node, a pod nor a workload."""

KIND_NAMES: Final[Mapping[Kind, str]] = {
    **{kind: message.DESCRIPTOR.name for kind, message in OBJECTS.items()},
    Kind.JOB: pb.Job.DESCRIPTOR.name,
}
"""Names of the kinds that a cluster may do without."""

_STORAGE: Final = "storage"
_SHARED_BYTES: Final = 600
"""About, of what is remembered of one kind of volume or claim."""

_T = TypeVar("_T", bound="Hashable")


class ObjectReader:
    """Reads stored objects; volumes and claims that have something in common share it."""

    def __init__(self) -> None:
        self._known: Cache[Hashable, Hashable] = Cache(BUDGETS["rows"])

    def read(self, kind: Kind, stored: StoredObject) -> ClusterValue:
        """One object of OBJECTS.

        Raises:
            CorruptValue: the payload cannot be read.
        """
        message = parse_stored(OBJECTS[kind], stored.payload)
        match message:
            case pb.PersistentVolume():
                return self._volume(message)
            case pb.PersistentVolumeClaim():
                return self._claim(message, stored.uid)
            case pb.StorageClass():
                return _storage_class(message)
            case pb.CSINode():
                return self._csi_node(message)
            case pb.CSIDriver():
                spec = message.spec
                return CSIDriver(
                    message.metadata.name,
                    storage_capacity=spec.storage_capacity,
                    prevents_scheduling_if_missing=spec.prevent_pod_scheduling_if_missing,
                )
            case pb.CSIStorageCapacity():
                return self._capacity(message)
            case pb.VolumeAttachment():
                attached = message.spec
                return VolumeAttachment(
                    message.metadata.name,
                    self._shared(attached.attacher),
                    self._shared(attached.node_name),
                    attached.source.persistent_volume_name,
                )
            case pb.Namespace():
                return Namespace(message.metadata.name, _labels(message.metadata))
            case pb.ResourceClaim():
                return resource_claim(message)
            case pb.DeviceClass():
                return device_class(message)
            case pb.ResourceSlice():
                return resource_slice(message)

    def _volume(self, message: pb.PersistentVolume) -> PersistentVolume:
        meta, spec = message.metadata, message.spec
        driver, handle, in_tree = _source(spec.persistent_volume_source)
        affinity = None
        if spec.node_affinity.HasField("required"):
            affinity = NodeRequirements(terms=node_terms(spec.node_affinity.required))
        traits = VolumeTraits(
            phase=message.status.phase,
            storage_class=meta.annotations.get(CLASS_ANNOTATION, "") or spec.storage_class_name,
            capacity=_bytes(spec.capacity),
            access_modes=tuple(spec.access_modes),
            volume_mode=spec.volume_mode,
            attributes_class=(
                spec.volume_attributes_class_name
                if spec.HasField("volume_attributes_class_name")
                else None
            ),
            affinity=affinity,
            labels=_labels(meta),
            terminating=meta.HasField("deletion_timestamp"),
            driver=driver,
            in_tree=in_tree,
        )
        claim = None
        if spec.HasField("claim_ref"):
            ref = spec.claim_ref
            claim = ClaimRef(claim_key(ref.namespace, ref.name), ref.uid)
        return PersistentVolume(meta.name, self._shared(traits), handle, claim)

    def _claim(self, message: pb.PersistentVolumeClaim, uid: str) -> PersistentVolumeClaim:
        meta, spec = message.metadata, message.spec
        named = spec.storage_class_name if spec.HasField("storage_class_name") else None
        annotated = meta.annotations.get(CLASS_ANNOTATION)
        common = ClaimSpec(
            phase=message.status.phase,
            storage_class=named if annotated is None else annotated,
            access_modes=tuple(spec.access_modes),
            request=_bytes(spec.resources.requests),
            volume_mode=spec.volume_mode,
            attributes_class=(
                spec.volume_attributes_class_name
                if spec.HasField("volume_attributes_class_name")
                else None
            ),
            selector=selector_from_proto(spec.selector) if spec.HasField("selector") else None,
            bind_completed=BIND_COMPLETED in meta.annotations,
            terminating=meta.HasField("deletion_timestamp"),
        )
        owner = controlling(meta.owner_references)
        return PersistentVolumeClaim(
            ClaimRef(claim_key(meta.namespace, meta.name), uid),
            self._shared(common),
            spec.volume_name,
            self._shared(meta.annotations.get(SELECTED_NODE, "")),
            "" if owner is None else owner.uid,
        )

    def _csi_node(self, message: pb.CSINode) -> CSINode:
        drivers = tuple(
            (
                each.name,
                each.allocatable.count if each.allocatable.HasField("count") else None,
            )
            for each in message.spec.drivers
        )
        plugins = message.metadata.annotations.get(MIGRATED_PLUGINS, "")
        migrated = frozenset(filter(None, plugins.split(",")))
        return CSINode(message.metadata.name, self._shared(drivers), self._shared(migrated))

    def _capacity(self, message: pb.CSIStorageCapacity) -> CSIStorageCapacity:
        topology: LabelSelector | None = None
        if message.HasField("node_topology"):
            topology = selector_from_proto(message.node_topology)
        meta = message.metadata
        return CSIStorageCapacity(
            meta.namespace,
            meta.name,
            self._shared(message.storage_class_name),
            _quantity(message.capacity) if message.HasField("capacity") else None,
            _quantity(message.maximum_volume_size)
            if message.HasField("maximum_volume_size")
            else None,
            self._shared(topology),
        )

    def _shared(self, value: _T) -> _T:
        """The value, or the same object as before for an equal one."""
        key = (type(value), value)
        known = self._known.get(key)
        if known is None:
            self._known.put(key, value, _SHARED_BYTES)
            return value
        return known  # type: ignore[return-value] # of the type that stands in the key


def _storage_class(message: pb.StorageClass) -> StorageClass:
    return StorageClass(
        message.metadata.name,
        message.provisioner,
        message.volume_binding_mode or IMMEDIATE,
        tuple(
            tuple((each.key, tuple(each.values)) for each in term.match_label_expressions)
            for term in message.allowed_topologies
        ),
        is_default=message.metadata.annotations.get(DEFAULT_CLASS) == "true",
    )


def _source(source: pb.PersistentVolumeSource) -> tuple[str, str, bool]:
    """Driver or plugin, the volume's name there, and whether it is an in-tree plugin."""
    if source.HasField("csi"):
        return source.csi.driver, source.csi.volume_handle, False
    for field, found in source.ListFields():
        plugin, name = IN_TREE[field.name]
        return plugin, getattr(found, name), True
    return "", "", False


def _labels(meta: pb.ObjectMeta) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(meta.labels.items()))


def _bytes(amounts: Mapping[str, pb.Quantity]) -> int:
    return _quantity(amounts[_STORAGE]) if _STORAGE in amounts else 0


def _quantity(quantity: pb.Quantity) -> int:
    """In bytes; an invalid quantity counts as 0."""
    return whole_units(lenient_amounts({_STORAGE: quantity}).get(_STORAGE, Fraction()))
