"""Deletions by key, uid and version, and the tombstones they leave."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, follow_all, get, node, objects, pod, put
from topospread.store.model import LogEntry, Remove, Revision, WriteOutcome


def test_a_deleted_object_is_gone_and_logged(store):
    store.apply(CLUSTER, [put(pod(), "5"), put(node())])
    applied = store.apply(CLUSTER, [Remove(pod())])

    assert applied.outcomes == (WriteOutcome.DELETED,)
    assert get(store, pod()) is None
    assert list(objects(store)) == [node()]
    assert follow_all(store)[-1].entries == (LogEntry(pod(), None, uid="uid-1", version="5"),)


def test_an_unknown_object_is_not_found_and_nothing_is_logged(store):
    before = store.apply(CLUSTER, [put(node())]).revision
    applied = store.apply(CLUSTER, [Remove(pod())])

    assert applied.outcomes == (WriteOutcome.NOT_FOUND,)
    assert applied.revision == before


def test_only_the_named_uid_is_deleted(store):
    store.apply(CLUSTER, [put(pod(), "5", uid="mine")])

    for other in ("other", "min", "mine2"):
        assert store.apply(CLUSTER, [Remove(pod(), uid=other)]).outcomes == (
            WriteOutcome.NOT_FOUND,
        )
    assert store.apply(CLUSTER, [Remove(pod(), uid="mine")]).outcomes == (WriteOutcome.DELETED,)


@pytest.mark.parametrize(
    ("stored", "up_to", "outcome"),
    [
        ("5", "5", WriteOutcome.DELETED),
        ("9", "10", WriteOutcome.DELETED),
        ("10", "9", WriteOutcome.IGNORED_STALE),
        (str(2**53 + 1), str(2**53), WriteOutcome.IGNORED_STALE),
        ("", "1", WriteOutcome.DELETED),
    ],
)
def test_newer_objects_survive_a_deletion_up_to_a_version(store, stored, up_to, outcome):
    store.apply(CLUSTER, [put(pod(), stored)])

    assert store.apply(CLUSTER, [Remove(pod(), up_to_version=up_to)]).outcomes == (outcome,)
    assert (get(store, pod()) is None) == (outcome is WriteOutcome.DELETED)


def test_force_deletes_newer_objects(store):
    store.apply(CLUSTER, [put(pod(), "10")])

    applied = store.apply(CLUSTER, [Remove(pod(), up_to_version="9")], force=True)

    assert applied.outcomes == (WriteOutcome.DELETED,)


def test_a_forced_deletion_leaves_a_tombstone_all_the_same(store):
    store.apply(CLUSTER, [put(pod(), "10"), put(node(), "10")])
    store.apply(
        CLUSTER,
        [Remove(pod(), up_to_version="9"), Remove(node(), up_to_version="10")],
        force=True,
    )

    for late in (put(pod(), "9"), put(node(), "10")):
        assert store.apply(CLUSTER, [late]).outcomes == (WriteOutcome.IGNORED_STALE,)
    newer = store.apply(CLUSTER, [put(pod(), "11"), put(node(), "11")])
    assert newer.outcomes == (WriteOutcome.CREATED, WriteOutcome.CREATED)


@pytest.mark.parametrize("existed", [True, False])
def test_a_write_older_than_the_deletion_comes_too_late(store, existed):
    store.apply(CLUSTER, [put(pod(), "5") if existed else put(node())])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])

    for late in ("9", "10"):
        assert store.apply(CLUSTER, [put(pod(), late)]).outcomes == (WriteOutcome.IGNORED_STALE,)
    assert store.apply(CLUSTER, [put(pod(), "11")]).outcomes == (WriteOutcome.CREATED,)


def test_a_tombstone_yields_to_force_and_to_writes_without_version(store):
    store.apply(CLUSTER, [put(node()), put(node("m"))])
    store.apply(
        CLUSTER, [Remove(pod("a"), up_to_version="10"), Remove(pod("b"), up_to_version="9")]
    )

    assert store.apply(CLUSTER, [put(pod("a"), "1")], force=True).outcomes == (
        WriteOutcome.CREATED,
    )
    assert store.apply(CLUSTER, [put(pod("b"))]).outcomes == (WriteOutcome.CREATED,)


def test_a_tombstone_ends_when_the_object_is_back(store):
    store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])
    store.apply(CLUSTER, [put(pod(), "20")])
    store.apply(CLUSTER, [Remove(pod())])

    assert store.apply(CLUSTER, [put(pod(), "7")]).outcomes == (WriteOutcome.CREATED,)


def test_without_a_version_no_tombstone_is_left(store):
    store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [Remove(pod())])

    assert store.apply(CLUSTER, [put(pod(), "5")]).outcomes == (WriteOutcome.CREATED,)


def test_the_highest_deletion_counts(store):
    store.apply(CLUSTER, [put(node())])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="9")])

    assert store.apply(CLUSTER, [put(pod(), "10")]).outcomes == (WriteOutcome.IGNORED_STALE,)


def test_an_object_of_another_uid_leaves_no_tombstone(store):
    store.apply(CLUSTER, [put(pod(), "5", uid="mine")])
    store.apply(CLUSTER, [Remove(pod(), uid="other", up_to_version="10")])
    store.apply(CLUSTER, [Remove(pod())])

    assert store.apply(CLUSTER, [put(pod(), "7")]).outcomes == (WriteOutcome.CREATED,)


def test_tombstones_end_with_their_time(open_store):
    store = open_store(tombstone_seconds=0)
    store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])

    assert store.apply(CLUSTER, [put(pod(), "7")]).outcomes == (WriteOutcome.CREATED,)


def test_oldest_tombstones_go_first(open_store):
    store = open_store(tombstone_limit=2)
    store.apply(CLUSTER, [put(node())])
    for name in ("a", "b", "c"):
        store.apply(CLUSTER, [Remove(pod(name), up_to_version="10")])

    outcomes = store.apply(CLUSTER, [put(pod(name), "7") for name in ("a", "b", "c")]).outcomes

    assert outcomes == (
        WriteOutcome.CREATED,
        WriteOutcome.IGNORED_STALE,
        WriteOutcome.IGNORED_STALE,
    )


def test_a_deletion_that_only_leaves_a_tombstone_is_no_transaction(store):
    before = store.apply(CLUSTER, [put(node())]).revision
    applied = store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])

    assert applied.revision == applied.previous == before


def test_deleting_in_an_unknown_cluster_changes_nothing(store):
    applied = store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])

    assert applied.outcomes == (WriteOutcome.NOT_FOUND,)
    assert applied.revision == Revision()
    assert store.clusters() == []
    assert store.apply(CLUSTER, [put(pod(), "7")]).outcomes == (WriteOutcome.CREATED,)
