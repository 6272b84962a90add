"""Volumes, devices, namespaces and the like: by name, and by what filters ask for."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.cache import BUDGETS, Cache
from topospread.index.namespaces import SelectedNamespaces
from topospread.index.parted_map import PartedMap
from topospread.kube.devices import OF_CLASS, DeviceClass, DeviceId, ResourceClaim, ResourceSlice
from topospread.kube.volumes import (
    AVAILABLE,
    ClusterValue,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    claim_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.index.nodes import NodeTable
    from topospread.kube.namespaces import NamespaceSet
    from topospread.kube.selectors import Selector
    from topospread.spread.topology import Bools, Ints

_V = TypeVar("_V", PersistentVolume, CSIStorageCapacity, VolumeAttachment, ResourceSlice)
_T = TypeVar("_T", bound=ClusterValue)

ObjectPlace = tuple[str, str, str]
"""Kind, namespace (empty for kinds without) and name."""

_Change = tuple[ClusterValue | None, ClusterValue | None]
"""An object before and after."""

_Groups = PartedMap[str, dict[str, _V]]
"""Objects by name, by what a filter asks for. What is in one group is copied when it changes."""

_Kept = PartedMap[str, ClusterValue]
_Matching = Cache[Hashable, object]
_Allocated = PartedMap[str, PartedMap[DeviceId, int]]
_ByClaim = PartedMap[str, PersistentVolume | tuple[PersistentVolume, ...]]

VOLUME: Final = PersistentVolume.__name__
CLAIM: Final = PersistentVolumeClaim.__name__
CAPACITY: Final = CSIStorageCapacity.__name__
ATTACHMENT: Final = VolumeAttachment.__name__
NAMESPACE: Final = Namespace.__name__
DEVICE_CLAIM: Final = ResourceClaim.__name__
DEVICE_CLASS: Final = DeviceClass.__name__
SLICE: Final = ResourceSlice.__name__

_EMPTY: Final[_Kept] = PartedMap()
_NO_VOLUMES: Final[Mapping[str, PersistentVolume]] = {}
_NO_UNKNOWN: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class DriverDevices:
    """The devices of a driver.

    Attributes:
        there: [slots] devices that the node reaches, of complete pools.
        free: [slots] those of them that no claim has.
        incomplete: [slots] whether the node reaches a pool whose slices are not all there.
        special: what else decides which are free; empty where nothing does.
    """

    there: Ints
    free: Ints
    incomplete: Bools
    special: str = ""


class Objects:
    """One version of all of them; see :meth:`changed` for the next.

    A claim and its volume share their names, whichever came first, so that 150,000 of both are
    some hundred MB.

    Attributes:
        matching: what is found again among the volumes of a class, by whoever looks.
        devices: by driver, what :mod:`topospread.index.devices` found for which nodes.
        extended_resources: of containers, that stand for devices of a class.
    """

    __slots__ = (
        "_allocated",
        "_attachments",
        "_by_claim",
        "_by_class",
        "_capacities",
        "_kept",
        "_namespaces",
        "_slices",
        "_unknown",
        "devices",
        "extended_resources",
        "matching",
    )

    def __init__(
        self, matching: _Matching | None = None, namespaces: SelectedNamespaces | None = None
    ) -> None:
        self.matching: _Matching = Cache(BUDGETS["volumes"]) if matching is None else matching
        self._kept: Mapping[str, _Kept] = {}
        self._unknown: Mapping[str, str] = {}
        self._by_claim: _ByClaim = PartedMap()
        self._by_class: _Groups[PersistentVolume] = PartedMap()
        self._capacities: _Groups[CSIStorageCapacity] = PartedMap()
        self._attachments: _Groups[VolumeAttachment] = PartedMap()
        self._namespaces = SelectedNamespaces() if namespaces is None else namespaces
        self._allocated: _Allocated = PartedMap()
        self._slices: _Groups[ResourceSlice] = PartedMap()
        self.devices: dict[str, tuple[NodeTable, DriverDevices]] = {}
        self.extended_resources: frozenset[str] = frozenset()

    # ------------------------------ look-ups

    def unknown(self, kind: str, *, elsewhere: bool = False) -> str:
        """Why the objects of a kind are not known, in words for an answer; empty if they are.

        They are known where a feed reads all of them, as it said last. Where no feed says anything
        of the kind, they are if there is one, here or `elsewhere`.
        """
        because = self._unknown.get(kind)
        if because is not None:
            return because
        return "" if elsewhere or self._kept.get(kind) else f"no {kind} in the state"

    def values(self, kind: str) -> Iterator[ClusterValue]:
        """All objects of a kind, in no order."""
        return self._kept.get(kind, _EMPTY).values()

    def volume(self, name: str) -> PersistentVolume | None:
        """A volume."""
        return self._one(PersistentVolume, name)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim."""
        return self._one(PersistentVolumeClaim, claim_key(namespace, name))

    def claim_by_key(self, key: str) -> PersistentVolumeClaim | None:
        """A claim by its namespace/name."""
        return self._one(PersistentVolumeClaim, key)

    def storage_class(self, name: str) -> StorageClass | None:
        """A class."""
        return self._one(StorageClass, name)

    def csi_node(self, name: str) -> CSINode | None:
        """The drivers of a node."""
        return self._one(CSINode, name)

    def csi_driver(self, name: str) -> CSIDriver | None:
        """A driver."""
        return self._one(CSIDriver, name)

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim to devices."""
        return self._one(ResourceClaim, claim_key(namespace, name))

    def device_class(self, name: str) -> DeviceClass | None:
        """A class of devices."""
        return self._one(DeviceClass, name)

    def is_of_class(self, resource: str) -> bool:
        """Whether a container's resource stands for devices of a class (DRAExtendedResource)."""
        if resource.startswith(OF_CLASS):
            name = resource.removeprefix(OF_CLASS)
            return self.device_class(name) is not None or bool(self.unknown(DEVICE_CLASS))
        return resource in self.extended_resources

    def slices_of_driver(self, driver: str) -> Iterable[ResourceSlice]:
        """The slices of a driver, of whatever generation."""
        return (self._slices.get(driver) or {}).values()

    def drivers_of_devices(self) -> Iterator[str]:
        """The drivers that have slices."""
        return (driver for driver, _ in self._slices)

    def allocated_of_driver(self, driver: str) -> Iterator[DeviceId]:
        """The devices of a driver that claims have."""
        return (device for device, _ in self._allocated.get(driver) or ())

    def namespace(self, name: str) -> Namespace | None:
        """A namespace."""
        return self._one(Namespace, name)

    def namespaces_matching(self, selector: Selector) -> NamespaceSet:
        """The namespaces that a selector matches by their labels."""
        return self._namespaces.matching(selector)

    def volumes_of_class(self, name: str) -> Mapping[str, PersistentVolume]:
        """The available volumes of a class by name, also those that are kept for a claim.

        The same mapping until one of them changes.
        """
        return self._by_class.get(name) or _NO_VOLUMES

    def volume_for_claim(self, namespace: str, name: str) -> Sequence[PersistentVolume]:
        """The volumes that name the claim, whatever its uid; mostly one or none."""
        return _several(self._by_claim.get(claim_key(namespace, name)))

    def capacities_of_class(self, name: str) -> Iterable[CSIStorageCapacity]:
        """Where a class has room."""
        return (self._capacities.get(name) or {}).values()

    def attachments_on(self, node: str) -> Iterable[VolumeAttachment]:
        """What is attached to a node, or about to be."""
        return (self._attachments.get(node) or {}).values()

    def differences(
        self, kind: str, before: Objects
    ) -> Iterator[tuple[str, ClusterValue | None, ClusterValue | None]]:
        """Objects of a kind that are others than before, by key: before, and now."""
        return self._kept.get(kind, _EMPTY).differences(before._kept.get(kind, _EMPTY))

    def changed_attachments(self, before: Objects) -> Iterator[str]:
        """Nodes whose attachments are others than before."""
        return (node for node, _, _ in self._attachments.differences(before._attachments))

    def _one(self, kind: type[_T], key: str) -> _T | None:
        found = self._kept.get(kind.__name__, _EMPTY).get(key)
        return found if isinstance(found, kind) else None

    # ------------------------------ changes

    def changed(
        self,
        rows: Mapping[ObjectPlace, ClusterValue | None],
        unknown: Mapping[str, str] = _NO_UNKNOWN,
    ) -> Objects:
        """The next version; costs as much as the change, with the groups that it touches.

        Args:
            rows: objects as they are now; None for what is gone.
            unknown: by kind, why a feed does not read it; empty where it does.
        """
        by_kind: dict[str, dict[str, ClusterValue | None]] = {}
        for (kind, namespace, name), value in rows.items():
            key = claim_key(namespace, name) if namespace else name
            by_kind.setdefault(kind, {})[key] = value
        first = self is NO_OBJECTS
        made = Objects(None if first else self.matching, None if first else self._namespaces)
        made._unknown = {**self._unknown, **unknown}
        volumes = self._changes(VOLUME, by_kind.get(VOLUME, {}))
        made._by_claim = _by_claim(self._by_claim, volumes)
        made._by_class = _regrouped(self._by_class, PersistentVolume, volumes, _class_of_available)
        made._capacities = _regrouped(
            self._capacities,
            CSIStorageCapacity,
            self._changes(CAPACITY, by_kind.get(CAPACITY, {})),
            lambda each: each.storage_class,
        )
        made._attachments = _regrouped(
            self._attachments,
            VolumeAttachment,
            self._changes(ATTACHMENT, by_kind.get(ATTACHMENT, {})),
            lambda each: each.node_name,
        )
        made._slices = _regrouped(
            self._slices,
            ResourceSlice,
            self._changes(SLICE, by_kind.get(SLICE, {})),
            lambda each: each.driver,
        )
        made._allocated = _allocated(
            self._allocated, self._changes(DEVICE_CLAIM, by_kind.get(DEVICE_CLAIM, {}))
        )
        kept = dict(self._kept)
        for kind, changed in by_kind.items():
            if kind == CLAIM:
                changed = {
                    each.ref.key if isinstance(each, PersistentVolumeClaim) else key: each
                    for key, value in changed.items()
                    for each in [made._sharing(value)]
                }
            kept[kind] = kept.get(kind, _EMPTY).changed(changed)
        if by_kind.keys().isdisjoint((DEVICE_CLAIM, SLICE)):
            made.devices = self.devices
        if NAMESPACE in by_kind:
            there = [each for each in kept[NAMESPACE].values() if isinstance(each, Namespace)]
            made._namespaces = made._namespaces.changed(there)
        made._kept = kept
        made.extended_resources = self.extended_resources
        if DEVICE_CLASS in by_kind:
            made.extended_resources = _extended_resources(kept[DEVICE_CLASS].values())
        return made

    def _changes(self, kind: str, rows: Mapping[str, ClusterValue | None]) -> list[_Change]:
        kept = self._kept.get(kind, _EMPTY)
        return [(kept.get(key), value) for key, value in rows.items()]

    def _sharing(self, value: ClusterValue | None) -> ClusterValue | None:
        """A claim with the strings of the volume that it has; anything else as it is."""
        if not isinstance(value, PersistentVolumeClaim) or not value.volume_name:
            return value
        for volume in _several(self._by_claim.get(value.ref.key)):
            if volume.name == value.volume_name and volume.claim == value.ref:
                return replace(value, ref=volume.claim, volume_name=volume.name)
        return value


