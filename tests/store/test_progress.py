"""How far the API server was read: kept by kind, in the transaction of what was read."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, end_due, follow_all, node, objects, pod, put, scanned
from topospread.errors import TooLarge
from topospread.store.model import MAX_CHANGES, Key, Kind, Put, Remove, Unchanged, WriteOutcome
from topospread.store.values import (
    OBSERVABLE,
    kind_of_progress,
    listed,
    observed_version,
    progress,
)


def observed(store, cluster=CLUSTER):
    found = (
        observed_version(each)
        for key, each in objects(store, cluster).items()
        if key.kind is PROGRESS
    )
    return dict(each for each in found if each is not None)


PROGRESS = Kind.PROGRESS


def test_progress_is_written_in_the_transaction_of_the_objects(store):
    """Seen before what was read, a reader would take the state for newer than it is."""
    store.apply(CLUSTER, [put(pod(), "7"), *progress({Kind.POD: "7", Kind.NODE: "5"})])
    (transaction,) = follow_all(store)
    assert [entry.key.kind for entry in transaction.entries] == [Kind.POD, PROGRESS, PROGRESS]
    assert observed(store) == {Kind.POD: "7", Kind.NODE: "5"}


def test_the_highest_number_stays_unless_it_is_forced(store):
    for version in ("9", "10", "9", "1" * 255, "10"):
        store.apply(CLUSTER, progress({Kind.POD: version}))
    assert observed(store) == {Kind.POD: "1" * 255}
    store.apply(CLUSTER, progress({Kind.POD: "10"}), force=True)
    assert observed(store) == {Kind.POD: "10"}


def test_progress_conflicts_with_no_precondition(store):
    """Each heartbeat would be a conflict for whoever holds a node."""
    store.apply(CLUSTER, [put(pod()), put(node()), *progress({Kind.POD: "1"})])
    revision = store.head(CLUSTER).revision
    for version in ("2", "3"):
        store.apply(CLUSTER, progress({Kind.POD: version, Kind.NODE: version}))
    unchanged = Unchanged(revision, ("default", "nodes/"))
    assert store.apply(CLUSTER, [put(pod("b"))], precondition=unchanged).outcomes == (
        WriteOutcome.CREATED,
    )


def test_progress_is_no_object_of_the_cluster(store):
    everything = dict.fromkeys(OBSERVABLE, "1")
    store.apply(CLUSTER, [put(pod()), put(node()), *progress(everything)])
    for kind in OBSERVABLE:
        assert {each.key.kind for each in scanned(store, kind)} <= {kind}
    assert store.drop(CLUSTER) == 2
    assert observed(store) == {}


def test_progress_does_not_count_towards_the_limit_of_changes(store):
    everything = progress(dict.fromkeys(OBSERVABLE, "1"))
    full = [put(pod(f"p-{n}")) for n in range(MAX_CHANGES)]
    assert len(store.apply(CLUSTER, [*full, *everything]).outcomes) == len(full) + len(everything)
    with pytest.raises(TooLarge):
        store.apply(CLUSTER, [*full, put(pod("more")), *everything])


def test_progress_of_unknown_kinds_is_ignored():
    stored = progress({Kind.POD: "7"})[0].object
    for name in ("7", "8", "99", "pod", ""):
        other = Put(type(stored)(Key(PROGRESS, "", name), b"", stored.digest, "7"))
        assert observed_version(other.object) is None
        assert kind_of_progress(other.object) is None


def test_whether_a_kind_is_read_is_kept_with_the_version_that_was_read(store):
    def reported() -> tuple[Kind, str] | None:
        return kind_of_progress(store.scan(CLUSTER, PROGRESS).objects[0])

    store.apply(CLUSTER, [listed(Kind.CSI_NODE, version="9")])
    assert (reported(), observed(store)) == ((Kind.CSI_NODE, ""), {Kind.CSI_NODE: "9"})
    store.apply(CLUSTER, [listed(Kind.CSI_NODE, "no right to list csinodes")])
    assert (reported(), observed(store)) == ((Kind.CSI_NODE, "no right to list csinodes"), {})
    store.apply(CLUSTER, [listed(Kind.CSI_NODE, version="3")])
    assert (reported(), observed(store)) == ((Kind.CSI_NODE, ""), {Kind.CSI_NODE: "3"})


@pytest.mark.parametrize("version", ["", "17"])
def test_a_deletion_is_logged_with_what_it_deleted(store, version):
    store.apply(CLUSTER, [put(pod(), version, uid="u-1"), put(node(), version, uid="")])
    store.apply(CLUSTER, [Remove(pod()), Remove(node())])
    entries = follow_all(store)[-1].entries
    assert [(entry.object, entry.uid, entry.version) for entry in entries] == [
        (None, "u-1", version),
        (None, "", version),
    ]


def test_reservations_that_end_are_logged_with_their_pods_uid(store):
    """With their pods, by themselves, and when somebody gives them back."""
    held = [Key(Kind.RESERVATION, "default", name) for name in ("bound", "due", "given-back")]
    puts = [put(key, "5", uid=f"u-{key.name}").object for key in held]
    store.apply(CLUSTER, [Put(puts[0], lifetime=60_000), Put(puts[2], lifetime=60_000)])
    bound = put(pod("bound"), uid="u-bound").object
    store.apply(CLUSTER, [Put(bound, ends_reservation=True)])
    store.apply(CLUSTER, [Remove(held[2])])
    store.apply(CLUSTER, [Put(puts[1], lifetime=1)])
    ended: dict[Key, tuple[str, str]] = {}
    while len(ended) < 3:
        end_due(store)
        ended = {
            entry.key: (entry.uid, entry.version)
            for transaction in follow_all(store)
            for entry in transaction.entries
            if entry.object is None
        }
    assert ended == {key: (f"u-{key.name}", "5") for key in held}
