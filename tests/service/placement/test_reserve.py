"""ReserveNode, ReleaseReservation and the list of what is held."""

from __future__ import annotations

import pytest

from tests.service.placement.placer import Placer, bound, named
from tests.service.world import CLUSTER, World, constraint, node
from topospread.errors import InvalidRequest
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.placement.place import ReservationPage, list_reservations
from topospread.service.state.pages import PageRequest
from topospread.spread.verdicts import Code

BY_ZONE = constraint()


@pytest.fixture
def placer(three_zones: World) -> Placer:
    return Placer(three_zones)


def listed(placer: Placer, namespace: str = "", size: int = 0, token: str = "") -> ReservationPage:
    placer.held()  # the newest state is there
    replicas = placer.engine.replicas
    chosen, ask = (namespace, lambda _: True), PageRequest(size, token)
    return list_reservations(
        replicas, CLUSTER, chosen, ask, DEFAULT_CONSISTENCY, seconds_from_now(30.0)
    )


def test_a_node_that_the_constraints_allow_is_held(placer: Placer):
    held = placer.reserve(named("a", BY_ZONE), "n-c")

    assert (held.node, held.status.code) == ("n-c", Code.SUCCESS)
    assert placer.held() == {"default/a": "n-c"}


def test_node_that_constraints_reject_is_refused_with_its_verdict(placer: Placer):
    held = placer.reserve(named("a", BY_ZONE), "n-a")

    assert held.node == ""
    assert held.status.code is Code.UNSCHEDULABLE
    assert held.status.reasons == ("node(s) didn't match pod topology spread constraints",)
    assert placer.held() == {}


def test_a_node_without_the_label_is_unresolvable(placer: Placer):
    placer.apply(node("keyless"))
    status = placer.reserve(named("a", BY_ZONE), "keyless").status
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_an_unknown_node_is_an_error(placer: Placer):
    held = placer.reserve(named("a", BY_ZONE), "nobody")
    assert (held.status.code, held.node) == (Code.ERROR, "")


def test_only_spreading_is_asked(placer: Placer):
    placer.apply(node("n-c", "c") | {"spec": {"unschedulable": True}})
    assert placer.reserve(named("a", BY_ZONE), "n-c").node == "n-c"


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


def test_bound_pod_is_reported_as_bound(placer: Placer):
    pod = named("a", BY_ZONE)
    placer.apply(bound(pod, "n-a"))
    held = placer.reserve(pod, "n-c")
    assert (held.node, held.already_bound) == ("n-a", True)


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
    ((_, _, row),) = listed(placer).held
    assert row.uid == "u1"


def test_reservations_are_listed_in_pages_by_name(placer: Placer):
    for name in ("b", "a10", "a2"):
        placer.place(named(name))
    elsewhere = named("a")
    elsewhere["metadata"]["namespace"] = "other"
    placer.place(elsewhere)

    first = listed(placer, size=2)
    second = listed(placer, size=2, token=first.next)

    names = [(space, name) for space, name, _ in (*first.held, *second.held)]
    assert names == [("default", "a10"), ("default", "a2"), ("default", "b"), ("other", "a")]
    assert second.next == ""
    assert [name for _, name, _ in listed(placer, "other").held] == ["a"]


def test_page_of_reservations_looks_at_the_labels_of_no_later_ones(placer: Placer):
    for number in range(12):
        placer.place(named(f"p-{number:02}"))
    placer.held()
    seen: list[object] = []

    def matches(labels: object) -> bool:
        seen.append(labels)
        return True

    page = list_reservations(
        placer.engine.replicas,
        CLUSTER,
        ("", matches),
        PageRequest(3),
        DEFAULT_CONSISTENCY,
        seconds_from_now(30.0),
    )
    assert [name for _, name, _ in page.held] == ["p-00", "p-01", "p-02"]
    assert len(seen) == 4


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (0, "%%%"), (0, "YQ==")])
def test_pages_that_cannot_be(placer: Placer, size, token):
    with pytest.raises(InvalidRequest):
        listed(placer, size=size, token=token)
