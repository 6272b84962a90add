"""Redis comes back empty, or as a replica that lacks the last writes."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import NEWEST, Load, counted_pods, pod, stored_pods, zones
from tests.redis_topologies import promote, replica_of
from tests.servers import incoming
from tests.waiting import until
from topospread.service.state.write import FEED_KINDS
from topospread_client import (
    NotFound,
    RevisionUnavailable,
    StoreIdentityChanged,
    TopospreadClientError,
    Unavailable,
)
from topospread_proto.v1.cluster_state_service_pb2 import ObjectReference
from topospread_proto.v1.common_pb2 import KIND_NODE, KIND_POD, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread_client import Client


KINDS = [Kind.Value(f"KIND_{kind.name}") for kind in sorted(FEED_KINDS)]


@pytest.mark.parametrize("feed", [KINDS, [KIND_POD, KIND_NODE]], ids=["six kinds", "declared"])
def test_restarted_empty_it_is_not_taken_for_an_empty_cluster(start_redis, serve, call, feed):
    forgetful = start_redis()
    http = ("--http", "127.0.0.1:0")
    two = [serve(forgetful.url, *http), serve(forgetful.url, *http, "--unready-when-stale")]
    clients = [call(server) for server in two]
    clients[0].apply_objects([*zones(), pod("web-0")])
    assert [counted_pods(client) for client in clients] == [1, 1]

    with Load([server.address for server in two], writers=0) as load:
        forgetful.kill()
        forgetful.start()
        for server, client in zip(two, clients, strict=True):
            until(partial(changed, client), "it is noticed")
            assert 'store_identity_changed{cluster="default"} 1.0' in server.get("/metrics")[1]
            assert {each.reason for each in refusals(client)} == {"STORE_IDENTITY_CHANGED"}
        assert two[0].get("/readyz")[0] == 200
        code, text = two[1].get("/readyz")
        assert (code, "default: store changed" in text) == (503, True)
        load.until_read()
        with pytest.raises(StoreIdentityChanged):
            clients[0].get_node_table(consistency=NEWEST)
        declared = {} if feed is KINDS else {"kinds": feed}
        for number, kind in enumerate(feed):
            # Decisions go on from what was known, until everything was listed.
            assert [answer.node_count for answer in map(nodes_of, clients)] == [3, 3]
            assert len(refusals(clients[number % 2])) == len(WRITES)
            objects = zones() if kind == KIND_NODE else ()
            clients[number % 2].replace_objects(kind, objects, **declared)
        revision = clients[1].apply_objects([pod("late")]).meta.revision
        for client in clients:
            client.get_node_table(consistency=revision)
            assert (counted_pods(client), changed(client)) == (1, False)
        until(lambda: two[1].get("/readyz")[0] == 200, "it is ready")
    assert load.unread == []


WRITES: tuple[Callable[[Client], object], ...] = (
    lambda client: client.apply_objects([pod("web-1")]),
    lambda client: client.delete_objects([ObjectReference(kind=KIND_POD, name="web-0")]),
    lambda client: client.delete_cluster("default"),
    lambda client: client.place_pod(incoming()),
    lambda client: client.reserve_node(incoming(), "n-a"),
    lambda client: client.release_reservation("web-0"),
    lambda client: client.release_reservation("web-0", reservation_id="1"),
)
"""All but ReplaceObjects."""


def refusals(client: Client) -> list[TopospreadClientError]:
    """The errors that writes end with."""
    errors = []
    for write in WRITES:
        with pytest.raises(TopospreadClientError) as refused:
            write(client)
        errors.append(refused.value)
    return errors


def test_writer_does_not_fill_an_emptied_store(start_redis, serve, call):
    forgetful = start_redis()
    client = call(serve(forgetful.url))
    client.apply_objects([*zones(), pod("web-0")])

    forgetful.kill()
    forgetful.start()
    with pytest.raises(StoreIdentityChanged, match="restart the server"):
        client.apply_objects([pod("web-1")])
    with pytest.raises(NotFound):
        client.get_node_table()
    for kind in KINDS:
        with pytest.raises(StoreIdentityChanged):
            client.apply_objects([pod("web-1")])
        # Full lists of each kind make any history the truth.
        client.replace_objects(kind, zones() if kind == KIND_NODE else ())
    client.apply_objects([pod("web-1")])
    assert stored_pods(client) == {"web-1"}


def test_restarted_server_takes_what_there_is(start_redis, serve, call):
    forgetful = start_redis()
    stays, ends = serve(forgetful.url), serve(forgetful.url)
    clients = [call(stays), call(ends)]
    clients[0].apply_objects([*zones(), pod("web-0")])
    assert [counted_pods(client) for client in clients] == [1, 1]
    forgetful.kill()
    forgetful.start()
    for client in clients:
        until(partial(changed, client), "it is noticed")

    ends.end()
    again = call(serve(forgetful.url))
    again.apply_objects([*zones(), pod("web-1"), pod("web-2")])
    assert counted_pods(again) == 2
    with pytest.raises(StoreIdentityChanged):
        clients[0].apply_objects([pod("web-3")])


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
