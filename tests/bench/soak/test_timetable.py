"""A timetable is the same each time, and consistent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.soak.timetable import Timetable
from topospread_client import kind_of
from topospread_proto.v1 import common_pb2 as common

if TYPE_CHECKING:
    from bench.soak.simulated_cluster import ChangeSet
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

NODES, PODS = 100, 1000

Place = tuple[common.Kind.ValueType, str, str]


class World:
    """What was written so far; refuses what no cluster would do."""

    def __init__(self) -> None:
        self.objects: dict[Place, ClusterObject] = {}
        self.ever: Counter[Place] = Counter()
        self.newest = 0

    def take(self, written: ChangeSet) -> None:
        """First what is gone, then what is there."""
        for gone in written.gone:
            del self.objects[gone.kind, gone.namespace or "", gone.name]
        versions = [int(gone.resource_version or 0) for gone in written.gone]
        for made in written.there:
            field = made.WhichOneof("content")
            assert field is not None
            meta = getattr(made, field).metadata
            place = (kind_of(made), meta.namespace, meta.name)
            self.ever[place] += place not in self.objects
            self.objects[place] = made
            versions.append(int(meta.resource_version))
            if field == "pod" and made.pod.spec.node_name:
                assert (common.KIND_NODE, "", made.pod.spec.node_name) in self.objects or (
                    made.pod.metadata.HasField("deletion_timestamp")
                )
        assert len(set(versions)) == len(written)
        assert min(versions, default=self.newest + 1) > self.newest
        self.newest = max(versions, default=self.newest)

    def of(self, kind: common.Kind.ValueType) -> list[ClusterObject]:
        return [made for (each, _, _), made in self.objects.items() if each == kind]

    @property
    def running(self) -> list[ClusterObject]:
        return [
            made
            for made in self.of(common.KIND_POD)
            if made.pod.status.phase == "Running"
            and not made.pod.metadata.HasField("deletion_timestamp")
        ]


def lived(day: Timetable) -> World:
    """The world after it."""
    world = World()
    for passing in (day.first(), day.through(), day.last()):
        for written in passing:
            world.take(written)
    return world


def test_equal_seeds_give_equal_days() -> None:
    def all_changes(seed: int) -> list[ChangeSet]:
        day = Timetable(NODES, PODS, 60, seed)
        return [*day.first(), *day.through(), *day.last()]

    assert all_changes(1) == all_changes(1)
    assert all_changes(1) != all_changes(2)


@pytest.mark.parametrize("minutes", [30, 600])
def test_day_ends_with_a_cluster_as_at_its_beginning_but_for_names(minutes: int) -> None:
    day = Timetable(NODES, PODS, minutes, 3)
    world = lived(day)
    assert len(world.of(common.KIND_NODE)) == NODES
    assert len(world.running) == len(world.of(common.KIND_POD)) == pytest.approx(PODS, rel=0.02)
    assert not any(made.node.spec.taints for made in world.of(common.KIND_NODE))
    assert {made.pod.metadata.namespace.partition("-")[0] for made in world.running} == {"team"}
    apps = {(t.namespace, t.name) for t in day.templates()}
    assert {
        (s.service.metadata.namespace, s.service.metadata.name)
        for s in world.of(common.KIND_SERVICE)
    } == apps
    assert len(apps) <= len(world.of(common.KIND_REPLICA_SET)) <= 2 * len(apps)
    assert set(world.ever.values()) == {1}, "no name comes twice"
