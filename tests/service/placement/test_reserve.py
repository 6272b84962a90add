"""ReserveNode, ReleaseReservation and the list of what is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.service.placement.placer import Placer, named
from tests.service.world import CLUSTER, World, constraint, node
from topospread.service.placement.place import list_reservations
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.index.changes import ReservationRow

BY_ZONE = constraint()


@pytest.fixture
def placer(three_zones: World) -> Placer:
    return Placer(three_zones)


def listed(
    placer: Placer,
    namespace: str = "",
    matches: Callable[[Any], bool] = lambda _: True,
    after: tuple[str, str] = ("", ""),
    most: int = 500,
) -> tuple[Sequence[tuple[str, str, ReservationRow]], bool]:
    placer.held()  # the newest state is there
    replica = placer.engine.replicas.get(CLUSTER)
    assert replica is not None
    reservations = replica.current_view().snapshot.reservations
    return list_reservations(reservations, namespace, matches, after, most)


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("n-c", Code.SUCCESS, ""),
        # Only spreading is asked.
        ("cordoned", Code.SUCCESS, ""),
        ("n-a", Code.UNSCHEDULABLE, "node(s) didn't match pod topology spread constraints"),
        ("keyless", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "missing required label"),
        ("none", Code.ERROR, ""),
    ],
)
def test_a_node_is_held_where_the_constraints_allow_it(placer: Placer, name, code, reason):
    placer.apply(node("keyless"), node("cordoned", "c") | {"spec": {"unschedulable": True}})

    held = placer.reserve(named("a", BY_ZONE), name)

    assert (held.node, held.status.code) == (name if code is Code.SUCCESS else "", code)
    assert not reason or reason in held.status.reasons[0]
    assert placer.held() == ({"default/a": name} if code is Code.SUCCESS else {})


def test_reserving_the_same_node_again_renews_and_another_one_moves(placer: Placer):
    pod = named("a", constraint(maxSkew=2))
    first = placer.reserve(pod, "n-c")
    assert placer.reserve(pod, "n-c").expires_at >= first.expires_at
    assert placer.reserve(pod, "n-b").node == "n-b"
    assert placer.held() == {"default/a": "n-b"}


def test_a_refused_move_leaves_what_is_held(placer: Placer):
    placer.reserve(named("a", BY_ZONE), "n-c")
    assert placer.reserve(named("a", BY_ZONE), "n-a").node == ""
    assert placer.held() == {"default/a": "n-c"}


def test_other_labels_are_judged_anew(placer: Placer):
    other = named("a", BY_ZONE)
    other["metadata"]["labels"] = {"app": "other"}
    placer.reserve(other, "n-a")
    assert placer.reserve(named("a", BY_ZONE), "n-a").node == ""


@pytest.mark.parametrize(
    ("uid", "released_by", "released"),
    [("u1", "u1", True), ("u1", "", True), ("", "u1", True), ("u1", "u2", False)],
)
def test_release_is_by_uid_where_both_have_one(placer: Placer, uid, released_by, released):
    placer.reserve(named("a", BY_ZONE, uid=uid), "n-c")
    assert placer.release("a", released_by) == released
    assert (placer.held() == {}) == released


def test_a_renewal_without_a_uid_keeps_the_uid(placer: Placer):
    placer.reserve(named("a", BY_ZONE, uid="u1"), "n-c")
    placer.reserve(named("a", BY_ZONE), "n-c")
    ((_, _, row),), _ = listed(placer)
    assert row.uid == "u1"


def test_reservations_are_listed_in_pages_by_name(placer: Placer):
    for name in ("b", "a10", "a2"):
        placer.place(named(name))
    elsewhere = named("a")
    elsewhere["metadata"]["namespace"] = "other"
    placer.place(elsewhere)

    first, more = listed(placer, most=2)
    second, last = listed(placer, after=first[-1][:2], most=2)

    names = [(space, name) for space, name, _ in (*first, *second)]
    assert names == [("default", "a10"), ("default", "a2"), ("default", "b"), ("other", "a")]
    assert (more, last) == (True, False)
    assert [name for _, name, _ in listed(placer, "other")[0]] == ["a"]


def test_page_of_reservations_looks_at_the_labels_of_no_later_ones(placer: Placer):
    for number in range(12):
        placer.place(named(f"p-{number:02}"))
    seen: list[object] = []

    def matches(labels: object) -> bool:
        seen.append(labels)
        return True

    held, _ = listed(placer, matches=matches, most=3)
    assert [name for _, name, _ in held] == ["p-00", "p-01", "p-02"]
    assert len(seen) == 4
