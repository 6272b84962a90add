"""Pods of classes are read as they were at a view's revision, whatever happens meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.counting import Counting
from tests.service.world import CLUSTER, PATIENCE, World, running
from topospread.errors import NotFound, Unavailable
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency
from topospread.service.state.log import newest_view
from topospread.service.state.members import ClassMembers, read_members
from topospread.store.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.index.pod_classes import PodClass
    from topospread.replica.replica import Replica
    from topospread.replica.view import View


class Busy(Counting):
    """A store that is written to just before pods are read by their keys."""

    def __init__(self, world: World, meanwhile: Callable[[], object]) -> None:
        super().__init__(world.store)
        self._meanwhile = meanwhile

    def read_keys(self, *arguments: Any) -> Any:
        self._meanwhile()
        return super().read_keys(*arguments)


def newest(world: World) -> tuple[Replica, View]:
    replicas = world.process.replicas
    return newest_view(world.store, replicas, CLUSTER, Consistency(), seconds_from_now(PATIENCE))


def classes_of(view: View, app: str) -> list[PodClass]:
    return [c for c in view.snapshot.pod_classes["default"] if ("app", app) in c.labels]


def read(store: Any, replica: Replica, view: View, app: str, **others: Any) -> ClassMembers:
    chosen = classes_of(view, app)
    return read_members(store, replica, view, ("default",), read=chosen, **others)


def contents(found: ClassMembers) -> dict[str, bytes]:
    return {key.name: item.payload for key, item in found.stored.items()}


def held(world: World, *names: str) -> dict[str, bytes]:
    return {
        item.key.name: item.payload
        for page in world.store.scan(CLUSTER, kind=Kind.POD)
        for item in page
        if item.key.name in names
    }


@pytest.fixture
def shop(three_zones: World) -> World:
    """Pods of two apps beside those that are there."""
    three_zones.apply(*(running(f"shop-{n}", "n-a", app="shop") for n in range(3)))
    three_zones.apply(*(running(f"bank-{n}", "n-b", app="bank") for n in range(5)))
    return three_zones


def test_only_pods_of_the_classes_are_read(shop: World) -> None:
    counting = Counting(shop.store)
    found = read(counting, *newest(shop), "shop")
    assert contents(found) == held(shop, "shop-0", "shop-1", "shop-2")
    assert counting.objects == 3
    assert not counting.calls["scan"] + counting.calls["read_range"]
    assert sorted((name, node) for _, name, node in found.unchanged) == [
        ("shop-0", "n-a"),
        ("shop-1", "n-a"),
        ("shop-2", "n-a"),
    ]


def test_of_other_classes_the_index_knows_names_and_nodes(shop: World) -> None:
    counting = Counting(shop.store)
    replica, view = newest(shop)
    found = read(counting, replica, view, "shop", known=classes_of(view, "bank"))
    assert counting.objects == 3
    assert {name for _, name, _ in found.unchanged} >= {"bank-0", "bank-4", "shop-0"}


def test_pods_that_change_meanwhile_are_read_as_they_were(shop: World) -> None:
    before = held(shop, "shop-0", "shop-1", "shop-2")

    def change() -> None:
        shop.apply(running("shop-0", "n-c", app="shop"), running("shop-9", "n-a", app="shop"))
        shop.apply(running("shop-1", "n-a", app="other"))
        shop.delete(Kind.POD, "shop-2", "default")

    found = read(Busy(shop, change), *newest(shop), "shop")
    assert contents(found) == before
    assert {key.name for key in found.changed} == {"shop-0", "shop-1", "shop-2", "shop-9"}
    assert found.unchanged == []


def test_pods_that_changed_between_view_and_reading_are_read_as_they_were(shop: World) -> None:
    """The index has gone on: it has other members, and some of the classes no more."""
    before = held(shop, "shop-0", "shop-1", "shop-2")
    replica, view = newest(shop)
    shop.delete(Kind.POD, "shop-0", "default")
    shop.apply(running("shop-1", "n-a", app="other"), running("shop-9", "n-c", app="shop"))
    newest(shop)
    assert contents(read(shop.store, replica, view, "shop")) == before


def test_terminating_and_ended_pods_are_read_if_asked_for(shop: World) -> None:
    ended, leaving = running("ended", "n-a", app="shop"), running("leaving", "n-a", app="shop")
    ended["status"] = {"phase": "Succeeded"}
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    shop.apply(ended, leaving)
    replica, view = newest(shop)
    assert "ended" not in contents(read(shop.store, replica, view, "shop"))
    found = read(shop.store, replica, view, "shop", without_class=True)
    assert contents(found).keys() == {"shop-0", "shop-1", "shop-2", "ended", "leaving"}


def test_a_cluster_that_is_dropped_meanwhile_is_unavailable(shop: World) -> None:
    with pytest.raises(Unavailable, match="try again"):
        read(Busy(shop, lambda: shop.store.drop(CLUSTER)), *newest(shop), "shop")


def test_classes_of_an_index_that_was_built_anew_are_not_taken_for_empty(shop: World) -> None:
    replica, view = newest(shop)
    rebuilt = replica.new_builder()
    replica.publish(rebuilt, view.identity, view.revision)
    with pytest.raises(Unavailable, match="try again"):
        read(shop.store, replica, view, "shop")


def test_the_newest_view_of_an_unknown_cluster_is_not_found(empty_world: World) -> None:
    replicas = empty_world.process.replicas
    with pytest.raises(NotFound):
        newest_view(empty_world.store, replicas, "nobodys", Consistency(), seconds_from_now(9))
