"""Redis as it is run: Sentinels that fail over, and a Redis Cluster of three masters."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.faults.conftest import DURABLE
from tests.faults.load import Load, counted_pods, pod, stored_pods, zones
from tests.redis_server import redis_binaries
from tests.redis_topologies import (
    cluster_of,
    cluster_url,
    is_master,
    is_node,
    replica_of,
    sentinel_of,
    sentinel_url,
)
from tests.servers import until
from topospread_client.client import Client
from topospread_client.errors import DeadlineExceeded, Unavailable


@pytest.mark.faults
@pytest.mark.parametrize("waits", [0, 1])
def test_sentinels_fail_over_under_load(start_redis, serve, call, waits, record_property):
    """The master dies. Writes that waited for the replica are all there; of the others some may be
    lost, and then both servers have lost the same.
    """
    master = start_redis(options=DURABLE)
    replica = replica_of(master, start_redis, DURABLE)
    sentinel = sentinel_of(master, start_redis, down_after_ms=1000)
    url = sentinel_url(sentinel)
    two = [serve(url, "--wait-replicas", str(waits)) for _ in range(2)]
    clients = [call(server) for server in two]
    clients[0].apply(zones())
    assert [counted_pods(client) for client in clients] == [0, 0]

    with Load([server.address for server in two]) as load:
        load.until_written(100)
        master.kill()
        died = time.monotonic()
        until(lambda: is_master(replica), "the replica is promoted")
        promoted = time.monotonic()
        if waits:
            # Nobody is left to wait for: what is asked for cannot be had, and is told.
            load.until_read(100)
        else:
            load.until_written(100)
            seconds = promoted - died + load.resumed_after(promoted)
            record_property("seconds_without_writes", round(seconds, 3))

    assert load.unread == []
    assert set(load.refused) <= {"Unavailable", "DeadlineExceeded"}
    until(partial(answered, clients[0]), "the Sentinel names the new master")
    stored = stored_pods(clients[0])
    before = {name for name, at in load.acknowledged.items() if at < died}
    if waits:
        assert before <= stored
    record_property("acknowledged_and_lost", len(before - stored))
    assert [counted_pods(client) for client in clients] == [len(stored)] * 2


def answered(client: Client) -> bool:
    try:
        stored_pods(client)
    except Unavailable:
        return False
    return True


@pytest.mark.faults
def test_a_cluster_of_three_masters_loses_one_and_has_it_back(start_redis, serve, record_property):
    version = max(redis_binaries())
    if version < (7,):
        pytest.skip("the bus port can be chosen since 7.0")
    nodes = cluster_of(start_redis, options=DURABLE | {"cluster-require-full-coverage": "no"})
    two = [serve(cluster_url(nodes)) for _ in range(2)]
    names = [f"c-{number}" for number in range(9)]

    def client(number: int, name: str) -> Client:
        return Client(two[number].address, cluster=name, timeout=30)

    for name in names:
        with client(0, name) as at:
            at.apply([*zones(), pod("web-0")])
        with client(1, name) as at:
            assert at.node_table().names == ("n-a", "n-b", "n-c")
    homes = {name: next(node for node in nodes if is_node(node, name)) for name in names}
    assert len(set(map(id, homes.values()))) == 3
    victim = homes[names[0]]

    victim.kill()
    for name in names:
        with client(1, name) as at:
            assert len(at.node_table().names) == 3
            if homes[name] is victim:
                with pytest.raises((Unavailable, DeadlineExceeded)):
                    at.apply([pod("web-1")])
            else:
                at.apply([pod("web-1")])
    victim.start()
    began = time.monotonic()
    for name in names:
        with client(0, name) as at:
            until(partial(applied, at, "web-2"), "it is written")
    record_property("seconds_until_all_were_written", round(time.monotonic() - began, 3))
    for name in names:
        expected = {"web-0", "web-2"} | ({"web-1"} if homes[name] is not victim else set())
        for number in range(2):
            with client(number, name) as at:
                assert stored_pods(at) >= expected


def applied(client: Client, name: str) -> bool:
    try:
        client.apply([pod(name)])
    except (Unavailable, DeadlineExceeded):
        return False
    return True
