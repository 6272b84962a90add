"""Whose a reservation is, and that versions of the map stay as they were."""

from __future__ import annotations

import pytest

from topospread.index.changes import ReservationRow
from topospread.index.reservations import NO_RESERVATIONS


def row(uid: str = "u1", node: str = "n1") -> ReservationRow:
    return ReservationRow(uid, (("app", "a"),), node)


@pytest.mark.parametrize(
    ("held_for", "asked", "own"),
    [("u1", "u1", True), ("u1", "", True), ("", "u1", True), ("u1", "u2", False)],
)
def test_reservation_is_the_pods_own_if_the_uid_is_equal_or_unknown(held_for, asked, own):
    reservations = NO_RESERVATIONS.changed({"default/web": row(held_for)})

    assert (reservations.of("default", "web", asked) is not None) == own
    assert reservations.of("default", "other", asked) is None
    assert reservations.of("other", "web", asked) is None


def test_a_version_stays_as_it_was():
    names = [f"default/p{number}" for number in range(1000)]
    first = NO_RESERVATIONS.changed({name: row() for name in names})
    second = first.changed({names[0]: None, names[1]: row(node="n2"), "default/none": None})

    assert (len(NO_RESERVATIONS), len(first), len(second)) == (0, 1000, 999)
    assert {found.node_name for _, found in first} == {"n1"}
    assert first.get(names[0]) == row()
    assert second.get(names[0]) is None
    assert second.get(names[1]) == row(node="n2")
