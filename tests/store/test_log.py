"""Following the log: order, chain, waiting, and the errors on which a follower rebuilds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.store.backends import (
    CLUSTER,
    follow_all,
    node,
    objects,
    oldest,
    pod,
    put,
    write_many,
)
from topospread.errors import (
    IdentityChanged,
    RevisionCompacted,
    RevisionUnavailable,
    StoreUnavailable,
)
from topospread.store.model import Kind, Revision, Unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

LONG = 60.0
"""Seconds that a follow may wait where a test ends it earlier."""


@contextmanager
def following(store, after, identity=None) -> Iterator[Future]:
    """A follow that runs in another thread."""
    wanted = store.head(CLUSTER).identity if identity is None else identity
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(store.follow, CLUSTER, wanted, after, wait=LONG)


def test_the_log_is_a_chain_from_the_beginning(store):
    revisions = write_many(store, 30)

    found = follow_all(store)

    assert [transaction.revision for transaction in found] == revisions
    assert [revision.number for revision in revisions] == list(range(1, 31))
    tags = ["", *(revision.tag for revision in revisions)]
    assert [transaction.previous_tag for transaction in found] == tags[:-1]
    assert len(set(tags)) == 31


def test_following_goes_on_from_the_middle(store):
    revisions = write_many(store, 10)

    found = follow_all(store, after=revisions[6])

    assert [transaction.revision for transaction in found] == revisions[7:]


@pytest.mark.parametrize("limit", [1, 7, 64, 1000])
def test_batches_hold_whole_transactions(store, limit):
    for first in range(0, 300, 30):
        store.apply(CLUSTER, [put(pod(f"p-{n}")) for n in range(first, first + 30)])
    write_many(store, 150, namespace="singles")
    identity = store.head(CLUSTER).identity

    sizes, at = [], Revision()
    while batch := store.follow(CLUSTER, identity, at, wait=0, limit=limit):
        sizes.append([len(transaction.entries) for transaction in batch])
        at = batch[-1].revision

    assert [size for sizes_of in sizes for size in sizes_of] == [30] * 10 + [1] * 150
    assert all(sum(sizes_of[:-1]) < limit for sizes_of in sizes)
    assert at == store.head(CLUSTER).revision


def test_a_write_ends_the_wait(store):
    head = write_many(store, 3)[-1]

    with following(store, head) as waiting:
        applied = store.apply(CLUSTER, [put(pod("news"))])

        (transaction,) = waiting.result(LONG)
        assert transaction.revision == applied.revision


def test_a_write_of_another_server_ends_the_wait(store, other_store):
    head = write_many(store, 3)[-1]

    with following(store, head) as waiting:
        applied = other_store.apply(CLUSTER, [put(pod("news"))])

        (transaction,) = waiting.result(LONG)
        assert transaction.revision == applied.revision


def test_writes_one_by_one_reach_a_follower_that_waits(store):
    at = write_many(store, 1)[-1]
    seen = []

    for number in range(20):
        with following(store, at) as waiting:
            store.apply(CLUSTER, [put(pod(f"news-{number}"))])
            seen += waiting.result(LONG)
            at = seen[-1].revision

    assert [entry.key.name for transaction in seen for entry in transaction.entries] == [
        f"news-{number}" for number in range(20)
    ]


def test_the_wait_ends_by_itself(store):
    head = write_many(store, 1)[-1]
    identity = store.head(CLUSTER).identity

    for _ in range(3):
        assert not store.follow(CLUSTER, identity, head, wait=0.005)
    news = store.apply(CLUSTER, [put(pod("news"))]).revision
    assert [found.revision for found in follow_all(store, after=head)] == [news]


def test_a_wake_ends_the_wait_and_costs_no_news(store):
    head = write_many(store, 1)[-1]

    for _ in range(3):
        with following(store, head) as waiting:
            store.wake(CLUSTER)
            assert not waiting.result(LONG)
    with following(store, head) as waiting:
        news = store.apply(CLUSTER, [put(pod("news"))]).revision
        assert [found.revision for found in waiting.result(LONG)] == [news]


def test_wake_without_a_waiter_ends_the_next_wait(store):
    head = write_many(store, 1)[-1]
    store.wake(CLUSTER)

    with following(store, head) as waiting:
        assert not waiting.result(LONG)


def test_a_wake_of_another_cluster_does_not_end_the_wait(store):
    head = write_many(store, 1)[-1]

    with following(store, head) as waiting:
        store.wake("other")
        news = store.apply(CLUSTER, [put(pod("news"))]).revision

        assert [found.revision for found in waiting.result(LONG)] == [news]


def test_every_follower_of_a_cluster_is_woken_and_served(store):
    head = write_many(store, 1)[-1]

    with following(store, head) as one, following(store, head) as two:
        news = store.apply(CLUSTER, [put(pod("news"))]).revision

        assert one.result(LONG)[0].revision == two.result(LONG)[0].revision == news


def test_closing_ends_the_wait_and_refuses_later_calls(store):
    head = write_many(store, 1)[-1]
    identity = store.head(CLUSTER).identity
    assert not store.follow(CLUSTER, identity, head, wait=0.001)

    store.close()

    for call in (
        lambda: store.follow(CLUSTER, identity, head, wait=LONG),
        lambda: store.head(CLUSTER),
        lambda: store.apply(CLUSTER, [put(pod())]),
        lambda: store.scan(CLUSTER, Kind.POD),
        store.ping,
        store.clusters,
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()
    store.wake(CLUSTER)
    store.close()


def test_trimmed_log_is_detected(open_store):
    store = open_store(log_limit=10)
    revisions = [Revision(), *write_many(store, 50)]
    identity, first = store.head(CLUSTER).identity, oldest(store, revisions)

    assert 10 <= len(revisions) - 1 - first < 20
    for lost in revisions[:first]:
        check_refused(store, lost, "trimmed")
        with pytest.raises(RevisionCompacted) as refused:
            store.follow(CLUSTER, identity, lost, wait=0)
        assert refused.value.oldest == (first, revisions[first].tag)
    found = follow_all(store, after=revisions[first])
    assert [transaction.revision for transaction in found] == revisions[first + 1 :]
    store.apply(CLUSTER, [put(node())], precondition=Unchanged(revisions[first], ("nodes/",)))


def test_the_log_keeps_changes_not_transactions(open_store):
    store = open_store(log_limit=100)
    revisions = [
        store.apply(CLUSTER, [put(pod(f"p-{n}")) for n in range(first, first + 50)]).revision
        for first in range(0, 1000, 50)
    ]

    assert revisions[-1].number == 20
    assert oldest(store, revisions) == 18
    assert len(objects(store)) == 1000


def check_refused(store, revision: Revision, text: str = "another history") -> None:
    """A revision that is none of the log's is refused by a wait, a look and a write."""
    identity = store.head(CLUSTER).identity
    change = put(pod("refused"))
    for call in (
        lambda: store.follow(CLUSTER, identity, revision, wait=LONG),
        lambda: store.follow(CLUSTER, identity, revision, wait=0, limit=0),
        lambda: store.apply(CLUSTER, [change], precondition=Unchanged(revision, ("default",))),
        lambda: store.apply(CLUSTER, [change], precondition=Unchanged(revision, ())),
    ):
        with pytest.raises(RevisionUnavailable, match=text):
            call()
    assert change.key not in objects(store)


