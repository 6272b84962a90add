"""A Redis Cluster of three masters; test_failover.py has Sentinels."""

from __future__ import annotations

import time
from functools import partial

import pytest

from bench.campaigns.load import pod, stored_pods, zones
from tests.faults.conftest import DURABLE
from tests.redis_server import redis_binaries
from tests.redis_topologies import (
    cluster_of,
    cluster_url,
    is_node,
)
from tests.waiting import until
from topospread_client import Client, DeadlineExceeded, Unavailable


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
            at.apply_objects([*zones(), pod("web-0")])
        with client(1, name) as at:
            assert at.get_node_table().node_names == ["n-a", "n-b", "n-c"]
    homes = {name: next(node for node in nodes if is_node(node, name)) for name in names}
    assert len(set(map(id, homes.values()))) == 3
    victim = homes[names[0]]

    victim.kill()
    for name in names:
        with client(1, name) as at:
            assert len(at.get_node_table().node_names) == 3
            if homes[name] is victim:
                with pytest.raises((Unavailable, DeadlineExceeded)):
                    at.apply_objects([pod("web-1")])
            else:
                at.apply_objects([pod("web-1")])
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
        client.apply_objects([pod(name)])
    except (Unavailable, DeadlineExceeded):
        return False
    return True
