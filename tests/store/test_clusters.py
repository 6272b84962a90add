"""Several clusters in one store; dropping one and making it again."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, end_due, follow_all, node, objects, pod, put, write_many
from topospread.errors import Conflict, IdentityChanged, RevisionUnavailable
from topospread.store.model import Head, Kind, Listed, Remove, Revision, Unchanged, WriteOutcome


def test_an_unknown_cluster_has_an_empty_head(store):
    assert store.head("nobody") == Head("", Revision())


def test_clusters_share_nothing(store):
    store.apply("one", [put(pod(), payload=b"one"), put(node())])
    store.apply("two", [put(pod(), payload=b"two")])
    store.apply("two", [Remove(pod("gone"), up_to_version="9")])
    seen = Unchanged(store.head("one").revision, ("default", "nodes/"))
    write_many(store, 5, cluster="two")

    assert store.apply("one", [put(pod("gone"), "1")], precondition=seen).revision.number == 2
    assert objects(store, "one")[pod()].payload == b"one"
    assert objects(store, "two")[pod()].payload == b"two"
    assert store.head("one").identity != store.head("two").identity
    assert len(follow_all(store, "one")) == 2
    assert len(follow_all(store, "two")) == 6
    with pytest.raises(IdentityChanged):
        store.follow("one", store.head("two").identity, Revision(), wait=0)


def test_clusters_are_listed_sorted(store):
    for name in ("zeta", "a", "conf-1x", "0" * 63):
        store.apply(name, [put(node())])

    assert store.clusters() == ["0" * 63, "a", "conf-1x", "zeta"]


def test_identity_and_history_outlive_the_store_object(store, other_store):
    revision = write_many(store, 3)[-1]
    identity = store.head(CLUSTER).identity
    store.close()

    assert other_store.head(CLUSTER) == Head(identity, revision)
    assert other_store.apply(CLUSTER, [put(node())]).previous == revision


def test_a_dropped_cluster_is_gone(store):
    write_many(store, 7)
    store.apply(CLUSTER, [put(node()), Remove(pod("p-1"), up_to_version="9")])
    store.apply("other", [put(node())])
    identity = store.head(CLUSTER).identity

    assert store.drop(CLUSTER) == 7
    assert store.head(CLUSTER) == Head("", Revision(), replaced=(identity,))
    assert objects(store) == {}
    assert store.clusters() == ["other"]
    assert store.drop(CLUSTER) is None
    assert store.drop("nobody") is None


def test_a_cluster_made_again_is_another_one(store):
    old = write_many(store, 4)[-1]
    identity = store.head(CLUSTER).identity
    store.drop(CLUSTER)
    new = write_many(store, 4)[-1]
    head = store.head(CLUSTER)

    assert new.number == old.number
    assert new.tag != old.tag
    assert head.identity not in ("", identity)
    assert head.replaced == (identity,)
    with pytest.raises(IdentityChanged):
        store.follow(CLUSTER, identity, old, wait=0)
    with pytest.raises(RevisionUnavailable):
        store.apply(CLUSTER, [put(node())], precondition=Unchanged(old, ()))
    with pytest.raises(IdentityChanged):
        store.apply(CLUSTER, [put(node())], identity=identity)
    assert len(follow_all(store)) == 4


def test_dropping_forgets_tombstones(store):
    store.apply(CLUSTER, [put(node())])
    store.apply(CLUSTER, [Remove(pod(), up_to_version="10")])
    store.drop(CLUSTER)
    store.apply(CLUSTER, [put(node())])

    assert store.apply(CLUSTER, [put(pod(), "5")]).outcomes == (WriteOutcome.CREATED,)


def test_the_last_dropped_identities_are_remembered(store):
    identities = []
    for _ in range(10):
        store.apply(CLUSTER, [put(node())])
        identities.append(store.head(CLUSTER).identity)
        store.drop(CLUSTER)

    assert store.head(CLUSTER).replaced == tuple(reversed(identities))[:8]
    assert len(set(identities)) == 10


def test_write_returns_the_identity(store):
    assert store.apply(CLUSTER, [Remove(node())]).identity == ""
    first = store.apply(CLUSTER, [put(node())])
    again = store.apply(CLUSTER, [put(node())])
    store.drop(CLUSTER)
    new = store.apply(CLUSTER, [put(node())])

    assert first.identity == again.identity != new.identity
    assert new.identity == store.head(CLUSTER).identity != ""
    assert end_due(store).identity == new.identity


def test_only_the_named_history_is_dropped(store):
    identity = store.apply(CLUSTER, [put(node())]).identity

    with pytest.raises(IdentityChanged):
        store.drop(CLUSTER, identity="another")
    with pytest.raises(IdentityChanged):
        store.drop("nobody", identity=identity)
    assert store.drop(CLUSTER, identity=identity) == 1
    with pytest.raises(IdentityChanged):
        store.drop(CLUSTER, identity=identity)


def test_a_write_of_nothing_creates_a_cluster(store):
    created = store.apply(CLUSTER, [])

    assert created.identity
    assert created.revision == created.previous == Revision()
    assert store.head(CLUSTER) == Head(created.identity, Revision())
    assert store.clusters() == [CLUSTER]
    assert objects(store) == {}
    again = store.apply(CLUSTER, [], identity=created.identity)
    assert (again.revision, again.identity) == (Revision(), created.identity)
    assert not store.follow(CLUSTER, created.identity, Revision(), wait=0)
    first = store.apply(CLUSTER, [put(node())], precondition=Unchanged(Revision(), ("nodes/",)))
    assert (first.identity, first.previous) == (created.identity, Revision())
    assert len(follow_all(store)) == 1


def test_empty_write_creates_a_dropped_cluster(store):
    lost = store.apply(CLUSTER, [put(node())]).identity
    store.drop(CLUSTER)

    created = store.apply(CLUSTER, [])

    assert created.identity not in ("", lost)
    assert store.head(CLUSTER) == Head(created.identity, Revision(), replaced=(lost,))


NODES_AND_PODS = frozenset({Kind.NODE, Kind.POD})


def listed(kind, kinds=NODES_AND_PODS):
    return Listed(kind, kinds)


def test_history_is_complete_when_each_kind_of_its_feed_was_listed(store):
    store.apply(CLUSTER, [put(node()), put(pod())])
    assert not store.head(CLUSTER).complete
    store.apply(CLUSTER, [], listed=listed(Kind.NODE))
    assert not store.head(CLUSTER).complete
    store.apply(CLUSTER, [put(pod("b"))])
    # Noted with what was written, and where nothing had to be.
    store.apply(CLUSTER, [put(pod("b"))], listed=listed(Kind.POD))
    head = store.head(CLUSTER)
    assert (head.complete, head.revision.number) == (True, 2)
    store.apply(CLUSTER, [put(pod("c"))])
    assert store.head(CLUSTER).complete


def test_list_of_a_cluster_that_is_not_there_yet_counts(store):
    created = store.apply(CLUSTER, [], listed=listed(Kind.NODE, frozenset({Kind.NODE})))

    assert store.head(CLUSTER) == Head(created.identity, Revision(), complete=True)


def test_list_of_another_kind_completes_nothing(store):
    store.apply(CLUSTER, [], listed=listed(Kind.NODE))
    store.apply(CLUSTER, [], listed=listed(Kind.SERVICE))
    assert not store.head(CLUSTER).complete


NODES, MORE = frozenset({Kind.NODE}), NODES_AND_PODS | {Kind.SERVICE}


@pytest.mark.parametrize(
    "lists",
    [
        [(Kind.NODE, MORE, False), (Kind.POD, NODES_AND_PODS, False), (Kind.SERVICE, MORE, True)],
        [(Kind.NODE, MORE, False), (Kind.NODE, NODES, False)],
        [(Kind.NODE, NODES_AND_PODS, False), (Kind.POD, MORE, False), (Kind.SERVICE, MORE, True)],
        [(Kind.NODE, NODES, True), (Kind.NODE, MORE, False), (Kind.NODE, NODES, False)],
    ],
    ids=["between", "after", "before", "complete already"],
)
def test_feed_of_fewer_kinds_does_not_cut_the_lists_of_another_short(store, lists):
    for kind, kinds, complete in lists:
        store.apply(CLUSTER, [], listed=listed(kind, kinds))
        assert store.head(CLUSTER).complete is complete


def test_refused_list_completes_nothing(store):
    applied = store.apply(CLUSTER, [put(node())])
    only = listed(Kind.NODE, frozenset({Kind.NODE}))
    with pytest.raises(IdentityChanged):
        store.apply(CLUSTER, [], identity="another", listed=only)
    store.apply(CLUSTER, [put(node("b"))])
    unchanged = Unchanged(applied.revision, ("nodes/",))
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [], precondition=unchanged, listed=only)
    assert not store.head(CLUSTER).complete


def test_cluster_made_again_is_to_be_listed_again(store):
    store.apply(CLUSTER, [put(node())], listed=listed(Kind.NODE, frozenset({Kind.NODE})))
    store.drop(CLUSTER)
    assert not store.head(CLUSTER).complete
    store.apply(CLUSTER, [put(node())])
    assert not store.head(CLUSTER).complete


def test_another_server_sees_the_drop(store, other_store):
    head = write_many(store, 2)[-1]
    identity = store.head(CLUSTER).identity
    other_store.drop(CLUSTER)

    with pytest.raises(IdentityChanged, match="does not exist"):
        store.follow(CLUSTER, identity, head, wait=60)
