"""Groups that nobody asks for are let go, and come back when somebody does."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.index.changes import GROUPS
from tests.replica.servers import CLUSTER, NEWEST, PATIENCE, nodes
from tests.store.conftest import SETTINGS
from topospread.replica.disuse import Disuse
from topospread.replica.replica import ReplicaOptions
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.store.api import Put

if TYPE_CHECKING:
    from tests.store.backends import Backend


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_use_is_too_long_ago_when_the_time_has_passed_since() -> None:
    clock = Clock()
    disuse = Disuse(60.0, clock)
    assert disuse.before(10) == 0
    clock.now += 30
    assert disuse.before(20) == 0
    clock.now += 30
    assert disuse.before(30) == 10, "what was used before snapshot 10, sixty seconds ago"
    clock.now += 29
    assert disuse.before(40) == 0
    clock.now += 31
    assert disuse.before(50) == 30, "before snapshot 30, which is sixty seconds old by now"


def test_it_says_when_to_look_again() -> None:
    clock = Clock()
    disuse = Disuse(60.0, clock)
    assert disuse.left() == 0
    disuse.before(1)
    assert disuse.left() == 15
    clock.now += 14
    assert disuse.left() == 1
    clock.now += 100
    assert disuse.left() == 0


def test_a_replica_lets_groups_go_though_nothing_changes(backend: Backend) -> None:
    with (
        closing(backend.open(SETTINGS)) as store,
        closing(Replicas(store, ReplicaOptions(max_group_idle=0.05))) as replicas,
    ):
        store.apply(CLUSTER, [Put(each.object) for each in nodes("a", "b")])
        replica, before = replicas.resolve(CLUSTER, NEWEST, seconds_from_now(PATIENCE))
        assert replica.keep(GROUPS).snapshot.missing(GROUPS) == []

        ends = time.monotonic() + PATIENCE
        while replica.loaded().snapshot.groups and time.monotonic() < ends:
            time.sleep(0.01)

        after = replica.loaded()
        assert not after.snapshot.groups
        assert (after.token, after.snapshot.nodes) == (before.token, before.snapshot.nodes)
        assert replica.keep(GROUPS[:1]).snapshot.missing(GROUPS[:1]) == []
