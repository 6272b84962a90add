"""Reservations as they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from topospread.codec.reservations import ReservationTemplate, reservation_key, reservation_row
from topospread.codec.rows import ChangeDecoder
from topospread.errors import CorruptValue
from topospread.generated.internal.v1.stored_pb2 import StoredReservation
from topospread.index.changes import ReservationChange, ReservationRow
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    LabelSelector,
    OwnerReference,
    Pod,
    SpreadConstraint,
)
from topospread.spread.constraints import pod_constraints
from topospread.spread.settings import Rules
from topospread.store.model import Key, Kind

POD = Pod(
    "web-1",
    "prod",
    "u1",
    {"b": "2", "app": "web"},
    owner=OwnerReference("apps/v1", "ReplicaSet", "web", "u0"),
    constraints=(
        SpreadConstraint(
            1,
            "zone",
            DO_NOT_SCHEDULE,
            LabelSelector((("app", "web"),)),
            min_domains=3,
            node_taints_policy=HONOR,
        ),
        SpreadConstraint(2, "rack", DO_NOT_SCHEDULE, None, match_label_keys=("b",)),
    ),
)
CONSTRAINTS = pod_constraints(POD, Rules(), None).hard.constraints
KEY = reservation_key("prod", "web-1")


def held(node="n1", uid="u1", **changes):
    parts: dict[str, Any] = {
        "pod": POD,
        "requests": (("cpu", 250),),
        "constraints": CONSTRAINTS,
        **changes,
    }
    return ReservationTemplate(**parts).held(KEY, uid, node)


def test_reservation_is_counted_by_labels_and_node():
    stored = replace(held(), expires_at=5)
    labels = (("app", "web"), ("b", "2"))
    row = ReservationRow("u1", labels, "n1", 5, (("cpu", 250),))

    assert reservation_row(stored) == row
    assert stored.key == Key(Kind.RESERVATION, "prod", "web-1")
    assert ChangeDecoder().change(stored.key, stored) == ReservationChange("prod", "web-1", row)
    assert ChangeDecoder().change(stored.key, None) == ReservationChange("prod", "web-1", None)


def test_reservation_has_owner_and_constraints():
    message = StoredReservation.FromString(held().payload)

    assert (message.owner.kind, message.owner.name, message.owner.uid) == (
        "ReplicaSet",
        "web",
        "u0",
    )
    assert dict(message.requests) == {"cpu": 250}
    zone, rack = message.constraints
    assert (zone.max_skew, zone.topology_key, zone.min_domains) == (1, "zone", 3)
    assert zone.node_taints_policy == HONOR
    (expression,) = zone.label_selector.match_expressions
    assert (expression.key, expression.operator, list(expression.values)) == ("app", "In", ["web"])
    assert not rack.HasField("label_selector")


def test_equal_reservations_have_equal_bytes():
    other = replace(POD, labels={"app": "web", "b": "2"})
    assert held(pod=other) == held()


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        ({"node": "n2"}, True),
        ({"uid": "u2"}, True),
        ({"pod": replace(POD, owner=None)}, True),
        ({"pod": replace(POD, labels={})}, True),
        ({"requests": ()}, True),
        ({"constraints": ()}, False),
    ],
)
def test_digest_covers_fields_that_matter_to_others(change, matters):
    assert (held(**change).digest != held().digest) == matters
    assert held(**change).payload != held().payload or "uid" in change


def test_a_payload_that_cannot_be_read_is_corrupt():
    with pytest.raises(CorruptValue):
        reservation_row(replace(held(), payload=b"\xff"))
