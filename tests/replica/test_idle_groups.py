"""Idle groups are dropped, and counted again when they are asked for."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.index.changes import GROUPS
from tests.replica.servers import CLUSTER, NEWEST, nodes
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.timers import IdleTracker
from topospread.store.model import Put

if TYPE_CHECKING:
    from tests.store.backends import Backend


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_use_is_too_long_ago_when_the_time_has_passed_since() -> None:
    clock = Clock()
    tracker = IdleTracker(60.0, clock)
    assert tracker.idle_before(10) == 0
    clock.now += 30
    assert tracker.idle_before(20) == 0
    clock.now += 30
    assert tracker.idle_before(30) == 10, "what was used before snapshot 10, sixty seconds ago"
    clock.now += 29
    assert tracker.idle_before(40) == 0
    clock.now += 31
    assert tracker.idle_before(50) == 30, "before snapshot 30, which is sixty seconds old by now"


def test_tracker_schedules_the_next_check() -> None:
    clock = Clock()
    tracker = IdleTracker(60.0, clock)
    assert tracker.seconds_until_check() == 0
    tracker.idle_before(1)
    assert tracker.seconds_until_check() == 15
    clock.now += 14
    assert tracker.seconds_until_check() == 1
    clock.now += 100
    assert tracker.seconds_until_check() == 0


def test_a_replica_lets_groups_go_though_nothing_changes(backend: Backend) -> None:
    with (
        closing(backend.open(SETTINGS)) as store,
        closing(Replicas(store, ReplicaOptions(max_group_idle=0.05))) as replicas,
    ):
        store.apply(CLUSTER, [Put(each.object) for each in nodes("a", "b")])
        replica, before = replicas.resolve(CLUSTER, NEWEST, seconds_from_now(PATIENCE))
        assert replica.ensure_counted(GROUPS).snapshot.missing(GROUPS) == []

        ends = time.monotonic() + PATIENCE
        while replica.current_view().snapshot.groups and time.monotonic() < ends:
            time.sleep(0.01)

        after = replica.current_view()
        assert not after.snapshot.groups
        assert (after.token, after.snapshot.nodes) == (before.token, before.snapshot.nodes)
        assert replica.ensure_counted(GROUPS[:1]).snapshot.missing(GROUPS[:1]) == []
