"""What is read by name is at the revision of the view, whatever others write meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.counting import Counting
from tests.heads import CHANGES, Heads
from tests.service.busy import Busy
from tests.service.world import CLUSTER, PATIENCE, World, running
from topospread.checkpoints import Computation, computing_for
from topospread.codec.pods import pod_from_proto
from topospread.codec.stored import object_from_stored
from topospread.errors import NotFound, Unavailable
from topospread.replica.replica import Replica
from topospread.replica.replicas import seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Consistency
from topospread.service.state.consistent_read import ConsistentRead
from topospread.store.api import scan_all
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPLICA_SETS = [(Kind.REPLICA_SET, "default")]


def newest(world: World) -> Replica:
    replicas = world.process.replicas
    deadline = seconds_from_now(PATIENCE)
    return ConsistentRead.newest(world.store, replicas, CLUSTER, Consistency(), deadline).replica


def chosen_by(found: ConsistentRead, app: str) -> list[Key]:
    """The pods of an app in the view of a read."""
    classes = found.view.snapshot.pod_classes["default"]
    chosen = [each for each in classes if ("app", app) in each.labels]
    return [Key(Kind.POD, "default", name) for _, name, _ in found.pods.of(chosen)]


def read(store: Any, replica: Replica, app: str) -> tuple[ConsistentRead, Sequence[Key], int]:
    """Read the pods of an app; returns also how often they were chosen."""
    found = ConsistentRead(store, replica)
    for rounds in range(1, 100):
        keys = chosen_by(found, app)
        if found.read(keys):
            return found, keys, rounds
    raise AssertionError("it does not come to an end")


def contents(found: ConsistentRead, keys: Sequence[Key]) -> dict[str, bytes]:
    return {item.key.name: item.payload for item in found.objects(keys)}


def held(world: World, app: str) -> dict[str, bytes]:
    """The pods of an app as the store has them now."""
    return {
        item.key.name: item.payload
        for page in scan_all(world.store, CLUSTER, Kind.POD)
        for item in page
        if ("app", app) in pod_from_proto(object_from_stored(item).pod).labels.items()
    }


@pytest.fixture
def shop(three_zones: World) -> World:
    """Pods of two apps beside those that are there."""
    three_zones.apply(*(running(f"shop-{n}", "n-a", app="shop") for n in range(3)))
    three_zones.apply(*(running(f"bank-{n}", "n-b", app="bank") for n in range(5)))
    return three_zones


def test_only_pods_that_are_asked_for_are_read(shop: World) -> None:
    counting = Counting(shop.store)
    found, keys, rounds = read(counting, newest(shop), "shop")
    assert contents(found, keys) == held(shop, "shop")
    assert (counting.objects, counting.calls["scan"], rounds) == (3, 0, 1)


def test_writes_to_other_pods_do_not_matter(shop: World) -> None:
    busy = Busy(shop, lambda: shop.apply(running("bank-0", "n-c", app="bank")))
    found, keys, rounds = read(busy, newest(shop), "shop")
    assert rounds == 1
    assert contents(found, keys) == held(shop, "shop")


def test_pods_that_change_meanwhile_are_of_the_newer_view(shop: World) -> None:
    def change() -> None:
        shop.apply(running("shop-0", "n-c", app="shop"), running("shop-9", "n-a", app="shop"))
        shop.apply(running("shop-1", "n-a", app="other"))
        shop.delete(Kind.POD, "shop-2", "default")

    busy = Busy(shop, change)
    found, keys, rounds = read(busy, newest(shop), "shop")
    assert {key.name for key in keys} == {"shop-0", "shop-9"}
    assert contents(found, keys) == held(shop, "shop")
    assert rounds == 2
    assert busy.objects == 3, "what the log brought was not read again"


def test_a_read_ends_though_a_writer_never_rests(shop: World) -> None:
    """Each round reads only what is new, so that the second one has all.

    The log is read up to where it ends then: more is there before each answer.
    """

    def write(step: int) -> Callable[[], object]:
        manifests = [running(f"shop-{n}", f"n-{'bca'[step % 3]}", app="shop") for n in range(5)]
        return lambda: shop.apply(*manifests)

    busy = Busy(shop, *(write(step) for step in range(50)))
    found, keys, rounds = read(busy, newest(shop), "shop")
    assert rounds == 2
    assert {key.name for key in keys} == {f"shop-{n}" for n in range(5)}
    assert len(contents(found, keys)) == 5
    assert 40 < len(busy.meanwhile) < 49


def test_a_view_that_was_taken_before_the_read_counts(shop: World) -> None:
    """What came between is noticed, though the follower has gone on to it."""
    found = ConsistentRead(shop.store, newest(shop))
    keys = chosen_by(found, "shop")
    shop.apply(running("shop-1", "n-b", app="shop"))
    newest(shop)
    assert not found.read(keys)
    assert found.read(chosen_by(found, "shop"))
    assert contents(found, keys) == held(shop, "shop")


def test_lists_of_other_kinds_are_of_the_same_view(shop: World) -> None:
    def replica_set(name: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": "default"}
        return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {}}

    shop.apply(replica_set("one"))
    busy = Busy(shop, lambda: shop.apply(replica_set("two")))
    found = ConsistentRead(busy, newest(shop))
    keys = chosen_by(found, "shop")
    rounds = 1
    while not found.read(keys, REPLICA_SETS):
        keys = chosen_by(found, "shop")
        rounds += 1
    names = [item.key.name for item in found.listed(*REPLICA_SETS[0])]
    assert (names, rounds) == (["one", "two"], 2)


def test_terminating_and_ended_pods_are_known_by_name(shop: World) -> None:
    ended, leaving = running("ended", "n-a", app="shop"), running("leaving", "n-a", app="shop")
    ended["status"] = {"phase": "Succeeded"}
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    shop.apply(ended, leaving)
    found, keys, _ = read(shop.store, newest(shop), "shop")
    assert {key.name for key in keys} == {"shop-0", "shop-1", "shop-2"}
    assert sorted(found.pods.without_class("default")) == ["ended", "leaving"]


def test_a_cluster_that_is_dropped_meanwhile_is_unavailable(shop: World) -> None:
    with pytest.raises(Unavailable, match="try again"):
        read(Busy(shop, lambda: shop.store.drop(CLUSTER)), newest(shop), "shop")


@CHANGES
def test_read_of_two_histories_is_refused(shop: World, change: Any) -> None:
    replica = newest(shop)
    store = Heads(shop.store, change(shop.store.head(CLUSTER)))
    with pytest.raises(Unavailable, match="try again"):
        read(store, replica, "shop")


def test_nothing_is_awaited_from_an_index_that_is_being_loaded_anew(shop: World) -> None:
    replica = Replica(CLUSTER, shop.store, ReplicaOptions(follows=False))
    replica.start()
    busy = Busy(shop, lambda: shop.apply(running("shop-0", "n-c", app="shop")))
    found = ConsistentRead(cast("Any", busy), replica)
    replica.begin_rebuild()
    within = Computation(seconds_from_now(PATIENCE), lambda: True)
    with computing_for(within), pytest.raises(Unavailable, match="try again"):
        found.read([Key(Kind.POD, "default", "shop-0")])


def test_an_index_that_is_built_anew_is_not_taken_for_an_empty_one(shop: World) -> None:
    replica = newest(shop)
    replica.publish(replica.new_builder(), "another", replica.current_view().revision)
    found = ConsistentRead(shop.store, replica)
    with pytest.raises(Unavailable, match="try again"):
        found.read([Key(Kind.POD, "default", "shop-0")])


def test_the_newest_view_of_an_unknown_cluster_is_not_found(empty_world: World) -> None:
    store, replicas = empty_world.store, empty_world.process.replicas
    with pytest.raises(NotFound):
        ConsistentRead.newest(store, replicas, "unknown", Consistency(), seconds_from_now(9))
