"""A cluster that is made anew, and one that is read while others write it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tests.store.backends import CLUSTER, follow_all, node, objects, pod, put, replay, write_many
from topospread.errors import Fenced, IdentityChanged
from topospread.store.backups import BATCH, batches, read_contents
from topospread.store.model import Key, Kind, Put, Revision, StoredObject

HOUR = 3_600_000


def held(name="web-1", namespace="default"):
    key = Key(Kind.RESERVATION, namespace, name)
    return StoredObject(key, b"node", b"\x00digest\xff", "", "uid-1")


def restore(store, changes, **options):
    return store.restore(CLUSTER, [changes], **options)


def test_a_restored_cluster_has_what_was_written_and_a_history_of_its_own(store):
    store.apply(CLUSTER, [put(node()), put(pod(), "7"), put(pod("gone"))])
    before = read_contents(store, CLUSTER)
    store.apply(CLUSTER, [put(pod("later"))])

    changes = batches(before.objects.values(), 0)
    made = store.restore(CLUSTER, changes, identity=before.identity)

    assert objects(store) == before.objects
    head = store.head(CLUSTER)
    assert (head.identity, head.revision) == (made.identity, made.revision)
    assert made.identity != before.identity
    assert made.object_count == len(before.objects)
    assert head.dropped[0] == before.identity
    assert head.confirmed == {}
    assert replay({}, follow_all(store)) == before.objects
    assert store.clusters() == [CLUSTER]


def test_a_restored_cluster_is_written_and_followed_on(store):
    made = restore(store, [put(pod())])
    applied = store.apply(CLUSTER, [put(pod("next"))], identity=made.identity)
    (transaction,) = store.follow(CLUSTER, made.identity, made.revision, wait=0)
    assert transaction.revision == applied.revision
    with pytest.raises(IdentityChanged):
        store.follow(CLUSTER, "another", Revision(), wait=0)


def test_a_cluster_without_objects_is_restored(store):
    made = store.restore(CLUSTER, [])
    assert store.head(CLUSTER).identity == made.identity
    assert objects(store) == {}


def test_the_identity_that_was_saved_counts_as_dropped(store):
    restore(store, [put(pod())], instead_of="lost")
    assert store.head(CLUSTER).dropped == ("lost",)


def test_a_token_from_before_writes_nothing(store):
    store.apply(CLUSTER, [put(node())])
    lease = store.lease(CLUSTER, "leader", HOUR)
    restore(store, [put(pod())], identity=store.head(CLUSTER).identity)
    with pytest.raises(Fenced):
        store.apply(CLUSTER, [put(node())], fence=lease.fence)
    assert store.lease(CLUSTER, "next", HOUR).fence > lease.fence


@pytest.mark.parametrize("there", [True, False])
def test_another_cluster_than_the_one_that_is_given_up_is_left_alone(store, there):
    if there:
        store.apply(CLUSTER, [put(node())])
    before = store.head(CLUSTER), objects(store)
    with pytest.raises(IdentityChanged):
        restore(store, [put(pod())], identity="" if there else "another")
    assert (store.head(CLUSTER).identity, objects(store)) == (before[0].identity, before[1])


def test_an_early_end_leaves_the_cluster_as_it_was(store):
    store.apply(CLUSTER, [put(node())])
    before = store.head(CLUSTER)

    def broken():
        yield [put(pod())]
        raise ValueError("the file ends")

    with pytest.raises(ValueError, match="the file ends"):
        store.restore(CLUSTER, broken(), identity=before.identity)
    assert store.head(CLUSTER) == before
    assert set(objects(store)) == {node()}
    restore(store, [put(pod())], identity=before.identity)
    assert set(objects(store)) == {pod()}


def test_reservations_keep_their_end_and_those_that_ended_are_left_out(store):
    store.apply(CLUSTER, [Put(held(), lifetime=HOUR), Put(held("short"), lifetime=1000)])
    saved = read_contents(store, CLUSTER)
    ends = saved.objects[held().key].expires_at
    store.restore(
        CLUSTER, batches(saved.objects.values(), ends - HOUR + 2000), identity=saved.identity
    )
    (found,) = objects(store).values()
    # On the store's clock, which went on a little.
    assert ends - 2000 <= found.expires_at < ends + HOUR


def test_a_reservation_and_its_pod_are_restored(store):
    store.apply(CLUSTER, [put(pod())])
    store.apply(CLUSTER, [Put(held())])
    saved = read_contents(store, CLUSTER)
    store.restore(CLUSTER, batches(saved.objects.values(), 0), identity=saved.identity)
    assert objects(store) == saved.objects


def test_contents_are_of_one_moment_while_others_write(store, other_store):
    write_many(store, 3 * BATCH // 10)
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            # Two that come together: no moment has one without the other.
            other_store.apply(CLUSTER, [put(pod("left"), str(number)), put(node(), str(number))])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [read_contents(store, CLUSTER) for _ in range(20)]
    finally:
        stop.set()
        writer.join()
    log = follow_all(store)
    for each in found:
        until = [one for one in log if one.revision.number <= each.revision.number]
        assert replay({}, until) == each.objects
    assert found[0].revision != found[-1].revision


HALF = """
import sys, time
from tests.store.backends import put, pod
from topospread.app.stores import open_store
store = open_store(sys.argv[1], {})
def changes():
    yield [put(pod("half"))]
    print("half", flush=True)
    time.sleep(3600)
store.restore("prod", changes(), identity=sys.argv[2])
"""


@pytest.mark.parametrize("there", [True, False])
def test_a_restore_that_is_killed_leaves_nothing_behind(backend, other_store, there):
    store = other_store
    if there:
        store.apply(CLUSTER, [put(node())])
    before = store.head(CLUSTER)
    command = [sys.executable, "-c", HALF, backend.url, before.identity]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "half\n"
            assert store.head(CLUSTER).identity == before.identity
            assert set(objects(store)) == ({node()} if there else set())
        finally:
            process.kill()
    assert set(objects(store)) == ({node()} if there else set())
    assert store.clusters() == ([CLUSTER] if there else [])
    restore(store, [put(pod())], identity=before.identity)
    assert set(objects(store)) == {pod()}
