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


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (bound(), WriteOutcome.CREATED),
        (bound(uid=""), WriteOutcome.CREATED),
        (Remove(pod()), WriteOutcome.NOT_FOUND),
        (Remove(pod(), uid="uid-1"), WriteOutcome.NOT_FOUND),
        (Remove(pod(), up_to_version="5"), WriteOutcome.NOT_FOUND),
    ],
)
def test_reservation_ends_with_its_pod_in_one_transaction(store, change, outcome):
    reserved = store.apply(CLUSTER, [reserve(), reserve(reservation("other"))])

    applied = store.apply(CLUSTER, [change])

    assert applied.outcomes == (outcome,)
    assert applied.ended == (reservation(),)
    assert applied.revision.number == reserved.revision.number + 1
    assert set(objects(store)) >= {reservation("other")}
    assert reservation() not in objects(store)
    seen = entries(store, reserved.revision)
    assert seen[-1] == ("RESERVATION", "web-1", False)
    assert len(seen) == (2 if outcome is WriteOutcome.CREATED else 1)


def test_a_reservation_without_a_uid_is_for_any_pod_of_its_name(store):
    store.apply(CLUSTER, [reserve(uid="")])

    assert store.apply(CLUSTER, [bound(uid="uid-9")]).ended == (reservation(),)


@pytest.mark.parametrize(
    "change",
    [put(pod()), bound(uid="uid-9"), Remove(pod(), uid="uid-9"), bound(pod("web-1", "elsewhere"))],
)
def test_reservation_outlives_pending_pods_and_pods_of_another_uid_or_namespace(store, change):
    store.apply(CLUSTER, [reserve()])

    assert store.apply(CLUSTER, [change]).ended == ()
    assert reservation() in objects(store)


def test_a_removed_pods_own_uid_decides_when_the_caller_names_none(store):
    store.apply(CLUSTER, [put(pod(), uid="uid-old")])
    store.apply(CLUSTER, [reserve(uid="uid-new")])

    assert store.apply(CLUSTER, [Remove(pod())]).ended == ()
    store.apply(CLUSTER, [put(pod(), uid="uid-new")])
    assert store.apply(CLUSTER, [Remove(pod())]).ended == (reservation(),)


def test_stale_news_of_a_pod_do_not_end_it(store):
    store.apply(CLUSTER, [put(pod(), "9")])
    store.apply(CLUSTER, [reserve()])

    assert store.apply(CLUSTER, [bound(version="5")]).outcomes == (WriteOutcome.IGNORED_STALE,)
    removed = store.apply(CLUSTER, [Remove(pod(), up_to_version="5")])
    assert removed.outcomes == (WriteOutcome.IGNORED_STALE,)
    assert reservation() in objects(store)


def test_a_bound_pod_that_is_written_again_ends_it_all_the_same(store):
    store.apply(CLUSTER, [bound()])
    store.apply(CLUSTER, [reserve()])

    applied = store.apply(CLUSTER, [bound()])

    assert applied.outcomes == (WriteOutcome.UNCHANGED,)
    assert applied.ended == (reservation(),)


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
