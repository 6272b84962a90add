"""More than one Redis server: Sentinels, a Redis Cluster, writes that wait for replicas."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.redis_server import free_port, redis_binaries
from tests.redis_topologies import (
    cluster_of,
    cluster_url,
    fail_over,
    is_node,
    replica_of,
    sentinel_of,
    sentinel_url,
    sentinels_of,
)
from tests.store.backends import follow_all, node, objects, put, write_many
from tests.store.conftest import SETTINGS
from tests.store.test_redis_access import IMPATIENT, QUOTED, add_user, opened, works
from tests.waiting import until
from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.model import Remove, Unchanged

LONG = 60.0
NAMES = [f"c-{number}" for number in range(12)]


@pytest.fixture
def chosen_ports(redis_binary):
    """A Redis whose bus port can be chosen."""
    version = next(version for version, path in redis_binaries().items() if path == redis_binary)
    if version < (7,):
        pytest.skip("the bus port can be chosen since 7.0")


@pytest.fixture
def nodes(start_redis, chosen_ports):
    del chosen_ports
    return cluster_of(start_redis)


@pytest.fixture
def store(nodes):
    store = opened(cluster_url(nodes))
    yield store
    store.close()


def test_clusters_are_spread_over_the_nodes_however_these_are_named(nodes):
    dead = free_port()
    for url in (
        cluster_url(nodes),
        # One node is enough to find the others, also one that is named as a single server.
        f"redis+cluster://127.0.0.1:{dead},127.0.0.1:{nodes[1].port}",
        nodes[0].url,
    ):
        store = opened(url)
        assert store.address == url.replace("redis://", "redis+cluster://")
        for name in NAMES:
            store.apply(name, [put(node(name))])
        assert store.clusters() == sorted(NAMES)
        for name in NAMES:
            assert list(objects(store, name)) == [node(name)]
            assert len(follow_all(store, name)) == 1
            assert sum(is_node(server, name) for server in nodes) == 1
        assert all(any(is_node(server, name) for name in NAMES) for server in nodes)
        store.ping()
        store.close()
    with pytest.raises(StoreUnavailable, match="database 0 only"):
        opened(f"{nodes[0].url}/3")


def test_every_cluster_can_be_waited_for(store):
    heads = {name: store.apply(name, [put(node())]) for name in NAMES}

    with ThreadPoolExecutor(len(NAMES)) as pool:
        waiting = {
            name: pool.submit(store.follow, name, head.identity, head.revision, wait=LONG)
            for name, head in heads.items()
        }
        for name in NAMES:
            news = store.apply(name, [put(node("news"))]).revision
            (found,) = waiting[name].result(LONG)
            assert found.revision == news


def test_nodes_that_say_no_address_are_where_the_first_one_is(start_redis, chosen_ports):
    del chosen_ports
    says_none = {"cluster-preferred-endpoint-type": "unknown-endpoint"}
    store = opened(cluster_url(cluster_of(start_redis, options=says_none)))

    for name in NAMES:
        store.apply(name, [put(node())])
    assert store.clusters() == sorted(NAMES)
    store.close()


def test_the_map_is_not_asked_of_a_node_that_did_not_answer(nodes, monkeypatch):
    """It would take all of the time-out, which no test outlasts."""
    monkeypatch.setattr("topospread.store.redis.topology.MAP_REFRESH_INTERVAL", 0.0)
    store = opened(cluster_url(nodes), settings=replace(SETTINGS, timeout=3600.0))
    for name in NAMES:
        store.apply(name, [put(node())])
    silent = [name for name in NAMES if is_node(nodes[0], name)]
    others = [name for name in NAMES if name not in silent]
    # The others shall not take the cluster for down.
    for server in nodes[1:]:
        with server.client() as client:
            client.config_set("cluster-require-full-coverage", "no")
    topology = store._clients.topology
    pool_of_silent = topology.pool(silent[0]).commands
    nodes[0].pause()
    with ThreadPoolExecutor(1) as pool:
        try:
            for number in range(20):
                topology.invalidate(pool_of_silent)
                asked = pool.submit(store.head, others[number % len(others)])
                assert asked.result(LONG).revision.number == 1
        finally:
            nodes[0].resume()
    store.close()


def move(nodes, name):
    """Move the slot of a cluster to another node; returns its new home."""
    home = next(server for server in nodes if is_node(server, name))
    goal = next(server for server in nodes if server is not home)
    with home.client() as source, goal.client() as target:
        slot = source.execute_command("CLUSTER KEYSLOT", f"ts:{{{name}}}:meta")
        _begin_to_move(source, target, slot)
        _move_keys(source, goal, source.execute_command("CLUSTER GETKEYSINSLOT", slot, 100))
        _end_move(source, target, slot)
    return goal


def _begin_to_move(source, target, slot):
    source_id = source.execute_command("CLUSTER MYID")
    target_id = target.execute_command("CLUSTER MYID")
    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)


def _move_keys(source, goal, keys):
    source.execute_command("MIGRATE", "127.0.0.1", goal.port, "", 0, 5000, "KEYS", *keys)


def _end_move(source, target, slot):
    target_id = target.execute_command("CLUSTER MYID")
    for client in (target, source):
        client.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)


def test_a_cluster_that_moves_to_another_node_is_found_there(store, nodes):
    name = NAMES[0]
    revision = write_many(store, 3, name)[-1]
    identity = store.head(name).identity
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_follow_on, store, name, identity, revision)

        home = move(nodes, name)

        assert is_node(home, name)
        seen = Unchanged(revision, ("default",))
        applied = store.apply(name, [put(node())], precondition=seen)
        (found,) = waiting.result(LONG)
    assert applied.previous == revision
    assert found.revision == applied.revision
    assert len(objects(store, name)) == 4


def _follow_on(store, name, identity, revision):
    """As a replica follows: an error is a reason to ask again."""
    deadline = time.monotonic() + LONG
    while (left := deadline - time.monotonic()) > 0:
        with suppress(StoreUnavailable):
            if found := store.follow(name, identity, revision, wait=left):
                return found
    raise AssertionError(f"nothing came in {LONG:g} s")


def test_a_write_outlasts_a_move_that_takes_its_time(store, nodes):
    name = NAMES[0]
    store.apply(name, [put(node())])
    home = next(server for server in nodes if is_node(server, name))
    goal = next(server for server in nodes if server is not home)
    with home.client() as source, goal.client() as target, ThreadPoolExecutor(1) as pool:
        slot = source.execute_command("CLUSTER KEYSLOT", f"ts:{{{name}}}:meta")
        _begin_to_move(source, target, slot)
        keys = source.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
        _move_keys(source, goal, keys[:1])
        # Some keys here, some there: neither node can run it, and it says so at once.
        written = pool.submit(store.apply, name, [put(node("late"))], timeout=LONG)
        with pytest.raises(TimeoutError):
            written.result(0.5)
        _move_keys(source, goal, keys[1:])
        _end_move(source, target, slot)

        assert written.result(LONG).revision.number == 2
    assert is_node(goal, name)


def test_a_missing_node_takes_its_clusters_only(store, nodes):
    for name in NAMES:
        store.apply(name, [put(node())])
    lost = [name for name in NAMES if is_node(nodes[2], name)]
    # Else the whole of it stops.
    for server in nodes:
        with server.client() as client:
            client.config_set("cluster-require-full-coverage", "no")
    nodes[2].kill()

    for name in NAMES:
        if name in lost:
            with pytest.raises(StoreUnavailable):
                store.apply(name, [put(node("n"))], timeout=0.5)
        else:
            store.apply(name, [put(node("n"))])


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_without_memory_they_are_read_and_followed(start_redis, request, kind):
    if kind == "cluster":
        servers = request.getfixturevalue("nodes")
        url = cluster_url(servers)
    else:
        servers = [start_redis()]
        url = sentinel_url(sentinel_of(servers[0], start_redis, replicas=0))
    store = opened(url)
    heads = {name: store.apply(name, [put(node(name))]) for name in NAMES}
    for server in servers:
        with server.client() as client:
            client.config_set("maxmemory", "1")

    late = opened(url)
    for each in (store, late):
        assert each.clusters() == sorted(NAMES)
        for name, head in heads.items():
            assert each.head(name).revision == head.revision
            assert list(objects(each, name)) == [node(name)]
            assert len(follow_all(each, name)) == 1
            assert each.follow(name, head.identity, head.revision, wait=0) == []
            with pytest.raises(StoreUnavailable, match="out of memory"):
                each.apply(name, [put(node("refused"))])
        each.close()


def test_unreachable_store_is_reported(start_redis):
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        opened(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{free_port()}", None, IMPATIENT)
    with pytest.raises(StoreUnavailable, match="no Sentinel answers"):
        opened(f"redis+sentinel://127.0.0.1:{free_port()}/main", None, IMPATIENT)
    single = start_redis()
    with pytest.raises(StoreUnavailable, match="write redis://"):
        opened(single.url.replace("redis://", "redis+cluster://"), None, IMPATIENT)
    sentinel = sentinel_of(single, start_redis, replicas=0)
    with pytest.raises(StoreUnavailable, match="of that name"):
        opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/other", None, IMPATIENT)
    with pytest.raises(ConfigError, match=r"redis\+sentinel://"):
        opened(sentinel.url)


def test_sentinels_lead_to_the_master_and_to_the_next_one(start_redis):
    master = start_redis()
    replica = replica_of(master, start_redis)
    sentinels = sentinels_of(master, start_redis, count=2)
    # One of three is dead: the others are a majority.
    url = sentinel_url(*sentinels).replace("//", f"//127.0.0.1:{free_port()},")
    store = opened(url)
    assert store.address == f"{url}/0"
    revision = write_many(store, 5)[-1]
    with master.client() as client:
        assert client.wait(1, 60_000) == 1

    fail_over(sentinels[0], master, replica)

    # Who speaks to the old master is refused or cut off there, and finds the new one.
    until(lambda: written(store), "it is written")
    identity = store.head("prod").identity
    found = store.follow("prod", identity, revision, wait=LONG)
    assert [transaction.revision.number for transaction in found] == [6]
    assert store.head("prod").revision == found[0].revision
    with replica.client() as client:
        assert client.hget("ts:{prod}:meta", "number") == b"6"
    store.close()


def written(store):
    try:
        return store.apply("prod", [put(node())])
    except StoreUnavailable:
        return None


def test_sentinels_with_a_password_of_their_own(start_redis):
    master = start_redis()
    sentinel = sentinel_of(master, start_redis, replicas=0)
    with master.client() as at_master, sentinel.client() as at_sentinel:
        at_sentinel.sentinel_set("main", "auth-pass", "one")
        at_master.config_set("requirepass", "one")
        at_sentinel.acl_setuser("default", enabled=True, passwords=["+two"])
    url = sentinel_url(sentinel).replace("//", "//:one@")

    assert works(opened(url, {"TOPOSPREAD_REDIS_SENTINEL_PASSWORD": "two"}))
    with pytest.raises(StoreUnavailable, match="takes our password"):
        opened(url, settings=IMPATIENT)


def test_a_sentinel_user_needs_few_rights(start_redis):
    master = start_redis()
    sentinel = sentinel_of(master, start_redis, replicas=0)
    with sentinel.client() as client:
        client.execute_command("ACL", "SETUSER", "guard", "on", ">two", *SENTINEL_RIGHTS.split())
    environ = {
        "TOPOSPREAD_REDIS_SENTINEL_USERNAME": "guard",
        "TOPOSPREAD_REDIS_SENTINEL_PASSWORD": "two",
    }
    assert works(opened(sentinel_url(sentinel), environ))


SENTINEL_RIGHTS = "&* -@all +sentinel +psubscribe +@connection"
"""As docs/operations.md names them."""

WAITS = replace(SETTINGS, wait_replicas=1)


def test_a_call_that_is_repeated_writes_again(start_redis):
    """WAIT of Redis 8 waits for nothing where the call before it wrote nothing."""
    server = start_redis()
    store = opened(server.url)

    def written():
        with server.client() as client:
            return client.info("persistence")["rdb_changes_since_last_save"]

    for change in (
        lambda: store.apply("prod", [put(node())]),
        lambda: store.apply("prod", [Remove(node())]),
        lambda: store.drop("prod"),
    ):
        change()
        before = written()
        change()
        assert written() > before
    store.close()


def test_a_write_waits_for_replicas(start_redis):
    master = start_redis()
    replica = replica_of(master, start_redis)
    store = opened(master.url, settings=WAITS)
    assert not [warning for warning in store.warnings if "replicas" in warning]

    store.apply("prod", [put(node())])
    with replica.client() as client:
        assert client.hget("ts:{prod}:meta", "number") == b"1"
    replica.pause()
    with pytest.raises(StoreUnavailable, match="written, but only 0 of 1 replicas"):
        store.apply("prod", [put(node("late"))], timeout=1.0)
    # It stays, and saying it again waits again.
    assert set(objects(store, "prod")) == {node(), node("late")}
    with pytest.raises(StoreUnavailable, match="only 0 of 1"):
        store.apply("prod", [put(node("late"))], timeout=1.0)
    replica.resume()

    applied = store.apply("prod", [put(node("late"))], timeout=LONG)

    assert applied.revision == applied.previous
    assert applied.revision.number == 2
    with replica.client() as client:
        assert client.hget("ts:{prod}:meta", "number") == b"2"
    store.close()


@pytest.mark.parametrize("topology", ["cluster", "sentinel", "replica"])
def test_the_least_rights_are_enough(start_redis, chosen_ports, topology):
    del chosen_ports
    login = f"//spread:{QUOTED}@"
    settings = SETTINGS
    if topology == "cluster":
        servers = cluster_of(start_redis)
        url = cluster_url(servers)
    else:
        servers = [start_redis()]
        url = servers[0].url
    if topology == "sentinel":
        url = sentinel_url(sentinel_of(servers[0], start_redis, replicas=0))
    if topology == "replica":
        replica_of(servers[0], start_redis)
        settings = WAITS
    for server in servers:
        add_user(server)

    assert works(opened(url.replace("//", login), settings=settings))


def test_the_right_to_wait_is_missed_at_once(start_redis):
    server = start_redis()
    with server.client() as client:
        client.acl_setuser(
            "half", enabled=True, nopass=True, keys=["ts:*"], commands=["+@all", "-wait"]
        )

    with pytest.raises(ConfigError, match=r"may not run wait .*\+wait"):
        opened(server.url.replace("://", "://half:any@"), settings=WAITS)


def test_too_few_replicas_are_warned_of(start_redis):
    store = opened(start_redis().url, settings=replace(SETTINGS, wait_replicas=2))

    assert any("wait for 2 replicas and Redis has 0" in warning for warning in store.warnings)
    store.close()
