"""Volumes and the like, kept by changes: equal to what is made of them at once, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.index.builder import Builder
from topospread.index.changes import KindChange, WorkloadChange
from topospread.index.objects import NO_OBJECTS, ObjectPlace, Objects
from topospread.kube.devices import Allocation, DeviceClass, DeviceId, ResourceClaim, ResourceSlice
from topospread.kube.objects import Workload
from topospread.kube.volumes import (
    AVAILABLE,
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
)

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
refs = st.builds(lambda space, name, uid: ClaimRef(f"{space}/{name}", uid), names, names, names)


def _claim(ref, volume, phase):
    return PersistentVolumeClaim(ref, ClaimSpec(phase=phase), volume)


def _volume(name, phase, storage_class, claim):
    return PersistentVolume(name, VolumeTraits(phase, storage_class), claim=claim)


phases = st.sampled_from([AVAILABLE, "Bound", ""])
devices = st.builds(DeviceId, st.just("d"), st.just("p"), names)
values = st.one_of(
    st.builds(_volume, names, phases, names, st.none() | refs),
    st.builds(_claim, refs, st.sampled_from(["", *NAMES]), phases),
    st.builds(StorageClass, names, names),
    st.builds(CSINode, names),
    st.builds(CSIDriver, names),
    st.builds(CSIStorageCapacity, names, names, names, st.none() | st.integers(0, 3)),
    st.builds(VolumeAttachment, names, names, names, names),
    st.builds(Namespace, names, st.just((("a", "b"),))),
    st.builds(DeviceClass, names, extended_resource=st.sampled_from(["", "a.example/gpu"])),
    st.builds(ResourceSlice, names, names, names),
    st.builds(
        lambda space, name, had: ResourceClaim(space, name, allocation=had),
        names,
        names,
        st.none() | st.builds(Allocation, st.lists(devices, max_size=3, unique=True).map(tuple)),
    ),
)


def _place(value):
    return type(value).__name__, getattr(value, "namespace", ""), value.name


changes = st.builds(
    lambda value, gone: (_place(value), None if gone else value), values, st.booleans()
)
batches = st.lists(st.lists(changes, max_size=5), max_size=12)


def _shown(objects: Objects) -> dict[str, Any]:
    """All that look-ups answer."""
    kinds = [kind.__name__ for kind in KINDS]
    return {
        "all": {kind: set(objects.values(kind)) for kind in kinds},
        "unknown": {kind: objects.unknown(kind) for kind in kinds},
        "one": [
            {name: look(name) for name in NAMES}
            for look in (
                objects.volume,
                objects.storage_class,
                objects.csi_node,
                objects.csi_driver,
                objects.namespace,
                objects.device_class,
            )
        ],
        "claims": {(s, n): objects.claim(s, n) for s in NAMES for n in NAMES},
        "for claims": {(s, n): objects.volume_for_claim(s, n) for s in NAMES for n in NAMES},
        "classes": {name: set(objects.volumes_of_class(name).values()) for name in NAMES},
        "capacities": {name: set(objects.capacities_of_class(name)) for name in NAMES},
        "resource claims": {(s, n): objects.resource_claim(s, n) for s in NAMES for n in NAMES},
        "slices": {name: set(objects.slices_of_driver(name)) for name in NAMES},
        "drivers": set(objects.drivers_of_devices()),
        "allocated": {each.name for each in objects.allocated_of_driver("d")},
        "extended": objects.extended_resources,
        "attachments": {name: set(objects.attachments_on(name)) for name in NAMES},
    }


KINDS = (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
    Namespace,
    ResourceClaim,
    DeviceClass,
    ResourceSlice,
)


@given(batches)
def test_objects_kept_by_changes_equal_those_made_at_once(history):
    kept = NO_OBJECTS
    there: dict[ObjectPlace, ClusterValue] = {}
    before = []
    for batch in history:
        before.append((kept, _shown(kept)))
        kept = kept.changed(dict(batch))
        for place, value in batch:
            there.pop(place, None)
            if value is not None:
                there[place] = value
    made = _shown(NO_OBJECTS.changed(there))
    assert _shown(kept) == made
    # By scanning.
    volumes = {value for value in there.values() if isinstance(value, PersistentVolume)}
    capacities = {value for value in there.values() if isinstance(value, CSIStorageCapacity)}
    attached = {value for value in there.values() if isinstance(value, VolumeAttachment)}
    for name in NAMES:
        assert made["classes"][name] == {
            each for each in volumes if each.phase == AVAILABLE and each.storage_class == name
        }
        assert made["capacities"][name] == {e for e in capacities if e.storage_class == name}
        assert made["attachments"][name] == {e for e in attached if e.node_name == name}
    for (space, name), found in made["for claims"].items():
        assert set(found) == {e for e in volumes if e.claim and e.claim.key == f"{space}/{name}"}
    slices = {value for value in there.values() if isinstance(value, ResourceSlice)}
    for name in NAMES:
        assert made["slices"][name] == {each for each in slices if each.driver == name}
    assert made["drivers"] == {each.driver for each in slices}
    claims = [value for value in there.values() if isinstance(value, ResourceClaim)]
    taken = {device.name for c in claims if c.allocation for device in c.allocation.devices}
    assert made["allocated"] == taken
    assert all(_shown(version) == shown for version, shown in before)


def test_a_kind_is_known_where_a_feed_reads_it_or_there_is_one():
    assert NO_OBJECTS.unknown("StorageClass") == "no StorageClass in the state"
    reported = NO_OBJECTS.changed({}, {"StorageClass": ""})
    assert reported.unknown("StorageClass") == ""
    fast = StorageClass("fast")
    there = NO_OBJECTS.changed({("StorageClass", "", "fast"): fast})
    assert there.unknown("StorageClass") == ""
    assert there.changed({("StorageClass", "", "fast"): None}).unknown("StorageClass")
    denied = there.changed({}, {"StorageClass": "no right to list storageclasses"})
    assert denied.unknown("StorageClass") == "no right to list storageclasses"
    assert denied.storage_class("fast") == fast


def test_a_claim_shares_the_names_of_its_volume():
    volume = _volume("pv-1", "Bound", "fast", ClaimRef("prod/data", "u-1"))
    claim = _claim(ClaimRef("prod/data"[:5] + "data", "u-1"), "pv-" + "1", "Bound")
    kept = NO_OBJECTS.changed(
        {
            ("PersistentVolume", "", "pv-1"): volume,
            ("PersistentVolumeClaim", "prod", "data"): claim,
        }
    )
    found = kept.claim("prod", "data")
    assert found is not None
    assert found == claim
    assert found.ref is volume.claim
    assert found.volume_name is volume.name


JOBS = {
    "without any": ([], "no Job in the state"),
    "where one is there": ([("a", True)], ""),
    "where one changed": ([("a", True), ("a", True)], ""),
    "where the last is gone": (
        [("a", True), ("b", True), ("a", False), ("b", False)],
        "no Job in the state",
    ),
    "where one is left": ([("a", True), ("b", True), ("a", False), ("c", False)], ""),
    "where a feed reads none": ([None], ""),
    "where a feed may not": (["jobs are forbidden"], "jobs are forbidden"),
    "where a feed may not any more": ([("a", True), "jobs are forbidden"], "jobs are forbidden"),
    "where a feed may again": (["jobs are forbidden", None], ""),
}


@pytest.mark.parametrize(("changes", "reason"), JOBS.values(), ids=JOBS)
def test_whether_jobs_are_known(changes, reason):
    builder = Builder()
    for each in changes:
        if isinstance(each, tuple):
            name, there = each
            job = Workload("Job", "ci", name) if there else None
            builder.fold([WorkloadChange("Job", "ci", name, job)])
        else:
            builder.fold([KindChange("Job", each or "")])
    assert builder.snapshot.unknown("Job") == reason
