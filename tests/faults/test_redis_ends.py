"""Redis, or a node of a Redis Cluster, ends under load and comes back with its data."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import Load, counted_pods, pod, stored_pods, zones
from tests.faults.conftest import DURABLE
from tests.redis_server import redis_binaries
from tests.redis_topologies import cluster_of, cluster_url, is_node
from tests.servers import incoming
from tests.waiting import until
from topospread_client import Client, DeadlineExceeded, Unavailable, best

if TYPE_CHECKING:
    from collections.abc import Callable

STALE = {"max_staleness": 0.001}
EXPECTED_ERRORS = {"Unavailable", "DeadlineExceeded"}
"""Errors that writers may get: it cannot be done now, or there was no answer in time."""


@pytest.fixture
def check(two, call) -> Callable[[Load], None]:
    """Nothing that was acknowledged is lost, no read failed, and both servers count the same."""

    def checked(load: Load) -> None:
        assert load.unread == []
        assert set(load.refused) <= EXPECTED_ERRORS
        clients = [call(server) for server in two]
        stored = stored_pods(clients[0])
        assert set(load.acknowledged) <= stored
        assert [counted_pods(client) for client in clients] == [len(stored)] * 2

    return checked


def one_outage(load: Load, stop, go_on) -> float:
    """Seconds that it took to write again after a store was back."""
    load.until_written()
    stop()
    load.until_read(50)
    until(lambda: load.refused["Unavailable"] > 0, "writers get errors")
    go_on()
    back = time.monotonic()
    load.until_written()
    return load.resumed_after(back)


def test_killed_under_load_it_has_every_acknowledged_write(two, durable, check, record_property):
    with Load([server.address for server in two]) as load:
        seconds = one_outage(load, durable.kill, durable.start)

    record_property("seconds_until_writes_went_on", round(seconds, 3))
    check(load)


def test_during_an_outage_nothing_is_placed_and_only_released_places_end(durable, serve, call):
    http = ("--http", "127.0.0.1:0")
    stays, leaves = serve(durable.url, *http), serve(durable.url, *http, "--unready-when-stale")
    revision = call(stays).apply_objects(zones()).meta.revision
    for server in (stays, leaves):
        call(server).get_node_table(consistency=revision)
        assert server.get("/readyz")[0] == 200

    durable.kill()
    until(lambda: leaves.get("/readyz")[0] == 503, "readiness reports it")
    assert stays.get("/readyz")[0] == 200
    for server in (stays, leaves):
        client = call(server)
        answer = client.evaluate_pod(incoming())
        assert best(answer) is not None
        assert answer.meta.HasField("store_unreachable_for")
        for place in (
            lambda client=client: client.place_pod(incoming()),
            lambda client=client: client.reserve_node(incoming(), "n-a"),
            lambda client=client: client.release_reservation("default/incoming"),
            lambda client=client: client.apply_objects(zones()),
        ):
            with pytest.raises(Unavailable) as refused:
                place()
            assert refused.value.retry_after

    durable.start()
    until(lambda: leaves.get("/readyz")[0] == 200, "it is back")
    assert call(leaves).place_pod(incoming()).node


@pytest.mark.faults
def test_killed_again_and_again(two, durable, check, record_property):
    with Load([server.address for server in two]) as load:
        seconds = [one_outage(load, durable.kill, durable.start) for _ in range(4)]

    record_property("seconds_until_writes_went_on", [round(each, 3) for each in seconds])
    check(load)


def test_frozen_it_holds_up_no_decision(two, durable, check, call):
    with Load([server.address for server in two]) as load:
        one_outage(load, durable.pause, durable.resume)
        until(lambda: fresh(call(two[0])), "it is fresh again")
    check(load)


@pytest.mark.faults
def test_frozen_for_longer_than_every_time_out(two, durable, check, call, record_property):
    began = time.monotonic()
    client = call(two[0])

    def unreachable_for() -> float:
        (cluster,) = client.list_clusters()
        return cluster.store_unreachable_for.ToTimedelta().total_seconds()

    def go_on() -> None:
        until(lambda: unreachable_for() > 4, "every call of the store has ended")
        with pytest.raises(Unavailable, match="max_staleness"):
            client.get_node_table(consistency=STALE)
        assert 4 < unreachable_for() < time.monotonic() - began
        durable.resume()

    with Load([server.address for server in two]) as load:
        seconds = one_outage(load, durable.pause, go_on)

    record_property("seconds_until_writes_went_on", round(seconds, 3))
    check(load)


def fresh(client) -> bool:
    try:
        client.get_node_table(consistency=STALE)
    except Unavailable:
        return False
    return True


def test_connections_that_are_cut_are_made_anew(two, durable, check):
    with Load([server.address for server in two]) as load, durable.client() as redis:
        for _ in range(10):
            load.until_written(5)
            redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        load.until_written()
    check(load)


def test_a_redis_that_still_loads_is_waited_for(two, durable, check):
    with Load([server.address for server in two]) as load:
        load.until_written()
        # Stopped the polite way, in the middle of calls.
        durable.restart()
        load.until_written()
    check(load)


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
