"""Whose pods are counted: how much is looked at, and states that move on meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, PATIENCE, World, node
from topospread.errors import DeadlineExceeded
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.explaining.counted_pods import Owner, Sharings, owner_of_class
from topospread.service.inspecting.inspector import Inspector

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.index.pods import PodMembers
    from topospread.service.inspecting.cluster_inspector import Inspection

WORKLOADS = 30


@pytest.fixture
def sharing_world(empty_world: World) -> World:
    """So many workloads that count one another's pods."""
    pods = [
        pod_of(f"p{i}", node=f"n{i % 2}", owner=f"Job/j{i}", constraints=[{"key": "zone"}])
        for i in range(WORKLOADS)
    ]
    empty_world.apply(node("n0", "a"), node("n1", "b"), *pods)
    return empty_world


def inspect(world: World, inspector: Inspector) -> Inspection:
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(world.revision))
    return inspector.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))


def sharings_of(
    inspection: Inspection,
    turn: Callable[[], None] = lambda: None,
    members: PodMembers | None = None,
) -> Sharings:
    return Sharings(
        inspection.view.snapshot,
        inspection.replica.members if members is None else lambda: members,
        lambda each: owner_of_class(each, {}),
        turn,
    )


def test_pods_are_ranked_by_owner_once_for_all_who_count_them(
    sharing_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = []
    rank = Sharings._rank

    def ranking(*args: Any) -> Any:
        ranked.append(args)
        return rank(*args)

    monkeypatch.setattr(Sharings, "_rank", ranking)
    found = inspect(sharing_world, Inspector(sharing_world.engine))
    sharings = [each.sharing for each in found.statuses.values()]
    assert [(each.own, each.unlisted) for each in sharings if each] == [(1, 19)] * WORKLOADS
    assert len(ranked) == 1


@pytest.mark.parametrize("last", [0, WORKLOADS - 1, 2 * WORKLOADS - 1, 3 * WORKLOADS - 1])
def test_a_caller_that_is_gone_ends_it_at_any_class(sharing_world: World, last: int) -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        if turns == last:
            raise DeadlineExceeded("too late")
        turns += 1

    found = inspect(sharing_world, Inspector(sharing_world.engine))
    key = next(iter(found.statuses.values())).key
    with pytest.raises(DeadlineExceeded):
        sharings_of(found, turn).of(key.constraint, key.owner)


def test_numbers_and_slots_that_others_have_now_are_not_counted(sharing_world: World) -> None:
    found = inspect(sharing_world, Inspector(sharing_world.engine))
    now = found.replica.members()
    key = next(each.key for each in found.statuses.values() if each.key.owner.name == "j0")

    def counted(members: PodMembers) -> tuple[int, int]:
        sharing = sharings_of(found, members=members).of(key.constraint, key.owner)
        assert sharing is not None
        others = sum(pods for _, pods in sharing.others) + sharing.unlisted_pods
        return sharing.own, others

    assert counted(now) == (1, WORKLOADS - 1)
    used_again = [
        each if each and owner_of_class(each, {}).name != "j0" else None for each in now.classes
    ]
    assert counted(replace(now, classes=used_again)) == (0, WORKLOADS - 1)
    renamed = [f"other-{name}" if name == "n1" else name for name in now.nodes]
    assert counted(replace(now, nodes=renamed)) == (1, WORKLOADS // 2 - 1)


def test_others_have_the_controllers_that_became_known_later(empty_world: World) -> None:
    pods = [
        pod_of("own", node="n0", owner="StatefulSet/own", constraints=[{"key": "zone"}]),
        pod_of("other", node="n0", owner="ReplicaSet/web-1", constraints=[]),
    ]
    empty_world.apply(node("n0", "a"), *pods)
    inspector = Inspector(empty_world.engine)

    def others() -> list[Owner]:
        rows = inspect(empty_world, inspector).statuses.values()
        (row,) = (each for each in rows if each.key.owner.name == "own")
        assert row.sharing is not None
        return [owner for owner, _ in row.sharing.others]

    assert others() == [("ReplicaSet", "web-1")]
    controlled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w"}
    empty_world.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": "web-1",
                "namespace": "default",
                "ownerReferences": [controlled | {"controller": True}],
            },
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        }
    )
    assert others() == [("Deployment", "web")]
