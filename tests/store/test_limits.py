"""What is refused before anything is written."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, follow_all, node, objects, pod, put
from topospread.errors import InvalidRequest, LimitExceeded
from topospread.store.model import (
    MAX_APPLY_BYTES,
    MAX_CHANGES,
    MAX_OBJECT_BYTES,
    Key,
    Kind,
    Put,
    Remove,
    Revision,
    StoredObject,
    Unchanged,
)


def test_the_most_changes_go_in_one_transaction(store):
    changes = [put(pod(f"p-{n}", f"ns-{n % 7}")) for n in range(MAX_CHANGES)]

    assert store.apply(CLUSTER, changes).revision.number == 1
    assert len(objects(store)) == MAX_CHANGES
    (transaction,) = follow_all(store)
    assert [entry.key for entry in transaction.entries] == [change.object.key for change in changes]
    removed = store.apply(
        CLUSTER, [Remove(change.object.key, up_to_version="9") for change in changes]
    )
    assert removed.revision.number == 2
    assert objects(store) == {}


def test_one_change_more_is_refused(store):
    changes = [put(pod(f"p-{n}")) for n in range(MAX_CHANGES + 1)]

    with pytest.raises(LimitExceeded, match="at most 500"):
        store.apply(CLUSTER, changes)
    assert store.clusters() == []


def test_the_biggest_object_is_taken_and_a_bigger_one_refused(store):
    store.apply(CLUSTER, [put(pod(), payload=b"x" * MAX_OBJECT_BYTES)])

    with pytest.raises(LimitExceeded, match="default/web-2"):
        store.apply(CLUSTER, [put(pod("web-2"), payload=b"x" * (MAX_OBJECT_BYTES + 1))])
    assert [len(stored.payload) for stored in objects(store).values()] == [MAX_OBJECT_BYTES]


def test_too_many_bytes_are_refused_together(store):
    piece = b"x" * (MAX_OBJECT_BYTES - 1)
    count = MAX_APPLY_BYTES // len(piece) + 1

    with pytest.raises(LimitExceeded, match="bytes in one apply"):
        store.apply(CLUSTER, [put(pod(f"p-{n}"), payload=piece) for n in range(count)])
    assert store.clusters() == []


WRONG_KEYS = [
    pod("nul\x00"),
    pod("line\nbreak"),
    pod("sla/sh"),
    pod("bl ank"),
    pod(""),
    pod("p" * 254),
    pod("ü"),
    pod("\ud800"),
    pod("web", "name/space"),
    pod("web", "nul\x00"),
    pod("web", ""),
    Key(Kind.NODE, "default", "node"),
    Key(Kind.SERVICE, "", "web"),
]
WRONG_VERSIONS = ["x", "1_0", "-1", "+1", "1.0", "01", " 1", "1\n", "\u0661", "1" * 256]
WRONG_UIDS = ["u" * 256, "u\x00", "ü", "a b"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        *((make(key), "cannot be stored") for key in WRONG_KEYS for make in (put, Remove)),
        *((put(pod(), version), "resourceVersion") for version in WRONG_VERSIONS),
        *((Remove(pod(), up_to_version=each), "resourceVersion") for each in WRONG_VERSIONS),
        *((put(pod(), uid=uid), "uid") for uid in WRONG_UIDS),
        *((Remove(pod(), uid=uid), "uid") for uid in WRONG_UIDS),
    ],
)
def test_words_that_cannot_be_stored_are_refused(store, change, text):
    with pytest.raises(InvalidRequest, match=text):
        store.apply(CLUSTER, [put(node()), change])
    assert objects(store) == {}


@pytest.mark.parametrize("digest", [b"", b"short", b"much too long"])
def test_a_digest_has_eight_bytes(store, digest):
    with pytest.raises(ValueError, match="8 bytes"):
        store.apply(CLUSTER, [Put(StoredObject(pod(), b"", digest))])


def test_a_key_given_twice_is_refused(store):
    with pytest.raises(InvalidRequest, match="twice"):
        store.apply(CLUSTER, [put(pod(), "1"), Remove(pod())])
    assert store.clusters() == []


@pytest.mark.parametrize(
    "name", ["", "Prod", "a_b", "-a", "a-", "a" * 64, "a.b", "a}b", "a\n", "*"]
)
def test_cluster_names_are_dns_labels(store, name):
    for call in (
        lambda: store.head(name),
        lambda: store.get(name, [pod()]),
        lambda: store.apply(name, [put(pod())]),
        lambda: store.drop(name),
        lambda: store.follow(name, "x", Revision(), wait=0),
        lambda: store.scan(name, Kind.POD),
        lambda: store.lease(name),
    ):
        with pytest.raises(InvalidRequest, match="DNS label"):
            call()


def test_a_negative_revision_is_refused(store):
    with pytest.raises(InvalidRequest, match="negative"):
        store.apply(CLUSTER, [], precondition=Unchanged(Revision(-1, "x"), ()))
