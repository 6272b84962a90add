"""Reservations: they end with their pod in one transaction, or when they are due."""

from __future__ import annotations

import pytest

from tests.store.backends import (
    CLUSTER,
    DIGEST,
    OTHER_DIGEST,
    end_due,
    follow_all,
    get,
    node,
    objects,
    pod,
    put,
    replay,
)
from topospread.errors import Conflict, InvalidRequest
from topospread.store.model import (
    MAX_ENDED,
    MAX_LIFETIME,
    Key,
    Kind,
    Put,
    Remove,
    StoredObject,
    Unchanged,
    WriteOutcome,
)

HOUR = 3_600_000


def reservation(name="web-1", namespace="default"):
    return Key(Kind.RESERVATION, namespace, name)


def reserve(key=None, lifetime=HOUR, uid="uid-1", payload=b"node-1", digest=DIGEST):
    return Put(StoredObject(key or reservation(), payload, digest, "", uid), lifetime=lifetime)


def bound(key=None, version="", uid="uid-1", payload=b"bound"):
    stored = put(key or pod(), version, payload, uid=uid).object
    return Put(stored, ends_reservation=True)


def entries(store, after):
    """(kind, name, is it there) of every change after a revision."""
    return [
        (entry.key.kind.name, entry.key.name, entry.object is not None)
        for transaction in follow_all(store, after=after)
        for entry in transaction.entries
    ]


def test_reservation_is_stored_with_its_expiry(store):
    applied = store.apply(CLUSTER, [reserve(lifetime=HOUR)])

    (found,) = objects(store).values()
    assert found == StoredObject(reservation(), b"node-1", DIGEST, "", "uid-1", applied.at + HOUR)
    assert get(store, reservation()) == found
    (transaction,) = follow_all(store)
    assert [entry.object for entry in transaction.entries] == [found]


def test_without_a_lifetime_it_is_never_due(store):
    store.apply(CLUSTER, [reserve(lifetime=None)])

    assert objects(store)[reservation()].expires_at == 0
    assert end_due(store).ended == ()


def test_writing_it_again_renews_it_and_is_not_relevant(store):
    first = store.apply(CLUSTER, [reserve(lifetime=60_000)])
    second = store.apply(CLUSTER, [reserve(lifetime=HOUR)])

    assert second.outcomes == (WriteOutcome.UPDATED,)
    assert objects(store)[reservation()].expires_at == second.at + HOUR
    store.apply(CLUSTER, [put(pod("b"))], precondition=Unchanged(first.revision, ("default",)))


def test_moving_it_is_relevant(store):
    first = store.apply(CLUSTER, [reserve()])
    store.apply(CLUSTER, [reserve(payload=b"node-2", digest=OTHER_DIGEST)])

    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("b"))], precondition=Unchanged(first.revision, ("default",)))


CREATED, UNCHANGED, NOT_FOUND = (
    WriteOutcome.CREATED,
    WriteOutcome.UNCHANGED,
    WriteOutcome.NOT_FOUND,
)
DELETED, STALE = WriteOutcome.DELETED, WriteOutcome.IGNORED_STALE


@pytest.mark.parametrize(
    ("before", "change", "outcome", "ends"),
    [
        ([reserve()], bound(), CREATED, True),
        ([reserve()], bound(uid=""), CREATED, True),
        ([reserve()], Remove(pod()), NOT_FOUND, True),
        ([reserve()], Remove(pod(), uid="uid-1"), NOT_FOUND, True),
        ([reserve()], Remove(pod(), up_to_version="5"), NOT_FOUND, True),
        # One without a uid is for any pod of its name.
        ([reserve(uid="")], bound(uid="uid-9"), CREATED, True),
        # A bound pod that is written again ends it all the same.
        ([bound(), reserve()], bound(), UNCHANGED, True),
        # Pods that are pending, or of another uid or namespace, do not.
        ([reserve()], put(pod()), CREATED, False),
        ([reserve()], bound(uid="uid-9"), CREATED, False),
        ([reserve()], Remove(pod(), uid="uid-9"), NOT_FOUND, False),
        ([reserve()], bound(pod("web-1", "elsewhere")), CREATED, False),
        # A removed pod's own uid decides when the caller names none.
        ([put(pod(), uid="old"), reserve(uid="new")], Remove(pod()), DELETED, False),
        ([put(pod(), uid="new"), reserve(uid="new")], Remove(pod()), DELETED, True),
        # Nor does stale news of a pod.
        ([put(pod(), "9"), reserve()], bound(version="5"), STALE, False),
        ([put(pod(), "9"), reserve()], Remove(pod(), up_to_version="5"), STALE, False),
    ],
)
def test_reservation_ends_with_its_pod_in_one_transaction(store, before, change, outcome, ends):
    for each in (*before, reserve(reservation("other"))):
        store.apply(CLUSTER, [each])
    reserved = store.head(CLUSTER).revision

    applied = store.apply(CLUSTER, [change])

    assert applied.outcomes == (outcome,)
    assert applied.ended == ((reservation(),) if ends else ())
    assert (reservation() in objects(store)) is not ends
    assert reservation("other") in objects(store)
    effective = (outcome in (CREATED, DELETED)) + ends
    assert applied.revision.number == reserved.number + bool(effective)
    seen = entries(store, reserved)
    assert len(seen) == effective
    assert not ends or seen[-1] == ("RESERVATION", "web-1", False)


def test_end_of_a_reservation_is_relevant_to_the_namespace(store):
    seen = store.apply(CLUSTER, [reserve(reservation("b"))]).revision
    store.apply(CLUSTER, [Remove(pod("b"))])

    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("c"))], precondition=Unchanged(seen, ("default",)))


