"""Volumes, claims to them and what decides about both, and namespaces, as frozen values.

Only the fields that kube-scheduler's filters look at. A large cluster has 150,000 claims and as
many volumes: what many of them have in common is one object (``VolumeTraits``, ``ClaimSpec``), and
a claim shares its reference with the volume that has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.kube.devices import DeviceValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.kube.objects import LabelSelector, NodeRequirements

IMMEDIATE: Final = "Immediate"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Of classes whose volumes are made before they are claimed."""

AVAILABLE: Final = "Available"
BOUND: Final = "Bound"
LOST: Final = "Lost"
"""The phases of a volume and of a claim that decide something."""

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Of a volume or a claim; it stands before the field of that meaning."""

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


def claim_key(namespace: str, name: str) -> str:
    """The key of a claim: ``namespace/name``."""
    return f"{namespace}/{name}"


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Names a claim: its key (see :func:`claim_key`), and its uid, empty where it is not known."""

    key: str
    uid: str = ""

    @property
    def namespace(self) -> str:
        """The claim's."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The claim's."""
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class VolumeTraits:
    """What many volumes have in common; see :class:`PersistentVolume`."""

    phase: str = ""
    storage_class: str = ""
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = ""
    attributes_class: str | None = None
    affinity: NodeRequirements | None = None
    labels: tuple[tuple[str, str], ...] = ()
    terminating: bool = False
    driver: str = ""
    in_tree: bool = False


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """v1.PersistentVolume.

    Attributes:
        handle: the driver's name of the volume, or the in-tree source's; empty for other sources.
        claim: that has it, or that it is kept for.
    """

    name: str
    traits: VolumeTraits = VolumeTraits()
    handle: str = ""
    claim: ClaimRef | None = None

    @property
    def phase(self) -> str:
        """Pending, Available, Bound, Released or Failed."""
        return self.traits.phase

    @property
    def storage_class(self) -> str:
        """The name of its class; empty for none."""
        return self.traits.storage_class

    @property
    def capacity(self) -> int:
        """In bytes."""
        return self.traits.capacity

    @property
    def access_modes(self) -> tuple[str, ...]:
        """As ReadWriteOnce, in the order of the object."""
        return self.traits.access_modes

    @property
    def volume_mode(self) -> str:
        """Block, or Filesystem, which the empty one acts as."""
        return self.traits.volume_mode

    @property
    def attributes_class(self) -> str | None:
        """The name of its VolumeAttributesClass."""
        return self.traits.attributes_class

    @property
    def affinity(self) -> NodeRequirements | None:
        """The nodes that reach it; None for all."""
        return self.traits.affinity

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """(key, value), sorted."""
        return self.traits.labels

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return self.traits.terminating

    @property
    def driver(self) -> str:
        """Of CSI, or the plugin of an in-tree source that is counted; empty for other sources."""
        return self.traits.driver

    @property
    def in_tree(self) -> bool:
        """Whether ``driver`` is an in-tree plugin, as ``kubernetes.io/aws-ebs``."""
        return self.traits.in_tree


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """What many claims have in common; see :class:`PersistentVolumeClaim`."""

    phase: str = ""
    storage_class: str | None = None
    access_modes: tuple[str, ...] = ()
    request: int = 0
    volume_mode: str = ""
    attributes_class: str | None = None
    selector: LabelSelector | None = None
    bind_completed: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """v1.PersistentVolumeClaim.

    Attributes:
        volume_name: of the volume that it has; empty for none.
        selected_node: that a pod was to go to, by its annotation.
        controller_uid: of the controlling owner: the pod, for an ephemeral volume.
    """

    ref: ClaimRef
    spec: ClaimSpec = ClaimSpec()
    volume_name: str = ""
    selected_node: str = ""
    controller_uid: str = ""

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.ref.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.ref.name

    @property
    def uid(self) -> str:
        """Its uid; empty for one of a manifest."""
        return self.ref.uid

    @property
    def phase(self) -> str:
        """Pending, Bound or Lost."""
        return self.spec.phase

    @property
    def storage_class(self) -> str | None:
        """The name of its class; None where none is given, empty for volumes without one."""
        return self.spec.storage_class

    @property
    def access_modes(self) -> tuple[str, ...]:
        """As ReadWriteOnce, in the order of the object."""
        return self.spec.access_modes

    @property
    def request(self) -> int:
        """Bytes that it asks for."""
        return self.spec.request

    @property
    def volume_mode(self) -> str:
        """Block, or Filesystem, which the empty one acts as."""
        return self.spec.volume_mode

    @property
    def attributes_class(self) -> str | None:
        """The name of the VolumeAttributesClass that it asks for."""
        return self.spec.attributes_class

    @property
    def selector(self) -> LabelSelector | None:
        """Of volumes' labels; None for all."""
        return self.spec.selector

    @property
    def bind_completed(self) -> bool:
        """Whether its annotation says that volume and claim are bound."""
        return self.spec.bind_completed

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return self.spec.terminating


@dataclass(frozen=True, slots=True)
class StorageClass:
    """storage/v1 StorageClass.

    Attributes:
        allowed_topologies: terms, each of (node label, values); one term must hold, all of it.
        is_default: by its annotation.
    """

    name: str
    provisioner: str = ""
    binding_mode: str = IMMEDIATE
    allowed_topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class CSINode:
    """storage/v1 CSINode, of the node of the same name.

    Attributes:
        drivers: (name, volumes at most), None where no limit is known.
        migrated_plugins: in-tree plugins whose volumes count for their CSI driver.
        limits: the drivers by name, of one that is there twice the first.
    """

    name: str
    drivers: tuple[tuple[str, int | None], ...] = ()
    migrated_plugins: frozenset[str] = frozenset()
    limits: Mapping[str, int | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look at the drivers once: there may be many, and as many are asked for."""
        object.__setattr__(self, "limits", dict(reversed(self.drivers)))


@dataclass(frozen=True, slots=True)
class CSIDriver:
    """storage/v1 CSIDriver.

    Attributes:
        storage_capacity: it says where it has room.
        prevents_scheduling_if_missing: its volumes' pods go only to nodes that it runs on.
    """

    name: str
    storage_capacity: bool = False
    prevents_scheduling_if_missing: bool = False


@dataclass(frozen=True, slots=True)
class CSIStorageCapacity:
    """storage/v1 CSIStorageCapacity; amounts in bytes, None where not reported.

    Attributes:
        node_topology: selects nodes by their labels; None for no node.
    """

    namespace: str
    name: str
    storage_class: str
    capacity: int | None = None
    maximum_volume_size: int | None = None
    node_topology: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """storage/v1 VolumeAttachment; it counts whether or not it is attached yet.

    Attributes:
        volume_name: of the PersistentVolume; empty for an inline volume.
    """

    name: str
    attacher: str
    node_name: str
    volume_name: str = ""


@dataclass(frozen=True, slots=True)
class Namespace:
    """v1.Namespace; labels are (key, value), sorted."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


ClusterValue = (
    PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | Namespace
    | DeviceValue
)
"""An object beside nodes, pods and workloads; the class's name is its kind."""
