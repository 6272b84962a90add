"""What becomes of writes: created, updated, unchanged, stale, forced; relevant or not."""

from __future__ import annotations

import pytest

from tests.store.backends import (
    CLUSTER,
    DIGEST,
    OTHER_DIGEST,
    existing,
    follow_all,
    get,
    node,
    objects,
    pod,
    put,
)
from topospread.store.model import Key, Kind, Revision, Unchanged, WriteOutcome

HUGE = 2**53


def test_a_new_object_is_created_and_found(store):
    applied = store.apply(CLUSTER, [put(pod(), "5")])

    assert applied.outcomes == (WriteOutcome.CREATED,)
    assert applied.previous == Revision()
    assert applied.revision.number == 1
    assert applied.revision.tag
    assert get(store, pod()) == put(pod(), "5").object
    assert store.head(CLUSTER).revision == applied.revision


def test_a_newer_version_updates(store):
    first = store.apply(CLUSTER, [put(pod(), "5")])
    second = store.apply(CLUSTER, [put(pod(), "6", b"other", OTHER_DIGEST)])

    assert second.outcomes == (WriteOutcome.UPDATED,)
    assert second.previous == first.revision
    assert second.revision.number == 2
    assert existing(store, pod()).payload == b"other"


def test_identical_bytes_are_not_written(store):
    first = store.apply(CLUSTER, [put(pod(), "5")])
    again = store.apply(CLUSTER, [put(pod(), "5")])

    assert again.outcomes == (WriteOutcome.UNCHANGED,)
    assert again.revision == again.previous == first.revision
    assert len(follow_all(store)) == 1


def test_the_same_version_with_other_bytes_is_written(store):
    store.apply(CLUSTER, [put(pod(), "5")])

    assert store.apply(CLUSTER, [put(pod(), "5", b"other")]).outcomes == (WriteOutcome.UPDATED,)
    assert existing(store, pod()).payload == b"other"


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ("5", "4"),
        ("10", "9"),
        (str(HUGE + 1), str(HUGE)),
        (str(2**64), str(2**64 - 1)),
        ("1" + "0" * 200, "9" * 200),
    ],
)
def test_an_older_version_is_ignored_and_force_writes_it(store, stored, sent):
    store.apply(CLUSTER, [put(pod(), stored)])

    late = store.apply(CLUSTER, [put(pod(), sent, b"late")])
    assert late.outcomes == (WriteOutcome.IGNORED_STALE,)
    assert late.revision == late.previous
    assert existing(store, pod()).resource_version == stored

    forced = store.apply(CLUSTER, [put(pod(), sent, b"late")], force=True)
    assert forced.outcomes == (WriteOutcome.UPDATED,)
    assert existing(store, pod()).resource_version == sent


@pytest.mark.parametrize(
    ("stored", "sent"),
    [("9", "10"), (str(HUGE), str(HUGE + 1)), ("9" * 200, "1" + "0" * 200), ("0", "1")],
)
def test_versions_are_numbers_of_any_length(store, stored, sent):
    store.apply(CLUSTER, [put(pod(), stored)])

    assert store.apply(CLUSTER, [put(pod(), sent)]).outcomes == (WriteOutcome.UPDATED,)


@pytest.mark.parametrize(("stored", "sent"), [("", "1"), ("7", ""), ("", "")])
def test_without_a_version_a_write_is_always_applied(store, stored, sent):
    store.apply(CLUSTER, [put(pod(), stored)])

    assert store.apply(CLUSTER, [put(pod(), sent, b"new")]).outcomes == (WriteOutcome.UPDATED,)
    assert existing(store, pod()).resource_version == sent


def test_versions_are_compared_for_one_key_only(store):
    store.apply(CLUSTER, [put(pod("a"), "100")])

    applied = store.apply(CLUSTER, [put(pod("b"), "1"), put(node(), "2")])

    assert applied.outcomes == (WriteOutcome.CREATED, WriteOutcome.CREATED)


def test_the_same_digest_is_logged_but_not_relevant(store):
    first = store.apply(CLUSTER, [put(pod(), "5")])
    applied = store.apply(CLUSTER, [put(pod(), "6", b"ready flipped")])

    assert applied.outcomes == (WriteOutcome.UPDATED,)
    (entry,) = follow_all(store, after=first.revision)[0].entries
    assert entry.object == put(pod(), "6", b"ready flipped").object
    assert not entry.relevant
    unchanged = Unchanged(first.revision, ("default",))
    assert store.apply(CLUSTER, [put(pod("other"))], precondition=unchanged)


def test_another_digest_is_relevant(store):
    first = store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [put(pod(), "6", digest=OTHER_DIGEST)])

    (entry,) = follow_all(store, after=first.revision)[0].entries
    assert entry.relevant


def test_outcomes_come_in_the_order_of_the_changes(store):
    store.apply(CLUSTER, [put(pod("old"), "9"), put(node("n"), "1")])

    applied = store.apply(
        CLUSTER,
        [
            put(node("m")),
            put(pod("old"), "8"),
            put(node("n"), "1"),
            put(pod("new")),
            put(node("n2")),
        ],
    )

    assert applied.outcomes == (
        WriteOutcome.CREATED,
        WriteOutcome.IGNORED_STALE,
        WriteOutcome.UNCHANGED,
        WriteOutcome.CREATED,
        WriteOutcome.CREATED,
    )
    logged = [entry.key for entry in follow_all(store)[-1].entries]
    assert logged == [node("m"), pod("new"), node("n2")]


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_kept_apart(store, kind):
    namespace = "" if kind in (Kind.NODE, Kind.PROGRESS) else "default"
    key = Key(kind, namespace, "same-name")
    store.apply(CLUSTER, [put(pod("same-name"), payload=b"pod"), put(node("same-name"))])
    applied = store.apply(CLUSTER, [put(key, payload=b"mine")])

    assert existing(store, key).payload == b"mine"
    assert follow_all(store)[-1].entries[0].key == key
    assert objects(store)[key].payload == b"mine"
    expected = WriteOutcome.UPDATED if kind in (Kind.NODE, Kind.POD) else WriteOutcome.CREATED
    assert applied.outcomes == (expected,)


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", bytes(range(256)) * 5, b"\r\n$-1\r\n", "ünï".encode(), b"x" * 200_000]
)
def test_payloads_are_any_bytes(store, payload):
    stored = put(pod(), "3", payload, bytes(range(248, 256))).object
    store.apply(CLUSTER, [put(pod(), "3", payload, bytes(range(248, 256)))])

    assert get(store, pod()) == stored
    assert objects(store)[pod()] == stored
    assert follow_all(store)[0].entries[0].object == stored


def test_long_versions_and_uids_come_back(store):
    change = put(pod("p" * 253, "n" * 253), "1" * 255, uid="u" * 255)
    store.apply(CLUSTER, [change])

    assert get(store, change.object.key) == change.object
    assert objects(store) == {change.object.key: change.object}


def test_a_value_that_cannot_be_read_is_replaced(store, backend):
    store.apply(CLUSTER, [put(pod(), "9", digest=DIGEST)])
    backend.overwrite(store, CLUSTER, pod(), b"\x07damaged")

    applied = store.apply(CLUSTER, [put(pod(), "1")])

    assert applied.outcomes == (WriteOutcome.UPDATED,)
    assert follow_all(store)[-1].entries[0].relevant
    assert existing(store, pod()).resource_version == "1"
