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
from topospread.kube.devices import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.devices import ResourceSlice

MAX_PLACES: Final = 500_000
"""Pairs of a slice and a node that reaches it, for each driver."""

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
    slots = snapshot.alive.size
    there, free = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    incomplete = np.zeros(slots, bool)
    pools: dict[str, list[ResourceSlice]] = {}
    for each in snapshot.objects.slices_of_driver(driver):
        pools.setdefault(each.pool, []).append(each)
    places, special = 0, ""
    for pool in pools.values():
        special = _special(pool)
        if special:
            break
        reached = _reached(snapshot, pool, MAX_PLACES - places)
        if reached is None:
            special = f"more than {MAX_PLACES} slices on nodes"
            break
        places += sum(map(len, reached.values()))
        free_of = {each.name: _free(snapshot, each) for each in pool}
        newest = max(each.generation for each in pool)
        slices = Counter(each.generation for each in pool)
        for slot, found in reached.items():
            checkpoint()
            generation = max(each.generation for each in found)
            of_generation = [each for each in found if each.generation == generation]
            size = of_generation[0].size
            if len(of_generation) != size:
                if generation < newest:
                    continue
                if slices[generation] != size:
                    incomplete[slot] = True
                    continue
            there[slot] += sum([len(each.devices) for each in of_generation])
            free[slot] += sum([free_of[each.name] for each in of_generation])
    return DriverDevices(there, free, incomplete, special)


def _special(pool: Sequence[ResourceSlice]) -> str:
    """What keeps a pool from being counted."""
    sizes: dict[int, int] = {}
    names: set[tuple[int, str]] = set()
    for each in pool:
        checkpoint()
        if each.special:
            return each.special
        if sizes.setdefault(each.generation, each.size) != each.size:
            return "a pool of several sizes"
        named = [(each.generation, device) for device in each.devices]
        if len(names.union(named)) < len(names) + len(named):
            return "a device that is there twice"
        names.update(named)
    return ""


def _reached(
    snapshot: Snapshot, pool: Iterable[ResourceSlice], most: int
) -> dict[int, list[ResourceSlice]] | None:
    """The slices of a pool by the slots of the nodes that reach them; None for more than `most`."""
    found: dict[int, list[ResourceSlice]] = {}
    for each in pool:
        checkpoint()
        slots = _slots(snapshot, each)
        most -= len(slots)
        if most < 0:
            return None
        for slot in slots:
            found.setdefault(slot, []).append(each)
    return found


def _slots(snapshot: Snapshot, part: ResourceSlice) -> Sequence[int]:
    if part.node_name:
        slot = snapshot.slot(part.node_name)
        return [slot] if slot >= 0 else []
    if part.affinity is None and not part.all_nodes:
        return []
    here = snapshot.selected(None if part.all_nodes else part.affinity) & snapshot.alive
    slots: list[int] = np.flatnonzero(here).tolist()
    return slots


def _free(snapshot: Snapshot, part: ResourceSlice) -> int:
    taken = snapshot.objects.is_allocated
    return sum([not taken(DeviceId(part.driver, part.pool, name)) for name in part.devices])
