"""Conditional writes: nothing relevant since a revision that is part of this history."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, OTHER_DIGEST, node, objects, oldest, pod, put, write_many
from topospread.errors import Conflict, IdentityChanged, RevisionUnavailable
from topospread.store.model import (
    CLUSTER_SCOPED,
    DEVICES_SCOPE,
    JOBS_SCOPE,
    NAMESPACES_SCOPE,
    VOLUMES_SCOPE,
    Key,
    Kind,
    Remove,
    Revision,
    Unchanged,
)
from topospread.store.values import OBJECT_KINDS

SCOPES = ("default", "nodes/")


def test_a_write_at_the_head_goes_through(store):
    head = store.apply(CLUSTER, [put(pod())]).revision

    applied = store.apply(CLUSTER, [put(pod("b"))], precondition=Unchanged(head, SCOPES))

    assert applied.previous == head


@pytest.mark.parametrize(
    "change",
    [
        put(pod("other")),
        put(pod(), digest=OTHER_DIGEST),
        Remove(pod()),
        put(Key(Kind.SERVICE, "default", "web")),
        put(Key(Kind.STATEFUL_SET, "default", "web")),
        put(Key(Kind.RESERVATION, "default", "web")),
        put(node()),
    ],
)
def test_relevant_changes_of_the_scopes_conflict(store, change):
    seen = store.apply(CLUSTER, [put(pod())]).revision
    store.apply(CLUSTER, [change])

    with pytest.raises(Conflict, match="evaluate again"):
        store.apply(CLUSTER, [put(pod("mine"))], precondition=Unchanged(seen, SCOPES))
    assert pod("mine") not in objects(store)


@pytest.mark.parametrize(
    "change",
    [put(pod("web", "elsewhere")), put(pod(), "9", b"readiness"), put(pod()), Remove(pod("none"))],
)
def test_irrelevant_changes_do_not_conflict(store, change):
    seen = store.apply(CLUSTER, [put(pod()), put(node())]).revision
    store.apply(CLUSTER, [change])

    store.apply(CLUSTER, [put(pod("mine"))], precondition=Unchanged(seen, SCOPES))

    assert pod("mine") in objects(store)


def test_volumes_concern_those_who_look_at_them(store):
    """And no write for a pod that has none, whatever claims come and go in its namespace."""
    for kind in set(OBJECT_KINDS) - {Kind.JOB}:
        namespace = "" if kind in CLUSTER_SCOPED else "default"
        seen = store.apply(CLUSTER, [put(pod())]).revision
        store.apply(CLUSTER, [put(Key(kind, namespace, "web"))])

        store.apply(CLUSTER, [put(pod(f"{kind}"))], precondition=Unchanged(seen, SCOPES))
        about = NAMESPACES_SCOPE if kind is Kind.NAMESPACE else VOLUMES_SCOPE
        if kind > Kind.NAMESPACE:
            about = DEVICES_SCOPE
        with pytest.raises(Conflict):
            store.apply(CLUSTER, [put(pod("late"))], precondition=Unchanged(seen, (about,)))


def test_jobs_concern_no_decision(store):
    seen = store.apply(CLUSTER, [put(pod())]).revision
    store.apply(CLUSTER, [put(Key(Kind.JOB, "default", "import"))])
    scopes = (*SCOPES, NAMESPACES_SCOPE, VOLUMES_SCOPE, DEVICES_SCOPE)
    store.apply(CLUSTER, [put(pod("mine"))], precondition=Unchanged(seen, scopes))
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("late"))], precondition=Unchanged(seen, (JOBS_SCOPE,)))


def test_a_namespace_called_nodes_is_not_the_nodes(store):
    seen = store.apply(CLUSTER, [put(pod())]).revision
    store.apply(CLUSTER, [put(pod("web", "nodes"))])

    store.apply(CLUSTER, [put(pod("mine"))], precondition=Unchanged(seen, ("nodes/",)))
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("late"))], precondition=Unchanged(seen, ("nodes",)))


def test_one_writer_of_two_at_the_same_revision_wins(store):
    seen = Unchanged(store.apply(CLUSTER, [put(pod())]).revision, SCOPES)
    store.apply(CLUSTER, [put(pod("first"))], precondition=seen)

    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("second"))], precondition=seen)


def test_precondition_is_checked_when_nothing_would_be_written(store):
    seen = store.apply(CLUSTER, [put(pod())]).revision
    store.apply(CLUSTER, [put(node())])

    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod())], precondition=Unchanged(seen, SCOPES))


def test_an_older_revision_serves_while_nothing_relevant_came(store):
    seen = store.apply(CLUSTER, [put(pod())]).revision
    write_many(store, 20, namespace="elsewhere")

    store.apply(CLUSTER, [put(pod("mine"))], precondition=Unchanged(seen, SCOPES))

    assert pod("mine") in objects(store)


def test_the_empty_revision_holds_for_a_new_cluster_only(store):
    nothing = Unchanged(Revision(), SCOPES)
    store.apply(CLUSTER, [put(pod())], precondition=nothing)

    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("b"))], precondition=nothing)
    store.apply(CLUSTER, [put(pod("b"))], precondition=Unchanged(Revision(), ("elsewhere",)))


def test_a_revision_of_an_unknown_cluster_is_another_history(store):
    with pytest.raises(RevisionUnavailable, match="another history"):
        store.apply(CLUSTER, [put(pod())], precondition=Unchanged(Revision(3, "abc"), SCOPES))


def test_trimming_forgets_no_scope_that_still_matters(open_store):
    store = open_store(log_limit=10)
    revisions = [Revision(), *write_many(store, 40, namespace="elsewhere")]
    store.apply(CLUSTER, [put(pod("touched"))])
    write_many(store, 8, namespace="other")
    first = oldest(store, revisions)

    seen = Unchanged(revisions[first], SCOPES)
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [put(pod("x"))], precondition=seen)


def test_the_identity_is_checked(store):
    with pytest.raises(IdentityChanged, match="does not exist"):
        store.apply(CLUSTER, [put(pod())], identity="0" * 32)
    store.apply(CLUSTER, [put(pod())])
    identity = store.head(CLUSTER).identity

    store.apply(CLUSTER, [put(pod("b"))], identity=identity)
    with pytest.raises(IdentityChanged, match="another identity"):
        store.apply(CLUSTER, [put(pod("c"))], identity="0" * 32)
    assert set(objects(store)) == {pod(), pod("b")}
