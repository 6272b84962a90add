"""How many volumes of each driver the nodes have, and how many they take.

Worked out when a pod with volumes is first judged, and from then on for the slots that changed:
versions of holdings and objects share what is the same, so that what differs is found at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.objects import CLAIM, VOLUME
from topospread.kube.demands import Disk
from topospread.kube.volume_migration import MIGRATIONS, migrated_handle
from topospread.kube.volumes import NO_PROVISIONER, CSINode, PersistentVolume, StorageClass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.index.holdings import Holdings
    from topospread.index.nodes import NodeTable
    from topospread.index.objects import Objects
    from topospread.kube.volumes import PersistentVolumeClaim
    from topospread.spread.topology import Bools, Ints

NO_DRIVERS: Final = ("", NO_PROVISIONER)

NO_LIMIT: Final = 1 << 31
NOT_INSTALLED: Final = -1

MAX_COLUMNS: Final = 64
"""Drivers and plugins that are kept as arrays; there are rarely more than three."""


class CountedVolume(NamedTuple):
    """A volume that counts towards the limit of its driver; equal ones count once.

    Attributes:
        driver: of CSI.
        handle: its name there, or the claim's where there is no volume yet.
        plugin: an in-tree one, whose volumes count where the drivers are known; empty for CSI.
    """

    driver: str
    handle: str
    plugin: str = ""


def volume_of_claim(objects: Objects, claim: PersistentVolumeClaim) -> CountedVolume | None:
    """The volume of a claim, or the one that its class will give it; None for one of no driver."""
    volume = objects.volume(claim.volume_name) if claim.volume_name else None
    return _volume_of(objects, claim, volume)


def _volume_of(
    objects: Objects, claim: PersistentVolumeClaim, volume: PersistentVolume | None
) -> CountedVolume | None:
    if volume is None:
        named = objects.storage_class(claim.storage_class) if claim.storage_class else None
        return None if named is None else _of(named.provisioner, "\0" + claim.ref.key)
    if not volume.driver:
        return None
    if not volume.in_tree:
        return CountedVolume(volume.driver, volume.handle) if volume.handle else None
    if volume.driver not in MIGRATIONS:
        return None
    handle = migrated_handle(volume.driver, volume.handle, dict(volume.labels))
    return _of(volume.driver, handle) if handle else None


def volume_of_disk(disk: Disk) -> CountedVolume | None:
    """The volume of a disk that a pod names itself; None for one of no driver."""
    if disk.plugin not in MIGRATIONS:
        return None
    handle = migrated_handle(disk.plugin, disk.handle, {})
    return _of(disk.plugin, handle) if handle else None


def _of(provisioner: str, handle: str) -> CountedVolume | None:
    if provisioner in MIGRATIONS:
        return CountedVolume(MIGRATIONS[provisioner].driver, handle, provisioner)
    return CountedVolume(provisioner, handle) if provisioner not in NO_DRIVERS else None


class _SlotVolumes(NamedTuple):
    """What a slot has.

    Attributes:
        counts: volumes by driver.
        drivers: of the node.
        loose: names of the volumes that do not name a claim of its pods in turn: their changes are
            to be looked for by name.
    """

    counts: Mapping[str, int]
    drivers: CSINode | None
    loose: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class VolumeTable:
    """The volumes of the nodes of one snapshot.

    Attributes:
        rows: [slots] what each has.
        loose: slots with such volumes; mostly none.
        columns: numbers of the rows that somebody asked for.
    """

    nodes: NodeTable
    holdings: Holdings
    objects: Objects
    rows: Sequence[_SlotVolumes]
    loose: Mapping[int, frozenset[str]]
    columns: dict[tuple[str, str], Ints] = field(default_factory=dict)

    def taken(self, driver: str) -> Ints:
        """[slots] volumes of a driver, those that no pod has any more among them."""
        return self._column("taken", driver)

    def limits(self, driver: str) -> Ints:
        """[slots] how many of them a node takes; NO_LIMIT, or NOT_INSTALLED without the driver."""
        return self._column("limit", driver)

    def with_drivers(self) -> Bools:
        """[slots] whether it is known which drivers the node has, be it none."""
        found: Bools = self._column("drivers", "") > 0
        return found

    def migrated(self, plugin: str) -> Bools:
        """[slots] whether the node says that an in-tree plugin's volumes are its driver's."""
        found: Bools = self._column("migrated", plugin) > 0
        return found

    def of_pods_on(self, slot: int) -> AbstractSet[CountedVolume]:
        """The volumes that pods on the slot have."""
        in_tree = self.rows[slot].drivers is not None
        return _of_pods(self.objects, self.holdings, slot, in_tree=in_tree).volumes

    def is_of(self, nodes: NodeTable, holdings: Holdings, objects: Objects) -> bool:
        """Whether it is of the snapshot that has these."""
        return self.nodes is nodes and self.holdings is holdings and self.objects is objects

    def _column(self, what: str, name: str) -> Ints:
        found = self.columns.get((what, name))
        if found is None:
            value = _COLUMNS[what]
            found = np.fromiter((value(row, name) for row in self.rows), np.int64, len(self.rows))
            if len(self.columns) < MAX_COLUMNS:
                self.columns[what, name] = found
        return found


class AttachedVolumes:
    """Follows the snapshots of one builder, those that somebody asks about."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: VolumeTable | None = None

    def at(self, nodes: NodeTable, holdings: Holdings, objects: Objects) -> VolumeTable:
        """The table of a snapshot; costs as much as what differs from the one asked for before."""
        latest = self._latest
        if latest is None or not latest.is_of(nodes, holdings, objects):
            # Threads may work out the same twice.
            latest = self._latest = _table(nodes, holdings, objects, latest)
        return latest


