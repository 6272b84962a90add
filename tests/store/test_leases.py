"""The cluster's lease: one holder at a time, and writes of former holders are refused."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, node, objects, pod, put
from tests.waiting import until
from topospread.errors import Fenced, InvalidRequest
from topospread.store.model import MAX_LEASE, Lease
from topospread.store.rules import LeaseRow, granted

MINUTE = 60_000
DAY = 86_400_000
LONG_AGO = MINUTE + MAX_LEASE + 1


def test_one_of_many_holders_gets_the_lease(store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    assert (first.holder, first.left) == ("one", MINUTE)
    assert first.fence > 0
    refused = store.acquire(CLUSTER, "two", MINUTE)
    assert (refused.holder, refused.fence) == ("one", first.fence)
    assert 0 < refused.left <= MINUTE
    assert store.acquire("other", "two", MINUTE).holder == "two", "each cluster has its own"


def test_looking_at_a_lease_takes_nothing(store):
    assert store.lease(CLUSTER) == Lease("", 0, 0)
    first = store.acquire(CLUSTER, "one", MINUTE)
    found = store.lease(CLUSTER)
    assert (found.holder, found.fence) == ("one", first.fence)
    assert 0 < found.left <= MINUTE
    assert store.acquire(CLUSTER, "one", 0) == store.lease(CLUSTER)


def test_renewing_keeps_the_token(store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    assert store.acquire(CLUSTER, "one", 2 * MINUTE) == Lease("one", first.fence, 2 * MINUTE)


def test_the_next_holder_has_a_greater_token(store, other_store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    assert store.acquire(CLUSTER, "one", 0) == Lease("one", first.fence, 0)
    second = other_store.acquire(CLUSTER, "two", MINUTE)
    assert second.holder == "two"
    assert second.fence > first.fence
    assert store.acquire(CLUSTER, "one", MINUTE).holder == "two"


def test_lease_is_not_given_back_by_others(store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    assert store.acquire(CLUSTER, "two", 0).holder == "one"
    assert store.acquire(CLUSTER, "one", MINUTE).fence == first.fence
    assert store.acquire("nobody", "two", 0) == Lease("", 0, 0)


def test_lease_ends_by_itself(store):
    first = store.acquire(CLUSTER, "one", 1)
    until(lambda: store.acquire(CLUSTER, "two", MINUTE).holder == "two", "the end of the lease")
    assert store.acquire(CLUSTER, "two", MINUTE).fence > first.fence


def test_clock_set_back_blocks_no_holder_for_longer_than_the_lease(store, backend):
    first = store.acquire(CLUSTER, "one", 50)
    backend.change_lease(store, CLUSTER, until=DAY)

    refused = store.acquire(CLUSTER, "two", MINUTE)
    assert (refused.holder, refused.fence) == ("one", first.fence), "it is good once more"
    assert 0 < refused.left <= 50
    until(lambda: store.acquire(CLUSTER, "two", MINUTE).holder == "two", "the end of the lease")
    assert store.acquire(CLUSTER, "two", MINUTE).fence > first.fence


def test_holder_renews_its_lease_after_the_clock_was_set_back(store, backend):
    first = store.acquire(CLUSTER, "one", MINUTE)
    backend.change_lease(store, CLUSTER, until=DAY)

    assert store.acquire(CLUSTER, "one", MINUTE) == Lease("one", first.fence, MINUTE)
    assert 0 < store.acquire(CLUSTER, "two", MINUTE).left <= MINUTE


def test_a_lease_of_an_older_version_is_bounded_by_the_longest(store, backend):
    store.acquire(CLUSTER, "one", MINUTE)
    backend.change_lease(store, CLUSTER, granted=False)
    assert 0 < store.acquire(CLUSTER, "two", MINUTE).left <= MINUTE
    backend.change_lease(store, CLUSTER, until=DAY)
    assert MINUTE < store.acquire(CLUSTER, "two", MINUTE).left <= MAX_LEASE


def test_writes_of_a_former_holder_are_refused_as_a_whole(store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    store.apply(CLUSTER, [put(pod("a"))], fence=first.fence)
    store.acquire(CLUSTER, "one", 0)
    # Nobody else has it yet: what its last holder still has under way is good.
    store.apply(CLUSTER, [put(pod("b"))], fence=first.fence)
    second = store.acquire(CLUSTER, "two", MINUTE)
    head = store.head(CLUSTER)
    with pytest.raises(Fenced, match="list again"):
        store.apply(CLUSTER, [put(pod("c")), put(node())], fence=first.fence)
    with pytest.raises(Fenced):
        store.apply(CLUSTER, [], fence=first.fence)
    assert store.head(CLUSTER) == head
    store.apply(CLUSTER, [put(pod("c"))], fence=second.fence)
    store.apply(CLUSTER, [put(pod("d"))])
    assert set(objects(store)) == {pod(name) for name in "abcd"}


def test_dropping_a_cluster_voids_its_token(store):
    first = store.acquire(CLUSTER, "one", MINUTE)
    store.apply(CLUSTER, [put(pod())], fence=first.fence)
    store.drop(CLUSTER)
    with pytest.raises(Fenced):
        store.apply(CLUSTER, [put(pod())], fence=first.fence)
    assert objects(store) == {}
    again = store.acquire(CLUSTER, "one", MINUTE)
    assert again.fence > first.fence
    store.apply(CLUSTER, [put(pod())], fence=again.fence)


@pytest.mark.parametrize(
    ("holder", "lifetime"),
    [("a/b", 1), ("x" * 254, 1), ("one", -1), ("one", MAX_LEASE + 1)],
)
def test_invalid_leases_are_refused(store, holder, lifetime):
    with pytest.raises(InvalidRequest):
        store.acquire(CLUSTER, holder, lifetime)


def test_ended_lease_without_a_cluster_is_forgotten(store, backend):
    """Whoever acquires leases of ever new names leaves nothing behind."""
    store.apply(CLUSTER, [put(node("n"))])
    for name in (CLUSTER, "ended", "lasting"):
        store.acquire(name, "one", MAX_LEASE if name == "lasting" else MINUTE)
        backend.change_lease(store, name, until=-LONG_AGO, fence=-LONG_AGO)
    token = store.lease(CLUSTER).fence
    store.acquire("another", "one", MINUTE)
    until(lambda: store.lease("ended") == Lease("", 0, 0), "the end of what is kept")
    assert store.lease("lasting").holder == "one"
    assert store.lease(CLUSTER).fence == token > 0
    assert store.lease("another").left


def test_lease_of_a_cluster_made_since_is_kept(store, backend):
    token = store.acquire(CLUSTER, "one", MINUTE).fence
    store.apply(CLUSTER, [put(node("n"))], fence=token)
    backend.change_lease(store, CLUSTER, until=-DAY, fence=-DAY)
    store.acquire("another", "one", MINUTE)
    assert store.lease(CLUSTER).fence == token - DAY


def test_tokens_grow_beyond_the_clock():
    first = granted(LeaseRow(), "one", 10, now=1000)
    assert first.at(1000) == Lease("one", 1000, 10)
    ended = LeaseRow("one", 5000, 900, 10)
    assert granted(ended, "two", 10, now=1000).at(1000) == Lease("two", 5001, 10)