def test_due_reservations_end_with_the_next_write(store):
    due = store.apply(CLUSTER, [reserve(lifetime=0), reserve(reservation("later"))])

    applied = store.apply(CLUSTER, [put(node())])

    assert applied.ended == (reservation(),)
    assert entries(store, due.revision) == [
        ("NODE", "node-1", True),
        ("RESERVATION", "web-1", False),
    ]
    assert reservation("later") in objects(store)


def test_a_write_without_effect_ends_what_is_due_all_the_same(store):
    store.apply(CLUSTER, [put(node())])
    due = store.apply(CLUSTER, [reserve(lifetime=0)])

    applied = store.apply(CLUSTER, [put(node())])

    assert (applied.previous, applied.ended) == (due.revision, (reservation(),))
    assert applied.outcomes == (WriteOutcome.UNCHANGED,)
    assert reservation() not in objects(store)


def test_a_write_of_nothing_ends_what_is_due_and_is_logged(store):
    seen = store.apply(CLUSTER, [reserve(lifetime=0), reserve(reservation("later"))]).revision

    applied = end_due(store)

    assert (applied.previous, applied.ended, applied.outcomes) == (seen, (reservation(),), ())
    assert entries(store, seen) == [("RESERVATION", "web-1", False)]
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("b"))], precondition=Unchanged(seen, ("default",)))


def test_a_write_of_nothing_when_nothing_is_due_writes_nothing(store):
    head = store.apply(CLUSTER, [reserve()]).revision

    assert end_due(store).revision == head
    assert store.head(CLUSTER).revision == head


def test_due_reservations_end_in_bounded_steps(store):
    names = [f"p-{number:03}" for number in range(MAX_ENDED + 5)]
    store.apply(CLUSTER, [reserve(reservation(name), lifetime=0) for name in names])

    assert [len(end_due(store).ended) for _ in range(3)] == [MAX_ENDED, 5, 0]
    assert objects(store) == {}


def test_a_due_reservation_can_be_renewed_until_its_end_is_logged(store):
    store.apply(CLUSTER, [reserve(lifetime=0)])

    applied = store.apply(CLUSTER, [reserve(lifetime=HOUR)])

    assert applied.ended == ()
    assert end_due(store).ended == ()
    assert objects(store)[reservation()].expires_at == applied.at + HOUR


def test_released_it_is_due_no_more(store):
    store.apply(CLUSTER, [reserve(lifetime=0)])
    assert store.apply(CLUSTER, [Remove(reservation(), uid="uid-1")]).outcomes == (
        WriteOutcome.DELETED,
    )

    assert store.apply(CLUSTER, [put(node())]).ended == ()
    assert end_due(store).ended == ()


def test_dropping_a_cluster_drops_what_is_due(store):
    store.apply(CLUSTER, [reserve(lifetime=0)])
    assert store.drop(CLUSTER) == 1

    store.apply(CLUSTER, [put(node())])
    assert end_due(store).ended == ()


def test_a_follower_holds_what_the_store_holds(store):
    store.apply(CLUSTER, [reserve(), reserve(reservation("b"), lifetime=0)])
    store.apply(CLUSTER, [bound()])
    store.apply(CLUSTER, [reserve(reservation("c"))])
    store.apply(CLUSTER, [reserve(reservation("c"))])

    assert replay({}, follow_all(store)) == objects(store)


@pytest.mark.parametrize("lifetime", [-1, MAX_LIFETIME + 1])
def test_lifetimes_are_bounded(store, lifetime):
    with pytest.raises(InvalidRequest, match="a week"):
        store.apply(CLUSTER, [reserve(lifetime=lifetime)])


@pytest.mark.parametrize("change", [bound(), put(pod()), Remove(pod())])
def test_a_pod_and_its_reservation_are_changed_one_after_the_other(store, change):
    with pytest.raises(InvalidRequest, match="one after the other"):
        store.apply(CLUSTER, [change, reserve()])


def test_only_pods_end_reservations_and_only_these_have_lifetimes(store):
    with pytest.raises(ValueError, match="only pods"):
        store.apply(CLUSTER, [Put(put(node()).object, ends_reservation=True)])
    with pytest.raises(ValueError, match="only reservations"):
        store.apply(CLUSTER, [Put(put(node()).object, lifetime=1)])


def test_a_damaged_value_is_ended_by_any_pod_of_its_name(store, backend):
    store.apply(CLUSTER, [reserve(), reserve(reservation("b"), lifetime=0)])
    backend.overwrite(store, CLUSTER, reservation(), b"")
    backend.overwrite(store, CLUSTER, reservation("b"), b"\x01x")

    assert store.apply(CLUSTER, [bound(uid="uid-9")]).ended == (reservation(), reservation("b"))
    assert set(objects(store)) == {pod()}


def test_newer_reservation_outlasts_the_removal_of_an_older_one(store):
    first, second = (Put(StoredObject(reservation(), b"n", DIGEST, v), lifetime=HOUR) for v in "12")
    store.apply(CLUSTER, [first])
    store.apply(CLUSTER, [second])
    removed = store.apply(CLUSTER, [Remove(reservation(), up_to_version="1")])
    assert removed.outcomes == (WriteOutcome.IGNORED_STALE,)
    assert get(store, reservation()) is not None


def test_removed_reservation_leaves_no_tombstone(store):
    older = Put(StoredObject(reservation(), b"n", DIGEST, "1"), lifetime=HOUR)
    for there in (False, True):
        removed = store.apply(CLUSTER, [Remove(reservation(), up_to_version="9")])
        assert removed.outcomes == (WriteOutcome.DELETED if there else WriteOutcome.NOT_FOUND,)
        assert store.apply(CLUSTER, [older]).outcomes == (WriteOutcome.CREATED,)