def _taken(row: _SlotVolumes, driver: str) -> int:
    return row.counts.get(driver, 0)


def _limit(row: _SlotVolumes, driver: str) -> int:
    if row.drivers is None or driver not in row.drivers.limits:
        return NOT_INSTALLED
    count = row.drivers.limits[driver]
    return NO_LIMIT if count is None else count


def _migrated(row: _SlotVolumes, plugin: str) -> int:
    return row.drivers is not None and plugin in row.drivers.migrated_plugins


def _has_drivers(row: _SlotVolumes, _name: str) -> int:
    return row.drivers is not None


_COLUMNS: Final[Mapping[str, Callable[[_SlotVolumes, str], int]]] = {
    "taken": _taken,
    "limit": _limit,
    "migrated": _migrated,
    "drivers": _has_drivers,
}

_EMPTY: Final = _SlotVolumes({}, None, frozenset())


def _table(
    nodes: NodeTable, holdings: Holdings, objects: Objects, before: VolumeTable | None
) -> VolumeTable:
    rows, loose = [_EMPTY] * nodes.capacity, dict[int, frozenset[str]]()
    made = VolumeTable(nodes, holdings, objects, rows, loose)
    changed: Collection[int] = range(nodes.capacity)
    known = 0
    if before is not None:
        known = min(len(before.rows), nodes.capacity)
        rows[:known] = before.rows[:known]
        loose.update(before.loose)
        changed = _changed(made, before)
    for slot in changed:
        rows[slot] = _row(made, slot)
        loose.pop(slot, None)
        if rows[slot].loose:
            loose[slot] = rows[slot].loose
    if before is None:
        return made
    for (what, name), column in list(before.columns.items()):
        numbers = np.zeros(nodes.capacity, dtype=np.int64)
        numbers[:known] = column[:known]
        for slot in changed:
            numbers[slot] = _COLUMNS[what](rows[slot], name)
        made.columns[what, name] = numbers
    return made


def _changed(table: VolumeTable, before: VolumeTable) -> Collection[int]:
    """Slots whose rows may differ from those before."""
    nodes, holdings, objects = table.nodes, table.holdings, table.objects
    if next(objects.differences(StorageClass.__name__, before.objects), None) is not None:
        return range(nodes.capacity)
    found = set(range(before.nodes.capacity, nodes.capacity))
    if nodes is not before.nodes:
        pairs = enumerate(zip(nodes.names, before.nodes.names, strict=False))
        found.update(slot for slot, (name, was) in pairs if name != was)
    found.update(holdings.changed_slots(before.holdings))
    claims = {key for key, _, _ in objects.differences(CLAIM, before.objects)}
    volumes = set()
    for name, was, now in objects.differences(VOLUME, before.objects):
        volumes.add(name)
        for volume in (was, now):
            if isinstance(volume, PersistentVolume) and volume.claim is not None:
                claims.add(volume.claim.key)
    for key in claims:
        found.update(holdings.slots_of_claim(key))
    if volumes:
        loose = before.loose.items()
        found.update(slot for slot, names in loose if not names.isdisjoint(volumes))
    named = {key for key, _, _ in objects.differences(CSINode.__name__, before.objects)}
    named.update(objects.changed_attachments(before.objects))
    found.update(map(nodes.slot, named))
    return [slot for slot in found if 0 <= slot < nodes.capacity]


def _row(table: VolumeTable, slot: int) -> _SlotVolumes:
    checkpoint()
    name, objects = table.nodes.names[slot], table.objects
    if not name:
        return _EMPTY
    drivers = objects.csi_node(name)
    pods = _of_pods(objects, table.holdings, slot, in_tree=drivers is not None)
    loose = pods.loose
    found = {(each.driver, each.handle) for each in pods.volumes}
    for attachment in objects.attachments_on(name):
        if not attachment.volume_name:
            continue
        if attachment.volume_name not in pods.bound:
            loose.add(attachment.volume_name)
        volume = objects.volume(attachment.volume_name)
        if volume is not None and volume.driver and not volume.in_tree and attachment.attacher:
            found.add((attachment.attacher, volume.handle))
    counts = Counter(driver for driver, _ in found)
    return _SlotVolumes(counts, drivers, frozenset(loose))


class _OfPods(NamedTuple):
    """What pods on a slot have.

    Attributes:
        volumes: as they count there.
        bound: names of those that a claim names, and that name the claim.
        loose: names of those that a claim names, and that do not.
    """

    volumes: set[CountedVolume]
    bound: set[str]
    loose: set[str]


def _of_pods(objects: Objects, holdings: Holdings, slot: int, *, in_tree: bool) -> _OfPods:
    """What pods on a slot have by their claims or themselves; in-tree volumes if they count."""
    found = _OfPods(set(), set(), set())
    for thing in holdings.on(slot):
        checkpoint()
        counted = None
        if isinstance(thing, str):
            claim = objects.claim_by_key(thing)
            if claim is None:
                continue
            volume = None
            if claim.volume_name:
                volume = objects.volume(claim.volume_name)
                back = None if volume is None else volume.claim
                named = found.loose if back is None or back.key != thing else found.bound
                named.add(claim.volume_name)
            counted = _volume_of(objects, claim, volume)
        elif isinstance(thing, Disk):
            counted = volume_of_disk(thing)
        if counted is not None and (in_tree or not counted.plugin):
            found.volumes.add(CountedVolume(counted.driver, counted.handle))
    return found
