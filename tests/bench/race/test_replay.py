"""The replay of a log finds placements, renewals and breaches."""

from __future__ import annotations

import pytest

from bench.race import scenario
from bench.race.judge import LogReplay, RaceFindings
from bench.stores import LogGap, LogRecorder
from topospread.app.stores import open_store
from topospread.codec.pods import pod_from_proto
from topospread.codec.reservations import ReservationTemplate, reservation_key
from topospread.codec.stored import ends_reservation, stored
from topospread.kube.demands import Demand
from topospread.store.model import Key, Kind, Put, Remove, Transaction
from topospread_client import object_from_manifest, pod_from_manifest

CLUSTER = "race"
SPACE = "team-0"


@pytest.fixture
def store():
    opened = open_store("memory:", {})
    nodes = [scenario.node(number) for number in range(4)]  # one in each zone
    opened.apply(CLUSTER, [Put(stored(made(each))) for each in nodes])
    yield opened
    opened.close()


def made(manifest):
    message = object_from_manifest(manifest)
    assert message is not None
    return message


def pod(number: int, app: str = "zones"):
    return scenario.pod(SPACE, app, f"0-{number}")


def held(number: int, node: int, app: str = "zones", cpu: int = scenario.STRICT, **changes):
    asked = pod_from_proto(pod_from_manifest(pod(number, app) | changes))
    key = reservation_key(asked.namespace, asked.name)
    claim = ReservationTemplate(asked, Demand((("cpu", cpu),)), ())
    return Put(claim.held(key, asked.uid, f"node-{node:03}"), lifetime=60_000)


def bound(number: int, node: int, app: str = "zones", *, ends: bool = True):
    manifest = pod(number, app)
    manifest["spec"]["nodeName"] = f"node-{node:03}"
    message = made(manifest)
    return Put(stored(message), ends_reservation=ends and ends_reservation(message))


def played(store) -> RaceFindings:
    log: list[Transaction] = []
    assert LogRecorder(store, CLUSTER, log.append).finish() == store.head(CLUSTER).revision.number
    assert len(log) == store.head(CLUSTER).revision.number
    return LogReplay().play(log, lambda _: None)


def test_places_that_the_state_allows_are_no_breaches(store):
    for number in range(8):
        store.apply(CLUSTER, [held(number, number % 4)])
    found = played(store)
    assert (found.placements, found.breaches, found.doubles) == (8, [], [])


def test_place_that_the_state_does_not_allow_is_a_breach(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [held(1, 0)])
    assert played(store).breaches == ["revision 3: team-0/zones-0-1 on node-000"]


def test_place_is_judged_by_the_state_just_before_it(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [Remove(reservation_key(SPACE, "zones-0-0"))])
    store.apply(CLUSTER, [held(1, 0), held(2, 1)])
    store.apply(CLUSTER, [Remove(Key(Kind.NODE, "", "node-003"))])
    store.apply(CLUSTER, [held(3, 2), held(4, 0)])
    found = played(store)
    assert (found.placements, found.ended, found.breaches) == (5, 1, [])


def test_later_entries_of_a_transaction_see_the_earlier_ones(store):
    store.apply(CLUSTER, [held(0, 0), held(1, 0)])
    assert len(played(store).breaches) == 1


def test_renewals_and_moves_are_judged_without_the_old_place(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [held(0, 1)])
    store.apply(CLUSTER, [held(1, 0)])
    found = played(store)
    assert (found.placements, found.renewals, found.breaches) == (3, 1, [])


def test_a_renewal_is_judged_by_what_it_asks(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [held(1, 0, cpu=scenario.LOOSE)])
    store.apply(CLUSTER, [held(1, 0)])
    found = played(store)
    assert (found.placements, found.renewals) == (2, 1)
    assert found.breaches == ["revision 4: team-0/zones-0-1 on node-000"]


def test_a_successor_is_judged_without_its_predecessors_place(store):
    def successor(number, node):
        return held(number, node, metadata=pod(number)["metadata"] | {"uid": "another"})

    store.apply(CLUSTER, [held(0, 0), held(1, 1)])
    store.apply(CLUSTER, [successor(1, 1)])
    store.apply(CLUSTER, [successor(1, 0)])
    found = played(store)
    assert (found.placements, found.renewals) == (4, 0)
    assert found.breaches == ["revision 4: team-0/zones-0-1 on node-000"]


def test_bound_pods_count_and_their_places_do_not(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [bound(0, 0)])
    store.apply(CLUSTER, [held(1, 1)])
    store.apply(CLUSTER, [held(2, 0)])
    found = played(store)
    assert (found.ended, len(found.breaches)) == (1, 1)


def test_a_pod_that_counts_twice_is_found(store):
    store.apply(CLUSTER, [held(0, 0)])
    store.apply(CLUSTER, [bound(0, 0, ends=False)])
    assert played(store).doubles == ["revision 3: team-0/zones-0-0"]


def test_a_place_on_no_node_and_other_labels_are_breaches(store):
    store.apply(CLUSTER, [held(0, 99)])
    labels = pod(1)["metadata"] | {"labels": {"app": "other"}}
    store.apply(CLUSTER, [held(1, 0, metadata=labels)])
    first, second = played(store).breaches
    assert "no such node" in first
    assert "other labels" in second


def test_a_gap_is_an_error(store):
    recorder = LogRecorder(store, CLUSTER, lambda _: None)
    store.apply(CLUSTER, [held(0, 0)])
    store.drop(CLUSTER)
    store.apply(CLUSTER, [Put(stored(made(scenario.node(0))))])
    with pytest.raises(LogGap):
        recorder.finish()
