"""Places that are held, through either client, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.client.manifests import TWO_ZONES, incoming, node, pod, spread
from topospread_client import placement
from topospread_client.answers import Code
from topospread_client.errors import InvalidRequest, NotFound

DISK = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


@pytest.fixture
def zones(client):
    """A client of a cluster in which only b1 passes for the incoming pod."""
    client.apply(TWO_ZONES)
    return client


def test_a_place_is_chosen_and_held(zones):
    placed = zones.place(incoming(), ttl=3600)

    assert (placed.node, placed.status.code, placed.already_bound) == ("b1", Code.SUCCESS, False)
    left = placed.expires_at - datetime.now(UTC)
    assert timedelta(minutes=50) < left < timedelta(minutes=70)
    assert placed.revision
    assert placed.trace_id
    (held,) = zones.reservations().reservations
    assert (held.namespace, held.name, held.node) == ("default", "incoming", "b1")
    assert held.labels == {"app": "web"}
    assert held.expires_at == placed.expires_at
    assert zones.clusters().clusters


def test_the_next_pod_sees_it(zones):
    zones.place(incoming())
    zones.place(pod("other", topologySpreadConstraints=[spread()]))

    nodes = {held.name: held.node for held in zones.reservations().reservations}
    assert nodes["incoming"] == "b1"
    assert nodes["other"] in ("a1", "a2", "b1")


def test_what_was_not_looked_at_is_named(zones):
    placed = zones.place(incoming(volumes=[DISK]))
    assert placed.not_modelled == ("volumes",)


def test_a_pod_that_fits_nowhere_is_an_answer(zones):
    placed = zones.place(incoming(), candidates=["a1", "a2"])

    assert (placed.node, placed.status.code) == (None, Code.UNSCHEDULABLE)
    assert placed.message == (
        "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    )
    assert placed.expires_at is None
    assert zones.reservations().reservations == ()


def test_how_much_must_fit_is_chosen(zones):
    zones.apply([node("b1", "b") | {"spec": {"unschedulable": True}}])

    assert zones.place(incoming(), fit=placement.NODE).node is None
    assert zones.place(incoming(), fit=placement.SPREAD_ONLY).node == "b1"
    assert zones.place(incoming(), candidates=["b1"]).node == "b1"


def test_a_node_is_reserved_and_released(zones):
    assert zones.reserve(incoming(), "b1").status.success
    refused = zones.reserve(pod("x", topologySpreadConstraints=[spread(maxSkew=1)]), "nobody")
    assert refused.status.code is Code.ERROR
    assert refused.expires_at is None

    assert zones.release("incoming").released
    assert not zones.release("incoming").released
    assert zones.reservations(namespace="default").reservations == ()


def test_binding_ends_it_and_a_bound_pod_is_told_so(zones):
    zones.place(incoming())
    zones.apply([pod("incoming", "b1")])

    assert zones.place(incoming()).already_bound
    assert zones.reserve(incoming(), "a1").already_bound
    assert zones.reservations().reservations == ()


def test_all_pages_are_fetched(zones, monkeypatch):
    monkeypatch.setattr(placement, "PAGE", 2)
    for number in range(5):
        zones.place(pod(f"p{number}"))

    names = [held.name for held in zones.reservations().reservations]
    assert names == [f"p{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.place({**pod("x"), "metadata": {}}), "metadata.name"),
        (lambda client: client.place(pod("x"), ttl=0), "ttl"),
        (lambda client: client.place(pod("x"), ttl=-1), "ttl"),
        (lambda client: client.place(pod("x"), ttl=700_000), "ttl"),
        (lambda client: client.place(pod("x"), fit=9), "fit"),
        (lambda client: client.reserve(pod("x"), ""), "node"),
        (lambda client: client.release(""), "name"),
        (
            lambda client: client.place(incoming(spread(maxSkew=0)), validate=True),
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
    ],
)
def test_what_is_wrong_is_named(zones, call, field):
    with pytest.raises(InvalidRequest) as refused:
        call(zones)
    assert [violation.field for violation in refused.value.violations] == [field]
    assert zones.reservations().reservations == ()


def test_a_node_given_twice_or_nothing_at_all_is_refused(zones):
    with pytest.raises(InvalidRequest, match="once"):
        zones.place(incoming(), candidates=["a1", "a1"])
    with pytest.raises(NotFound):
        zones.place("default/nobody")
    with pytest.raises(NotFound):
        zones.place(incoming(), cluster="nobody-knows-it")