def _allocated(index: _Allocated, changes: Iterable[_Change]) -> _Allocated:
    """By driver, how many claims have a device; several only while a driver or scheduler errs."""
    counts: dict[str, dict[DeviceId, int]] = {}
    for pair in changes:
        for sign, claim in zip((-1, 1), pair, strict=True):
            if not isinstance(claim, ResourceClaim) or claim.allocation is None:
                continue
            for device in claim.allocation.devices:
                here = counts.setdefault(device.driver, {})
                here[device] = here.get(device, 0) + sign
    made: dict[str, PartedMap[DeviceId, int] | None] = {}
    for driver, deltas in counts.items():
        known = index.get(driver) or PartedMap[DeviceId, int]()
        rows = {device: (known.get(device) or 0) + delta for device, delta in deltas.items()}
        changed = known.changed({device: count or None for device, count in rows.items()})
        made[driver] = changed if len(changed) else None
    return index.changed(made)


def _extended_resources(classes: Iterable[ClusterValue]) -> frozenset[str]:
    found = frozenset(e.extended_resource for e in classes if isinstance(e, DeviceClass))
    return found - {""}


def _class_of_available(volume: PersistentVolume) -> str | None:
    return volume.storage_class if volume.phase == AVAILABLE else None


def _several(
    found: PersistentVolume | tuple[PersistentVolume, ...] | None,
) -> tuple[PersistentVolume, ...]:
    if found is None:
        return ()
    return found if isinstance(found, tuple) else (found,)


