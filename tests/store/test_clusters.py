"""Several clusters in one store; dropping one and making it again."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, follow_all, node, objects, pod, put, write_many
from topospread.errors import IdentityChanged, RevisionUnavailable
from topospread.store.model import Head, Kind, Remove, Revision, Unchanged, WriteOutcome


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

    assert other_store.head(CLUSTER) == Head(identity, revision, 1)
    assert other_store.apply(CLUSTER, [put(node())]).previous == revision


def test_a_dropped_cluster_is_gone(store):
    write_many(store, 7)
    store.apply(CLUSTER, [put(node()), Remove(pod("p-1"), up_to_version="9")])
    store.apply("other", [put(node())])
    identity = store.head(CLUSTER).identity

    assert store.drop(CLUSTER) == 7
    assert store.head(CLUSTER) == Head("", Revision(), 0, (identity,))
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
    assert head.dropped == (identity,)
    assert head.oldest == 1
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

    assert store.head(CLUSTER).dropped == tuple(reversed(identities))[:8]
    assert len(set(identities)) == 10


def test_write_returns_the_identity(store):
    assert store.apply(CLUSTER, [Remove(node())]).identity == ""
    first = store.apply(CLUSTER, [put(node())])
    again = store.apply(CLUSTER, [put(node())])
    store.drop(CLUSTER)
    new = store.apply(CLUSTER, [put(node())])

    assert first.identity == again.identity != new.identity
    assert new.identity == store.head(CLUSTER).identity != ""
    assert store.purge(CLUSTER).identity == new.identity


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
    assert store.head(CLUSTER) == Head(created.identity, Revision(), 1)
    assert store.clusters() == [CLUSTER]
    assert objects(store) == {}
    assert store.apply(CLUSTER, [], identity=created.identity) == created
    assert not store.follow(CLUSTER, created.identity, Revision(), wait=0)
    first = store.apply(CLUSTER, [put(node())], precondition=Unchanged(Revision(), ("nodes/",)))
    assert (first.identity, first.previous) == (created.identity, Revision())
    assert len(follow_all(store)) == 1


def test_write_without_effect_creates_no_cluster(store):
    assert store.apply(CLUSTER, [Remove(node())]).identity == ""
    assert store.purge(CLUSTER).identity == ""
    assert store.clusters() == []


def test_empty_write_creates_a_dropped_or_confirmed_cluster(store):
    store.apply(CLUSTER, [put(node())])
    lost = store.head(CLUSTER).identity
    store.drop(CLUSTER)
    store.confirm_history(CLUSTER, [Kind.NODE])
    confirmed = store.head(CLUSTER).confirmed

    created = store.apply(CLUSTER, [])

    assert created.identity not in ("", lost)
    assert store.head(CLUSTER) == Head(created.identity, Revision(), 1, (lost,), confirmed)


def test_head_has_the_times_at_which_kinds_were_confirmed(store):
    before = store.head(CLUSTER).at
    first = store.apply(CLUSTER, [put(node())])
    store.confirm_history(CLUSTER, [Kind.NODE])
    once = store.head(CLUSTER).confirmed
    store.confirm_history(CLUSTER, [Kind.NODE, Kind.POD], identity=first.identity)
    with pytest.raises(IdentityChanged):
        store.confirm_history(CLUSTER, [Kind.NODE], identity="another")

    twice = store.head(CLUSTER).confirmed
    assert set(once) == {Kind.NODE}
    assert set(twice) == {Kind.NODE, Kind.POD}
    assert 0 < before <= once[Kind.NODE] < twice[Kind.NODE]
    assert twice[Kind.POD] >= before
    assert store.head(CLUSTER).revision == first.revision
    store.apply(CLUSTER, [put(pod())])
    assert store.head(CLUSTER).confirmed == twice
    store.drop(CLUSTER)
    assert store.head(CLUSTER).at >= twice[Kind.POD]
    assert store.head(CLUSTER).confirmed == {}


def test_missing_cluster_can_be_confirmed(store):
    store.confirm_history(CLUSTER, [Kind.NODE])

    head = store.head(CLUSTER)
    assert set(head.confirmed) == {Kind.NODE}
    assert head == Head("", Revision(), 0, (), head.confirmed)
    assert store.clusters() == []
    with pytest.raises(IdentityChanged):
        store.confirm_history(CLUSTER, [Kind.NODE], identity="any")
    store.apply(CLUSTER, [put(node())])
    assert store.head(CLUSTER).confirmed == head.confirmed


def test_a_lost_history_can_be_put_among_the_dropped(store):
    identities = []
    for _ in range(2):
        identities.append(store.apply(CLUSTER, [put(node())]).identity)
        store.drop(CLUSTER)
    present = store.apply(CLUSTER, [put(node())]).identity

    for _ in range(2):
        store.confirm_history(CLUSTER, (), identity=present, instead_of="lost")
    assert store.head(CLUSTER).dropped == ("lost", *reversed(identities))
    assert store.head(CLUSTER).confirmed == {}
    store.confirm_history("nobody", [Kind.NODE], instead_of="lost")
    head = store.head("nobody")
    assert (head.identity, head.dropped, set(head.confirmed)) == ("", ("lost",), {Kind.NODE})


def test_another_server_sees_the_drop(store, other_store):
    head = write_many(store, 2)[-1]
    identity = store.head(CLUSTER).identity
    other_store.drop(CLUSTER)

    with pytest.raises(IdentityChanged, match="does not exist"):
        store.follow(CLUSTER, identity, head, wait=60)
