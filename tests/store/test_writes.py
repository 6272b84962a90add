"""What becomes of writes: created, updated, unchanged, stale, deleted; relevant or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    replay,
)
from topospread.store.model import (
    Key,
    Kind,
    Listed,
    Put,
    Remove,
    Revision,
    Unchanged,
    WriteOutcome,
)

if TYPE_CHECKING:
    from topospread.store.model import Change, StoredObject

CREATED, UPDATED, UNCHANGED = WriteOutcome.CREATED, WriteOutcome.UPDATED, WriteOutcome.UNCHANGED
STALE, DELETED, NOT_FOUND = (
    WriteOutcome.IGNORED_STALE,
    WriteOutcome.DELETED,
    WriteOutcome.NOT_FOUND,
)
WRITTEN = (CREATED, UPDATED)
HUGE = 2**53


class Step(NamedTuple):
    """One write: its changes, each with its outcome."""

    changes: list[tuple[Change, WriteOutcome]]
    force: bool = False


def one(change: Change, outcome: WriteOutcome, *, force: bool = False) -> Step:
    return Step([(change, outcome)], force)


def buried(*versions: str) -> list[Step]:
    """A cluster in which the pod that is not there was deleted at these versions."""
    deleted = [one(Remove(pod(), up_to_version=version), NOT_FOUND) for version in versions]
    return [one(put(node()), CREATED), *deleted]


SERVICE = Key(Kind.SERVICE, "default", "web")

CASES: dict[str, list[Step]] = {
    "identical bytes": [one(put(pod(), "5"), CREATED), one(put(pod(), "5"), UNCHANGED)],
    "the same version with other bytes": [
        one(put(pod(), "5"), CREATED),
        one(put(pod(), "5", b"other"), UPDATED),
    ],
    "another kind": [
        one(put(SERVICE, "5"), CREATED),
        one(put(SERVICE, "6", b"other"), UPDATED),
        one(Remove(SERVICE), DELETED),
    ],
    "versions of other keys": [
        one(put(pod("a"), "100"), CREATED),
        Step([(put(pod("b"), "1"), CREATED), (put(node(), "2"), CREATED)]),
    ],
    "several changes": [
        Step([(put(pod("old"), "9"), CREATED), (put(node("n"), "1"), CREATED)]),
        Step(
            [
                (put(node("m")), CREATED),
                (put(pod("old"), "8"), STALE),
                (put(node("n"), "1"), UNCHANGED),
                (put(pod("new")), CREATED),
                (Remove(pod("none")), NOT_FOUND),
                (put(node("n2")), CREATED),
            ]
        ),
    ],
    "deleted": [
        Step([(put(pod(), "5"), CREATED), (put(node()), CREATED)]),
        one(Remove(pod()), DELETED),
    ],
    "only the named uid is deleted": [
        one(put(pod(), "5", uid="mine"), CREATED),
        *(one(Remove(pod(), uid=other), NOT_FOUND) for other in ("other", "min", "mine2")),
        one(Remove(pod(), uid="mine"), DELETED),
    ],
    "force deletes newer ones and leaves a tombstone": [
        Step([(put(pod(), "10"), CREATED), (put(node(), "10"), CREATED)]),
        Step(
            [
                (Remove(pod(), up_to_version="9"), DELETED),
                (Remove(node(), up_to_version="10"), DELETED),
            ],
            force=True,
        ),
        Step([(put(pod(), "9"), STALE), (put(node(), "10"), STALE)]),
        Step([(put(pod(), "11"), CREATED), (put(node(), "11"), CREATED)]),
    ],
    "a write that is older than the deletion": [
        one(put(pod(), "5"), CREATED),
        one(Remove(pod(), up_to_version="10"), DELETED),
        one(put(pod(), "9"), STALE),
        one(put(pod(), "10"), STALE),
        one(put(pod(), "11"), CREATED),
    ],
    "a write that is older than the deletion of nothing": [
        *buried("10"),
        one(put(pod(), "9"), STALE),
        one(put(pod(), "10"), STALE),
        one(put(pod(), "11"), CREATED),
    ],
    "a tombstone yields to force": [
        *buried("10"),
        one(put(pod(), "1"), CREATED, force=True),
    ],
    "a tombstone yields to a write without a version": [
        *buried("10"),
        one(put(pod()), CREATED),
    ],
    "a tombstone ends when the object is back": [
        *buried("10"),
        one(put(pod(), "20"), CREATED),
        one(Remove(pod()), DELETED),
        one(put(pod(), "7"), CREATED),
    ],
    "without a version no tombstone is left": [
        one(put(pod(), "5"), CREATED),
        one(Remove(pod()), DELETED),
        one(put(pod(), "5"), CREATED),
    ],
    "the highest deletion counts": [*buried("10", "9"), one(put(pod(), "10"), STALE)],
    "an object of another uid leaves no tombstone": [
        one(put(pod(), "5", uid="mine"), CREATED),
        one(Remove(pod(), uid="other", up_to_version="10"), NOT_FOUND),
        one(Remove(pod()), DELETED),
        one(put(pod(), "7"), CREATED),
    ],
    "a deletion in an unknown cluster": [
        one(Remove(pod(), up_to_version="10"), NOT_FOUND),
        one(put(pod(), "7"), CREATED),
    ],
    # Versions are numbers of any length.
    **{
        f"{sent[:20]} after {stored[:20]} of {len(stored)} digits": [
            one(put(pod(), stored), CREATED),
            one(put(pod(), sent, b"new", OTHER_DIGEST), UPDATED),
        ]
        for stored, sent in [
            ("5", "6"),
            ("9", "10"),
            ("0", "1"),
            (str(HUGE), str(HUGE + 1)),
            ("9" * 200, "1" + "0" * 200),
            # Without a version a write is always applied.
            ("", "1"),
            ("7", ""),
            ("", ""),
        ]
    },
    **{
        f"{sent[:20]} too late for {stored[:20]} of {len(stored)} digits": [
            one(put(pod(), stored), CREATED),
            one(put(pod(), sent, b"late"), STALE),
            one(put(pod(), sent, b"late"), UPDATED, force=True),
        ]
        for stored, sent in [
            ("5", "4"),
            ("10", "9"),
            (str(HUGE + 1), str(HUGE)),
            (str(2**64), str(2**64 - 1)),
            ("1" + "0" * 200, "9" * 200),
        ]
    },
    **{
        f"{stored} deleted up to {up_to}": [
            one(put(pod(), stored), CREATED),
            one(Remove(pod(), up_to_version=up_to), outcome),
        ]
        for stored, up_to, outcome in [
            ("5", "5", DELETED),
            ("9", "10", DELETED),
            ("", "1", DELETED),
            ("10", "9", STALE),
            (str(HUGE + 1), str(HUGE), STALE),
        ]
    },
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_outcomes(store, steps):
    """What is stored and logged follows from them."""
    there: dict[Key, StoredObject] = {}
    head = Revision()
    for changes, force in steps:
        applied = store.apply(CLUSTER, [change for change, _ in changes], force=force)

        assert applied.outcomes == tuple(outcome for _, outcome in changes)
        effective = [change for change, outcome in changes if outcome in (*WRITTEN, DELETED)]
        for change in effective:
            if isinstance(change, Put):
                there[change.key] = change.object
            else:
                del there[change.key]
        assert applied.previous == head
        assert applied.revision.number == head.number + bool(effective)
        head = applied.revision
        assert bool(applied.identity) == (head.number > 0)
        assert store.head(CLUSTER).revision == head
        assert objects(store) == there
        if effective:
            log = follow_all(store)
            assert [entry.key for entry in log[-1].entries] == [each.key for each in effective]
            assert replay({}, log) == there
    assert store.clusters() == ([CLUSTER] if head.number else [])


def test_the_same_digest_is_logged_but_not_relevant(store):
    first = store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [put(pod(), "6", b"ready flipped")])
    store.apply(CLUSTER, [put(pod("other"))], precondition=Unchanged(first.revision, ("default",)))
    store.apply(CLUSTER, [put(pod(), "7", digest=OTHER_DIGEST)])

    same, _, other = [each.entries[0] for each in follow_all(store, after=first.revision)]
    assert same.object == put(pod(), "6", b"ready flipped").object
    assert (same.relevant, other.relevant) == (False, True)


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", bytes(range(256)) * 5, b"\r\n$-1\r\n", "ünï".encode(), b"x" * 200_000]
)
def test_payloads_are_any_bytes(store, payload):
    change = put(pod(), "3", payload, bytes(range(248, 256)))
    store.apply(CLUSTER, [change])

    assert get(store, pod()) == change.object
    assert objects(store)[pod()] == change.object
    assert follow_all(store)[0].entries[0].object == change.object


def test_long_versions_and_uids_come_back(store):
    change = put(pod("p" * 253, "n" * 253), "1" * 255, uid="u" * 255)
    store.apply(CLUSTER, [change])

    assert get(store, change.object.key) == change.object
    assert objects(store) == {change.object.key: change.object}


def test_a_value_that_cannot_be_read_is_replaced(store, backend):
    store.apply(CLUSTER, [put(pod(), "9", digest=DIGEST)])
    backend.overwrite(store, CLUSTER, pod(), b"\x07damaged")

    applied = store.apply(CLUSTER, [put(pod(), "1")])

    assert applied.outcomes == (UPDATED,)
    assert follow_all(store)[-1].entries[0].relevant
    assert existing(store, pod()).resource_version == "1"


# ------------------------------ tombstones


def test_tombstones_end_with_their_time(open_store):
    store = open_store(tombstone_seconds=0)
    store.apply(CLUSTER, [put(pod(), "5")])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])

    assert store.apply(CLUSTER, [put(pod(), "7")]).outcomes == (CREATED,)


def test_a_list_forgets_the_tombstones_of_its_kind_that_are_newer(store):
    """They are of another history of the API server, or the watch that goes on makes them again."""
    service = Key(Kind.SERVICE, "default", "web")
    graves = [Remove(pod(f"p-{upto}"), up_to_version=str(upto)) for upto in (9, 40, 41, 100)]
    store.apply(CLUSTER, [put(node()), *graves, Remove(service, up_to_version="100")])

    store.apply(CLUSTER, [], listed=Listed(Kind.POD, frozenset({Kind.POD}), "40"))

    late = [put(change.key, "5") for change in graves]
    outcomes = store.apply(CLUSTER, [*late, put(service, "5")]).outcomes
    assert outcomes == (STALE, STALE, CREATED, CREATED, STALE)


def test_a_list_without_a_version_forgets_no_tombstone(store):
    store.apply(CLUSTER, [put(node()), Remove(pod(), up_to_version="9")])
    store.apply(CLUSTER, [], listed=Listed(Kind.POD, frozenset({Kind.POD})))
    assert store.apply(CLUSTER, [put(pod(), "5")]).outcomes == (STALE,)


def test_oldest_tombstones_go_first(open_store):
    store = open_store(tombstone_limit=2)
    store.apply(CLUSTER, [put(node())])
    for name in ("a", "b", "c"):
        store.apply(CLUSTER, [Remove(pod(name), up_to_version="10")])

    outcomes = store.apply(CLUSTER, [put(pod(name), "7") for name in ("a", "b", "c")]).outcomes

    assert outcomes == (CREATED, STALE, STALE)