def _by_claim(index: _ByClaim, changes: Iterable[_Change]) -> _ByClaim:
    """The volumes by the claim that they name; one for most, so that it stands alone."""
    groups: dict[str, dict[str, PersistentVolume]] = {}
    for pair in changes:
        for position, volume in enumerate(pair):
            if not isinstance(volume, PersistentVolume) or volume.claim is None:
                continue
            key = volume.claim.key
            if key not in groups:
                groups[key] = {each.name: each for each in _several(index.get(key))}
            groups[key].pop(volume.name, None)
            if position:
                groups[key][volume.name] = volume
    rows: dict[str, PersistentVolume | tuple[PersistentVolume, ...] | None] = {}
    for key, found in groups.items():
        volumes = sorted(found.values(), key=lambda each: each.name)
        first = volumes[0].claim if volumes else None
        # The string of the volume's own.
        own = key if first is None else first.key
        rows[own] = None if not volumes else volumes[0] if len(volumes) == 1 else tuple(volumes)
    return index.changed(rows)


def _regrouped(
    index: _Groups[_V],
    kind: type[_V],
    changes: Iterable[_Change],
    group_of: Callable[[_V], str | None],
) -> _Groups[_V]:
    groups: dict[str, dict[str, _V]] = {}
    for pair in changes:
        for position, value in enumerate(pair):
            group = group_of(value) if isinstance(value, kind) else None
            if group is None or not isinstance(value, kind):
                continue
            if group not in groups:
                groups[group] = dict(index.get(group) or {})
            name = value.name
            if isinstance(value, CSIStorageCapacity):
                name = claim_key(value.namespace, name)
            groups[group].pop(name, None)
            if position:
                groups[group][name] = value
    return index.changed({group: found or None for group, found in groups.items()})


NO_OBJECTS: Final = Objects()