def test_another_tag_or_a_revision_to_come_is_another_history(store):
    revisions = write_many(store, 5)
    head = revisions[-1]

    for revision in revisions:
        check_refused(store, Revision(revision.number, "f" * 16))
    check_refused(store, Revision(0, "tag"))
    for number in (head.number + 1, 2**53 + 1):
        check_refused(store, Revision(number, head.tag))


def test_every_revision_of_the_log_is_part_of_the_history(store):
    revisions = [Revision(), *write_many(store, 5)]
    identity = store.head(CLUSTER).identity

    for revision in revisions:
        assert not store.follow(CLUSTER, identity, revision, wait=0, limit=0)


@pytest.mark.parametrize("rewritten", [0, 2, 3])
def test_store_that_lost_its_tail_is_detected(store, backend, rewritten):
    write_many(store, 3)
    saved = backend.save(store)
    lost = write_many(store, 2, namespace="lost")

    backend.restore(store, saved)
    write_many(store, rewritten, namespace="instead")

    for revision in lost:
        check_refused(store, revision)


def test_tail_lost_during_the_wait_is_detected(store, backend):
    write_many(store, 3)
    saved = backend.save(store)
    lost = write_many(store, 2, namespace="lost")[-1]

    with following(store, lost) as waiting:
        backend.restore(store, saved)
        write_many(store, 3, namespace="instead")

        with pytest.raises(RevisionUnavailable, match="another history"):
            waiting.result(LONG)


def test_missing_cluster_is_detected(store):
    with pytest.raises(IdentityChanged, match="does not exist"):
        store.follow(CLUSTER, "0" * 32, Revision(), wait=LONG)
    with pytest.raises(IdentityChanged, match="does not exist"):
        store.follow(CLUSTER, "0" * 32, Revision(), wait=0, limit=0)


def test_another_identity_is_detected(store):
    head = write_many(store, 3)[-1]

    for revision in (Revision(), head):
        with pytest.raises(IdentityChanged, match="another identity"):
            store.follow(CLUSTER, "0" * 32, revision, wait=LONG)
        with pytest.raises(IdentityChanged, match="another identity"):
            store.follow(CLUSTER, "0" * 32, revision, wait=0, limit=0)


@pytest.mark.parametrize("again", [False, True])
def test_drop_during_the_wait_is_detected(store, again):
    head = write_many(store, 3)[-1]

    with following(store, head) as waiting:
        store.drop(CLUSTER)
        if again:
            write_many(store, 5)

        with pytest.raises(IdentityChanged):
            waiting.result(LONG)


def test_a_damaged_entry_comes_raw(store, backend):
    store.apply(CLUSTER, [put(pod(), "5")])
    backend.overwrite(store, CLUSTER, pod(), b"\x07damaged")
    store.apply(CLUSTER, [put(pod("b"))])

    assert [entry.object for found in follow_all(store) for entry in found.entries] == [
        put(pod(), "5").object,
        put(pod("b")).object,
    ]
