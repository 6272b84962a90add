"""Objects that plans read are those of exactly one revision, whatever is written meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.counting import Counting
from tests.service.world import CLUSTER, PATIENCE, World, running
from topospread.checkpoints import Computation, computing_for
from topospread.errors import DeadlineExceeded, NotFound, Unavailable
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.state.log import (
    ChosenObjects,
    ListedObjects,
    WatchRequest,
    list_at_revision,
    watch,
)
from topospread.service.state.pages import PageRequest
from topospread.service.state.read import StateReader
from topospread.store.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable


class Busy:
    """A store that is written to while it is read."""

    def __init__(self, world: World, meanwhile: Callable[[int], object]) -> None:
        self._world = world
        self._meanwhile = meanwhile
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    def read_range(
        self, cluster: str, kind: Kind, namespace: str, after: Any, *_: int
    ) -> tuple[Any, bool]:
        self._meanwhile(self._number)
        self._number += 1
        return self._world.store.read_range(cluster, kind, namespace, after, 1, 1 << 30)


PODS = ChosenObjects((Kind.POD,))


def listed(world: World, store: Any, **others: Any) -> ListedObjects:
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(world.revision))
    asked = {"deadline": seconds_from_now(PATIENCE), "chosen": PODS, **others}
    return list_at_revision(store, world.process.replicas, CLUSTER, newest, **asked)


def held(world: World) -> dict[str, bytes]:
    return {
        item.key.name: item.payload
        for page in world.store.scan(CLUSTER)
        for item in page
        if item.key.kind is Kind.POD
    }


def contents(found: ListedObjects) -> dict[str, bytes]:
    return {item.key.name: item.payload for item in found.readable()}


def test_writes_during_the_scan_are_included(three_zones: World):
    def write(number: int) -> None:
        three_zones.apply(running(f"new-{number}", "n-a"), running("w1", "n-a", app=f"v{number}"))
        if number == 1:
            three_zones.delete(Kind.POD, "w2", "default")

    found = listed(three_zones, Busy(three_zones, write))
    assert contents(found) == held(three_zones)
    assert "w2" not in contents(found)
    assert found.view.snapshot.pods == len(contents(found))


def test_a_cluster_that_is_dropped_meanwhile_is_unavailable(three_zones: World):
    def drop(number: int) -> None:
        if number == 0:
            three_zones.store.drop(CLUSTER)

    with pytest.raises(Unavailable, match="try again"):
        listed(three_zones, Busy(three_zones, drop))


def test_an_unknown_cluster_is_not_found(empty_world: World):
    with pytest.raises(NotFound):
        list_at_revision(
            empty_world.store,
            empty_world.process.replicas,
            "nobodys",
            Consistency(),
            seconds_from_now(PATIENCE),
            PODS,
        )


def test_reading_ends_with_the_deadline(three_zones: World):
    three_zones.apply(*(running(f"m-{number}", "n-a") for number in range(100)))
    listed(three_zones, three_zones.store)
    with pytest.raises(DeadlineExceeded, match="allow more time"):
        listed(three_zones, three_zones.store, deadline=seconds_from_now(0))


def test_a_list_ends_with_its_deadline(three_zones: World) -> None:
    reads = StateReader(three_zones.store, three_zones.engine.replicas)
    late = Computation(time.monotonic() - 1.0, lambda: True)
    with computing_for(late), pytest.raises(DeadlineExceeded):
        reads.list(CLUSTER, Kind.NODE, "", lambda _: True, PageRequest())


def test_objects_that_are_not_meant_are_not_read(three_zones: World) -> None:
    elsewhere = [running(f"m-{number}", "n-a") for number in range(300)]
    for pod in elsewhere:
        pod["metadata"]["namespace"] = "large"
    three_zones.apply(*elsewhere)
    counting = Counting(three_zones.store)
    found = listed(three_zones, counting, chosen=ChosenObjects((Kind.POD,), "default"))
    assert sorted(contents(found)) == ["w1", "w2", "w3"]
    assert counting.objects == 3
    assert not counting.calls["scan"]


def test_watch_of_small_kinds_does_not_begin_with_a_read_of_the_pods(three_zones: World) -> None:
    counting = Counting(three_zones.store)
    asked = WatchRequest(CLUSTER, {Kind.NODE, Kind.SERVICE}, initial=True)
    events = watch(cast("Any", counting), asked, lambda: False)
    assert [entry.key.name for event in events for entry in event.entries] == ["n-a", "n-b", "n-c"]
    assert counting.objects == 3
