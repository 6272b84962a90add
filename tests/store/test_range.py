"""Objects in the order of their keys, and what they were at an earlier revision."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.store.backends import CLUSTER, DIGEST, node, objects, pod, put
from topospread.errors import (
    IdentityChanged,
    RevisionCompacted,
    RevisionOfOtherHistory,
)
from topospread.store.model import Key, Kind, Put, Remove, Revision, StoredObject
from topospread.store.values import OBSERVABLE

if TYPE_CHECKING:
    from topospread.store.api import Store

WHOLE = 1 << 30
BEGIN = ("", "")


def read(
    store: Store,
    kind: Kind = Kind.POD,
    namespace: str = "",
    after: tuple[str, str] = BEGIN,
    limit: int = 10_000,
    max_bytes: int = WHOLE,
) -> tuple[list[StoredObject], bool]:
    found, more = store.read_range(CLUSTER, kind, namespace, after, limit, max_bytes)
    return list(found), more


def in_order(store: Store, kind: Kind = Kind.POD) -> list[StoredObject]:
    """What a scan finds of a kind, sorted by namespace and name as bytes."""
    found = [each for key, each in objects(store).items() if key.kind is kind]
    return sorted(found, key=lambda each: (each.key.namespace.encode(), each.key.name.encode()))


def undo(store: Store, since: Revision, kind: Kind = Kind.POD) -> dict[Key, StoredObject | None]:
    identity = store.head(CLUSTER).identity
    return dict(store.read_undo(CLUSTER, identity, since, lambda key: key.kind is kind))


def as_it_was(
    store: Store, since: Revision, now: dict[Key, StoredObject]
) -> dict[Key, StoredObject]:
    """The pods at a revision, from those of later."""
    then = {**now, **undo(store, since)}
    return {key: each for key, each in then.items() if each is not None and key.kind is Kind.POD}


NAMES = [
    ("a", "b"),
    ("a-b", "a"),
    ("a.b", "a"),
    ("a", "b-c"),
    ("a", "b.c"),
    ("a0", "a"),
    ("b", "0"),
    ("z", "a"),
]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_range_is_ordered_by_namespace_and_then_name(store, limit):
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    store.apply(CLUSTER, [put(node("n")), put(Key(Kind.SERVICE, "a", "s"))])
    found: list[StoredObject] = []
    after, more = BEGIN, True
    while more:
        stretch, more = read(store, after=after, limit=limit)
        assert len(stretch) <= limit
        found += stretch
        after = (found[-1].key.namespace, found[-1].key.name)
    assert found == in_order(store)
    assert [(each.key.namespace, each.key.name) for each in found] == sorted(NAMES)


def test_range_of_one_namespace_has_no_other(store):
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    first, more = read(store, namespace="a", limit=2)
    rest, _ = read(store, namespace="a", after=("a", first[-1].key.name))
    assert more
    assert [each.key.name for each in first + rest] == ["b", "b-c", "b.c"]
    assert read(store, namespace="nobodys") == ([], False)
    assert read(store, Kind.NODE, namespace="a") == ([], False)


def test_range_of_each_kind_follows_its_writes(store):
    keys = [Key(kind, "" if kind is Kind.NODE else "n", "x") for kind in OBSERVABLE]
    store.apply(CLUSTER, [put(key) for key in keys])
    for key in keys:
        assert read(store, key.kind) == ([put(key).object], False)
        store.apply(CLUSTER, [put(key, payload=b"other")])
        assert read(store, key.kind)[0][0].payload == b"other"
        store.apply(CLUSTER, [Remove(key)])
        assert read(store, key.kind) == ([], False)


def test_range_of_a_cluster_that_is_not_there_is_empty(store):
    assert read(store) == ([], False)
    store.apply(CLUSTER, [put(pod())])
    store.drop(CLUSTER)
    assert read(store) == ([], False)
    store.apply(CLUSTER, [put(pod("other"))])
    assert [each.key.name for each in read(store)[0]] == ["other"]


def test_range_ends_early_when_it_has_many_bytes(store):
    store.apply(CLUSTER, [put(pod(f"p-{n:03}"), payload=b"x" * 1000) for n in range(300)])
    found, more = read(store, max_bytes=20_000)
    assert more
    assert 20 <= len(found) <= 120
    assert found == in_order(store)[: len(found)]


def test_range_has_values_that_cannot_be_read(store, backend):
    store.apply(CLUSTER, [put(pod()), put(pod("web-2"))])
    backend.overwrite(store, CLUSTER, pod(), b"\x00")
    found, _ = read(store)
    assert [each.digest for each in found] == [b"", DIGEST]


def test_objects_are_read_by_their_keys(store):
    kinds = [Key(kind, "" if kind is Kind.NODE else "n", "x") for kind in OBSERVABLE]
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    store.apply(CLUSTER, [put(key, payload=key.kind.name.encode()) for key in kinds])
    wanted = [*kinds, pod("b-c", "a"), pod("nobody", "a"), Key(Kind.POD, "nobodys", "b-c")]
    found = {each.key: each for each in store.read_keys(CLUSTER, wanted)}
    there = objects(store)
    assert found == {key: there[key] for key in wanted if key in there}
    assert len(found) == len(kinds) + 1
    assert list(store.read_keys(CLUSTER, [])) == []


def test_a_cluster_that_is_not_there_has_none_of_the_keys(store):
    assert list(store.read_keys(CLUSTER, [pod()])) == []


def test_objects_read_by_their_keys_have_values_that_cannot_be_read(store, backend):
    store.apply(CLUSTER, [put(pod())])
    backend.overwrite(store, CLUSTER, pod(), b"\x00")
    (found,) = store.read_keys(CLUSTER, [pod()])
    assert (found.key, found.digest) == (pod(), b"")


def test_undo_has_what_changed_since_a_revision(store):
    store.apply(CLUSTER, [put(pod("kept")), put(pod("changed")), put(pod("gone")), put(node())])
    before = objects(store)
    since = store.head(CLUSTER).revision
    assert undo(store, since) == {}
    store.apply(CLUSTER, [put(pod("changed"), payload=b"second"), put(pod("new"))])
    store.apply(CLUSTER, [put(pod("changed"), payload=b"third"), Remove(pod("gone"))])
    store.apply(CLUSTER, [put(node(), payload=b"other")])
    store.apply(CLUSTER, [Put(StoredObject(Key(Kind.RESERVATION, "n", "p"), b"", DIGEST))])
    assert undo(store, since) == {
        pod("changed"): before[pod("changed")],
        pod("gone"): before[pod("gone")],
        pod("new"): None,
    }
    assert undo(store, since, Kind.NODE) == {node(): before[node()]}
    assert undo(store, store.head(CLUSTER).revision) == {}


def test_objects_of_any_revision_are_those_that_were_there(store):
    """Random writes, some of them without an effect; every revision is read back."""
    random_ = random.Random(7)
    states: list[tuple[Revision, dict[Key, StoredObject]]] = []
    for _ in range(60):
        changed = random_.sample(range(12), 3)
        store.apply(
            CLUSTER,
            [
                Remove(pod(f"p-{n}"))
                if random_.random() < 0.4
                else put(pod(f"p-{n}"), payload=random_.choice([b"a", b"b"]))
                for n in changed
            ],
        )
        states.append((store.head(CLUSTER).revision, objects(store)))
    for revision, state in states:
        now = {each.key: each for each in read(store)[0]}
        assert now == states[-1][1]
        assert as_it_was(store, revision, now) == state


def test_undo_reaches_back_over_a_part_of_the_log(open_store):
    store = open_store(log_limit=64)
    revisions = [
        store.apply(CLUSTER, [put(pod(f"p-{n}"), payload=b"%d" % n)]).revision for n in range(80)
    ]
    assert len(undo(store, revisions[-17])) == 16
    with pytest.raises(RevisionCompacted):
        undo(store, revisions[-19])
    # The log itself reaches further.
    store.verify(CLUSTER, store.head(CLUSTER).identity, revisions[-60])


def test_undo_of_another_history_is_refused(store, backend):
    store.apply(CLUSTER, [put(pod())])
    saved = backend.save(store)
    since = store.apply(CLUSTER, [put(pod("lost"))]).revision
    identity = store.head(CLUSTER).identity
    backend.restore(store, saved)
    with pytest.raises(RevisionOfOtherHistory):
        undo(store, since)
    store.apply(CLUSTER, [put(pod("other"))])
    store.apply(CLUSTER, [put(pod("more"))])
    with pytest.raises(RevisionOfOtherHistory):
        undo(store, since)
    store.drop(CLUSTER)
    with pytest.raises(IdentityChanged):
        store.read_undo(CLUSTER, identity, since, lambda _: True)
    store.apply(CLUSTER, [put(pod())])
    with pytest.raises(IdentityChanged):
        store.read_undo(CLUSTER, identity, since, lambda _: True)


def test_begun_cluster_without_objects_is_listed_from_its_first_write(store):
    store.apply(CLUSTER, [])
    since = store.head(CLUSTER).revision
    store.apply(CLUSTER, [put(pod())])
    assert [each.key for each in read(store)[0]] == [pod()]
    assert undo(store, since) == {pod(): None}
