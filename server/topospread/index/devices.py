"""The devices of a driver that each node reaches, and how many of them are free.

Source: ``GatherPools`` of k8s.io/dynamic-resource-allocation structured. A version of the objects
keeps what was worked out, as long as the nodes are the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.objects import DriverDevices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.devices import ResourceSlice
    from topospread.spread.topology import Slots

MAX_PLACES: Final = 500_000
"""Pairs of a slice and a node that reaches it, for each driver."""

_NONE: Final = -(1 << 63)
"""Below all generations."""

MAX_KEPT: Final = 100
"""Drivers whose devices are kept."""


def devices_of(snapshot: Snapshot, driver: str) -> DriverDevices:
    """The devices of a driver at a state."""
    kept = snapshot.objects.devices
    known = kept.get(driver)
    if known is None or known[0] is not snapshot.nodes:
        known = (snapshot.nodes, _devices_of(snapshot, driver))
        if len(kept) >= MAX_KEPT:
            kept.clear()
        kept[driver] = known
    return known[1]


def _devices_of(snapshot: Snapshot, driver: str) -> DriverDevices:
    pools: dict[str, list[ResourceSlice]] = {}
    for each in snapshot.objects.slices_of_driver(driver):
        pools.setdefault(each.pool, []).append(each)
    taken: dict[str, set[str]] = {}
    for device in snapshot.objects.allocated_of_driver(driver):
        taken.setdefault(device.pool, set()).add(device.name)
    found = _Counted(snapshot.alive.size)
    places, special = 0, ""
    for name, pool in pools.items():
        special = _special(pool)
        if special:
            break
        reached = []
        for each in pool:
            checkpoint()
            slots = _slots(snapshot, each)
            places += slots.size
            if places > MAX_PLACES:
                break
            reached.append((each, slots))
        if places > MAX_PLACES:
            special = f"more than {MAX_PLACES} slices on nodes"
            break
        found.add(reached, taken.get(name, set()))
    return DriverDevices(found.there, found.free, found.incomplete, special)


def _special(pool: Sequence[ResourceSlice]) -> str:
    """What keeps a pool from being counted."""
    sizes: dict[int, int] = {}
    names: dict[int, set[str]] = {}
    for each in pool:
        checkpoint()
        if each.special:
            return each.special
        if sizes.setdefault(each.generation, each.size) != each.size:
            return "a pool of several sizes"
        known = names.setdefault(each.generation, set())
        before = len(known)
        known.update(each.devices)
        if len(known) < before + len(each.devices):
            return "a device that is there twice"
    return ""


class _Counted:
    """The devices of a driver, pool by pool; see DriverDevices."""

    def __init__(self, slots: int) -> None:
        self.there, self.free = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        self.incomplete = np.zeros(slots, bool)
        # Of one pool: the newest generation that a node reaches, and slices of it.
        self._newest = np.full(slots, _NONE, np.int64)
        self._slices = np.zeros(slots, np.int64)

    def add(self, reached: Sequence[tuple[ResourceSlice, Slots]], taken: set[str]) -> None:
        """Count a pool.

        Args:
            reached: its slices, with the slots of the nodes that reach them.
            taken: names of the devices that claims have.
        """
        newest, slices = self._newest, self._slices
        for each, slots in reached:
            checkpoint()
            newest[slots] = np.maximum(newest[slots], each.generation)
        for each, slots in reached:
            checkpoint()
            slices[slots] += newest[slots] == each.generation
        last = max(each.generation for each, _ in reached)
        of_generation = Counter(each.generation for each, _ in reached)
        for each, slots in reached:
            checkpoint()
            here = slots[newest[slots] == each.generation]
            if each.generation < last or of_generation[each.generation] != each.size:
                whole = slices[here] == each.size
                if each.generation == last:
                    self.incomplete[here[~whole]] = True
                here = here[whole]
            self.there[here] += len(each.devices)
            self.free[here] += len(each.devices) - len(taken.intersection(each.devices))
        for _, slots in reached:
            newest[slots], slices[slots] = _NONE, 0


def _slots(snapshot: Snapshot, part: ResourceSlice) -> Slots:
    """The slots of the nodes that reach a slice."""
    checkpoint()
    if part.node_name:
        slot = snapshot.slot(part.node_name)
        return np.array([slot] if slot >= 0 else [], np.int32)
    if part.affinity is None and not part.all_nodes:
        return np.array([], np.int32)
    here = snapshot.selected(None if part.all_nodes else part.affinity) & snapshot.alive
    return np.flatnonzero(here).astype(np.int32)
