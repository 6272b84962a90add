"""Redis comes back empty, or as a replica that lacks the last writes."""

from __future__ import annotations

import shutil
from functools import partial

import pytest

from bench.campaigns.load import NEWEST, Load, counted_pods, pod, stored_pods, zones
from tests.redis_topologies import promote, replica_of
from tests.waiting import until
from topospread_client import (
    NotFound,
    RevisionUnavailable,
    StoreIdentityChanged,
    Unavailable,
)


def test_restarted_empty_it_is_not_taken_for_an_empty_cluster(start_redis, serve, call):
    forgetful = start_redis()
    two = [serve(forgetful.url, "--http", "127.0.0.1:0") for _ in range(2)]
    clients = [call(server) for server in two]
    clients[0].apply_objects([*zones(), pod("web-0")])
    assert [counted_pods(client) for client in clients] == [1, 1]

    with Load([server.address for server in two], writers=0) as load:
        forgetful.kill()
        forgetful.start()
        for server, client in zip(two, clients, strict=True):
            until(partial(changed, client), "it is noticed")
            assert 'store_identity_changed{cluster="default"} 1.0' in server.get("/metrics")[1]
            with pytest.raises(StoreIdentityChanged, match="topospread store accept"):
                client.apply_objects([pod("web-1")])
        load.until_read()
        with pytest.raises(StoreIdentityChanged):
            clients[0].get_node_table(consistency=NEWEST)
        # Decisions go on from what was known, until the new store is accepted.
        assert [answer.node_count for answer in map(nodes_of, clients)] == [3, 3]
        clients[0].accept_store("default", clients[0].get_cluster().cluster.store_identity)
        revision = clients[1].apply_objects(zones()).meta.revision
        for client in clients:
            client.get_node_table(consistency=revision)
            assert (counted_pods(client), changed(client)) == (0, False)
    assert {type(error).__name__ for error in load.unread} <= {"NotFound"}


def test_writer_does_not_fill_an_emptied_store(start_redis, serve, call):
    forgetful = start_redis()
    client = call(serve(forgetful.url))
    client.apply_objects([*zones(), pod("web-0")])

    forgetful.kill()
    forgetful.start()
    with pytest.raises(StoreIdentityChanged, match="topospread store accept"):
        client.apply_objects([pod("web-1")])
    with pytest.raises(NotFound):
        client.get_node_table()
    with pytest.raises(StoreIdentityChanged):
        client.apply_objects([pod("web-1")])

    # Full lists of each kind make any history the truth.
    client.replace_objects("NODE", zones())
    with pytest.raises(StoreIdentityChanged):
        client.apply_objects([pod("web-1")])
    client.accept_store("default", client.get_cluster().cluster.store_identity)
    client.apply_objects([pod("web-1")])
    assert stored_pods(client) == {"web-1"}


def test_keys_that_are_gone_from_redis_are_not_taken_for_an_empty_list(start_redis, serve, call):
    server = start_redis()
    follows = call(serve(server.url))
    follows.apply_objects([*zones(), pod("web-0")])
    assert follows.get_node_table().node_names == ["n-a", "n-b", "n-c"]
    with server.client() as redis:
        redis.delete("ts:{default}:node")

    starts = call(serve(server.url))
    with pytest.raises(Unavailable, match="are gone from Redis"):
        starts.get_node_table(consistency=NEWEST)
    for client in (starts, follows):
        with pytest.raises(Unavailable, match="are gone from Redis"):
            client.apply_objects([pod("web-1")])
    assert follows.get_node_table().node_names == ["n-a", "n-b", "n-c"]

    follows.delete_cluster("default")
    follows.apply_objects(zones())
    until(partial(followed, starts, 0), "it is loaded again")
    assert starts.get_node_table().node_names == ["n-a", "n-b", "n-c"]


def changed(client) -> bool:
    return any(cluster.identity_changed for cluster in client.list_clusters())


def nodes_of(client):
    (cluster,) = client.list_clusters()
    return cluster


@pytest.mark.faults
@pytest.mark.parametrize("instead", [0, 3, 5, 8])
def test_a_promoted_replica_that_lacks_the_last_writes(start_redis, serve, call, instead):
    """Five writes reach the master only; the replica, promoted, gets others at the same numbers."""
    master = start_redis(options={"appendonly": "no"})
    replica = replica_of(master, start_redis)
    two = [serve(master.url), serve(master.url)]
    clients = [call(server) for server in two]
    clients[0].apply_objects([*zones(), *(pod(f"kept-{n}") for n in range(10))])
    with master.client() as client:
        assert client.wait(1, 60_000) == 1
    promote(replica)
    lost = [clients[0].apply_objects([pod(f"lost-{n}")]).meta.revision for n in range(5)]
    assert [counted_pods(client) for client in clients] == [15, 15]
    if instead:
        elsewhere = call(serve(replica.url))
        for number in range(instead):
            elsewhere.apply_objects([pod(f"new-{number}")])

    # What the replica has takes the master's place, at its address.
    with replica.client() as client:
        client.save()
    with Load([server.address for server in two], writers=0) as load:
        master.kill()
        shutil.copy(replica.directory / "dump.rdb", master.directory / "dump.rdb")
        master.start()
        expected = {f"kept-{n}" for n in range(10)} | {f"new-{n}" for n in range(instead)}
        for client in clients:
            until(partial(followed, client, len(expected)), "phantoms are gone")
            assert stored_pods(client) == expected
            for revision in lost:
                with pytest.raises(RevisionUnavailable):
                    client.get_node_table(consistency=revision)
        late = clients[1].apply_objects([pod("late")]).meta.revision
        clients[0].get_node_table(consistency=late)
        assert [counted_pods(client) for client in clients] == [len(expected) + 1] * 2
    assert load.unread == []


def followed(client, pods: int) -> bool:
    """Whether the newest state is answered, and that it has so many pods."""
    try:
        return counted_pods(client) == pods
    except Unavailable:
        return False


def test_waiter_for_a_lost_write_gets_an_error_at_once(start_redis, serve, call):
    master = start_redis(options={"appendonly": "no"})
    client = call(serve(master.url))
    client.apply_objects(zones())
    with master.client() as redis:
        redis.save()
    lost = client.apply_objects([pod("lost")]).meta.revision
    master.kill()
    master.start()

    # While it is not known yet that the write is lost it is answered, and while the state is made
    # anew it is to be tried again.
    until(partial(refused, client, lost), "it gets an error")


def refused(client, consistency) -> bool:
    try:
        client.get_node_table(consistency=consistency)
    except RevisionUnavailable:
        return True
    except Unavailable:
        return False
    return False
