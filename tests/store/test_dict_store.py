"""The store of one cluster in a dict: it is read as any store is that was written the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.store.backends import CLUSTER, SqliteBackend, follow_all, node, objects, pod, put
from tests.waiting import PATIENCE
from topospread.errors import IdentityChanged, RevisionCompacted, RevisionOfOtherHistory
from topospread.store.dict_store import DictStore
from topospread.store.model import Head, Kind, Page, Remove, Revision

if TYPE_CHECKING:
    from topospread.store.model import Change

FIRST = [put(node("n-1")).object, put(pod("p-1")).object, put(pod("p-2", "b")).object]


@pytest.fixture
def store() -> DictStore:
    return DictStore(CLUSTER, FIRST)


def changes(random: Random) -> list[Change]:
    """Some that have an effect and some that have none."""
    keys = [pod(f"p-{n}", random.choice("abc")) for n in random.sample(range(12), 4)]
    return [
        Remove(key)
        if random.random() < 0.3
        else put(key, payload=random.choice([b"a", b"b"]), digest=random.randbytes(8))
        for key in [*keys, node(f"n-{random.randrange(3)}")]
    ]


@pytest.mark.parametrize("seed", range(5))
def test_dict_store_is_read_as_another_store_is(store, seed):
    random = Random(seed)
    with closing(SqliteBackend("memory:").open()) as other:
        other.apply(CLUSTER, [put(each.key) for each in FIRST])
        begin, other_begin = store.head(CLUSTER).revision, other.head(CLUSTER).revision
        for _ in range(40):
            step = changes(random)
            store.feed(step)
            other.apply(CLUSTER, step)

        assert objects(store) == objects(other)
        for kind, namespace, limit in ((Kind.POD, "", 3), (Kind.POD, "b", 2), (Kind.NODE, "", 1)):
            place: tuple[str, str] | None = ("", "")
            while place is not None:
                pages = [
                    each.scan(CLUSTER, kind, namespace=namespace, after=place, limit=limit)
                    for each in (store, other)
                ]
                assert list(pages[0].objects) == list(pages[1].objects)
                assert pages[0].last == pages[1].last
                place = pages[0].last
        wanted = [pod("p-1", "a"), pod("nobody"), node("n-1")]
        assert list(store.get(CLUSTER, wanted)) == list(other.get(CLUSTER, wanted))
        followed = [
            [
                [replace(entry, relevant=True) for entry in each.entries]
                for each in follow_all(one, after=at, limit=7)
            ]
            for one, at in ((store, begin), (other, other_begin))
        ]
        assert followed[0] == followed[1]


def test_log_is_a_chain_from_the_beginning(store):
    before = store.head(CLUSTER)
    for number in range(5):
        store.feed([put(pod(f"new-{number}"))])
    found = follow_all(store, after=before.revision)
    tags = [before.revision.tag, *(each.revision.tag for each in found)]
    assert [each.previous_tag for each in found] == tags[:-1]
    assert store.head(CLUSTER) == Head(before.identity, found[-1].revision, complete=True)


def test_feed_without_effect_makes_no_revision(store):
    before = store.head(CLUSTER)
    store.feed([put(node("n-1")), Remove(pod("nobody"))])
    assert store.head(CLUSTER) == before


def test_page_ends_early_when_it_has_many_bytes():
    large = [put(pod(f"p-{n}"), payload=bytes(1000)).object for n in range(5)]
    page = DictStore(CLUSTER, large).scan(CLUSTER, Kind.POD, max_bytes=2000)
    assert ([each.key.name for each in page.objects], page.last) == (
        ["p-0", "p-1"],
        ("default", "p-1"),
    )


def test_other_clusters_are_not_there(store):
    assert store.clusters() == [CLUSTER]
    assert store.head("other") == Head("", Revision())
    assert store.scan("other", Kind.POD) == Page([])
    assert store.get("other", [pod("p-1")]) == []
    with pytest.raises(IdentityChanged):
        store.follow("other", store.head(CLUSTER).identity, Revision(), wait=0)


def test_revisions_of_another_history_and_forgotten_ones_are_refused():
    store = DictStore(CLUSTER, FIRST, kept=10)
    identity, first = store.head(CLUSTER).identity, store.head(CLUSTER).revision
    for number in range(30):
        store.feed([put(pod(f"new-{number}"))])
    head = store.head(CLUSTER).revision
    for limit in (0, 1000):
        for wrong in (Revision(head.number, "x"), Revision(head.number + 1, head.tag)):
            with pytest.raises(RevisionOfOtherHistory):
                store.follow(CLUSTER, identity, wrong, wait=0, limit=limit)
    with pytest.raises(RevisionCompacted) as refused:
        store.follow(CLUSTER, identity, first, wait=0)
    assert refused.value.oldest is not None
    oldest = Revision(*refused.value.oldest)
    assert len(follow_all(store, after=oldest)) == head.number - oldest.number == 10
    assert not store.follow(CLUSTER, identity, oldest, wait=0, limit=0)


@pytest.mark.parametrize("first", ["wait", "wake"])
def test_a_wake_ends_one_wait_also_before_it_begins(store, first):
    head = store.head(CLUSTER)
    with ThreadPoolExecutor(1) as pool:
        if first == "wake":
            store.wake(CLUSTER)
        waits = pool.submit(store.follow, CLUSTER, head.identity, head.revision, wait=2 * PATIENCE)
        if first == "wait":
            store.wake(CLUSTER)
        assert waits.result(PATIENCE) == []


def test_a_feed_ends_the_wait(store):
    head = store.head(CLUSTER)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(store.follow, CLUSTER, head.identity, head.revision, wait=2 * PATIENCE)
        store.feed([put(pod("new"))])
        assert [each.entries[0].key for each in waits.result(PATIENCE)] == [pod("new")]
