"""Places that are held, through either client, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.client.manifests import TWO_ZONES, incoming, node, pod, spread
from topospread_client import ConstraintValidation, Fit, InvalidRequest, NotFound, VerdictCode

DISK = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


@pytest.fixture
def zones(client):
    """A client of a cluster in which only b1 passes for the incoming pod."""
    client.apply_objects(TWO_ZONES)
    return client


def test_node_is_chosen_and_reserved(zones):
    placed = zones.place_pod(incoming(), reservation_ttl=3600)

    assert (placed.node, placed.verdict.code, placed.already_bound) == (
        "b1",
        VerdictCode.SUCCESS,
        False,
    )
    left = placed.expire_time - datetime.now(UTC)
    assert timedelta(minutes=50) < left < timedelta(minutes=70)
    assert placed.revision
    assert placed.trace_id
    (held,) = zones.list_reservations()
    assert (held.pod.full_name, held.node) == ("default/incoming", "b1")
    assert held.labels == {"app": "web"}
    assert held.expire_time == placed.expire_time
    assert zones.get_cluster().cluster.reservation_count == 1
    assert zones.get_reservation("incoming").reservation == held


def test_next_pod_counts_the_reservation(zones):
    zones.place_pod(incoming())
    zones.place_pod(pod("other", topologySpreadConstraints=[spread()]))

    nodes = {held.pod.name: held.node for held in zones.list_reservations()}
    assert nodes["incoming"] == "b1"
    assert nodes["other"] in ("a1", "a2", "b1")


def test_features_that_were_not_considered_are_named(zones):
    placed = zones.place_pod(incoming(volumes=[DISK]))
    assert placed.not_modelled == ("volumes",)


def test_pod_that_fits_nowhere_has_a_response(zones):
    placed = zones.place_pod(incoming(), candidates=["a1", "a2"])

    assert (placed.node, placed.verdict.code) == (None, VerdictCode.UNSCHEDULABLE)
    assert placed.message == (
        "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    )
    assert placed.expire_time is None
    assert list(zones.list_reservations()) == []


def test_fit_chooses_the_filters(zones):
    zones.apply_objects([node("b1", "b") | {"spec": {"unschedulable": True}}])

    assert zones.place_pod(incoming(), fit=Fit.NODE).node is None
    assert zones.place_pod(incoming(), fit=Fit.SPREAD_ONLY).node == "b1"
    assert zones.place_pod(incoming(), candidates=["b1"]).node == "b1"


def test_a_node_is_reserved_and_released(zones):
    assert zones.reserve_node(incoming(), "b1").verdict.success
    refused = zones.reserve_node(pod("x", topologySpreadConstraints=[spread(maxSkew=1)]), "missing")
    assert refused.verdict.code is VerdictCode.ERROR
    assert refused.expire_time is None

    assert zones.release_reservation("incoming").released
    assert not zones.release_reservation("incoming").released
    with pytest.raises(NotFound):
        zones.get_reservation("incoming")
    assert list(zones.list_reservations(namespace="default")) == []


def test_binding_ends_the_reservation(zones):
    zones.place_pod(incoming())
    zones.apply_objects([pod("incoming", "b1")])

    assert zones.place_pod(incoming()).already_bound
    assert zones.reserve_node(incoming(), "a1").already_bound
    assert list(zones.list_reservations()) == []


def test_list_fetches_all_pages(zones):
    for number in range(5):
        zones.place_pod(pod(f"p{number}"))

    names = [held.pod.name for held in zones.list_reservations(page_size=2)]
    assert names == [f"p{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.place_pod({**pod("x"), "metadata": {}}), "pod.object.metadata.name"),
        (lambda client: client.place_pod(pod("x"), reservation_ttl=0), "reservationTtl"),
        (lambda client: client.place_pod(pod("x"), reservation_ttl=-1), "reservationTtl"),
        (lambda client: client.place_pod(pod("x"), reservation_ttl=700_000), "reservationTtl"),
        (lambda client: client.reserve_node(pod("x"), ""), "node"),
        (lambda client: client.release_reservation(""), "pod.name"),
        (
            lambda client: client.place_pod(
                incoming(spread(maxSkew=0)), validation=ConstraintValidation.STRICT
            ),
            "pod.object.spec.topologySpreadConstraints[0].maxSkew",
        ),
    ],
)
def test_errors_name_the_field(zones, call, field):
    with pytest.raises(InvalidRequest) as refused:
        call(zones)
    assert [violation.field for violation in refused.value.violations] == [field]
    assert list(zones.list_reservations()) == []


def test_duplicate_or_missing_node_is_refused(zones):
    with pytest.raises(InvalidRequest, match="once"):
        zones.place_pod(incoming(), candidates=["a1", "a1"])
    with pytest.raises(NotFound):
        zones.place_pod("default/missing")
    with pytest.raises(NotFound):
        zones.place_pod(incoming(), cluster="missing")
