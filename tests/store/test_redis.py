"""What only Redis can show: its keys, half-done scripts, lost keys, frozen and dead servers."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from redis.crc import key_slot

from tests.redis_topologies import info
from tests.store.backends import (
    CLUSTER,
    RedisBackend,
    dump,
    follow_all,
    node,
    objects,
    part,
    pod,
    put,
    write_many,
)
from tests.store.conftest import SETTINGS
from tests.waiting import until
from topospread.errors import Conflict, IdentityChanged, RevisionUnavailable, StoreUnavailable
from topospread.store.api import get_one
from topospread.store.model import (
    Change,
    Head,
    Key,
    Kind,
    Remove,
    Revision,
    Unchanged,
)
from topospread.store.redis.client import RedisClient

PARTS = {
    "meta": b"hash",
    "object": b"hash",
    "names": b"zset",
    "log": b"stream",
    "touched": b"hash",
    "tombstone": b"hash",
    "buried": b"zset",
    "expiry": b"zset",
    "lease": b"hash",
}
SHORT = replace(SETTINGS, timeout=1.0)
LONG = 60.0
ENDLESS = 3600.0
"""Longer than a test may last: such a wait ends for another reason, or the test fails."""


def fill(store):
    """Something under every key."""
    web = Key(Kind.STATEFUL_SET, "default", "web")
    reserved = replace(put(Key(Kind.RESERVATION, "default", "web-9"), "1"), lifetime=3_600_000)
    changes = [put(key, "1") for key in (node(), pod(), pod("old"), web)]
    store.apply(CLUSTER, [*changes, reserved])
    store.apply(CLUSTER, [Remove(pod("old"), up_to_version="5")])
    store.acquire(CLUSTER, "one", 60_000)


# Touches every key: objects and names, both ways, log, scopes, tombstones made and forgotten.
EVERYTHING: list[Change] = [
    put(node(), "2"),
    Remove(pod(), up_to_version="7"),
    put(pod("old"), "9"),
    put(Key(Kind.SERVICE, "default", "web")),
    Remove(Key(Kind.RESERVATION, "default", "web-9")),
]


def test_the_keys_are_as_documented_and_share_a_slot(redis_store, client):
    fill(redis_store)

    assert {name.decode(): client.type(name) for name in client.scan_iter()} == {
        part(name): kind for name, kind in PARTS.items()
    }
    assert len({key_slot(part(name).encode()) for name in PARTS}) == 1
    names = [b"1//node-1", b"2/default/web-1", b"6/default/web", b"7/default/web-9"]
    assert sorted(client.hkeys(part("object"))) == names
    assert client.zrange(part("names"), 0, -1) == [name.replace(b"/", b"\0") for name in names]
    assert client.zrange(part("expiry"), 0, -1) == names[3:]
    assert client.hgetall(part("touched")) == {b"nodes/": b"1", b"default": b"2"}
    assert [identifier for identifier, _ in client.xrange(part("log"))] == [b"1-0", b"2-0"]
    assert client.hget(part("meta"), "format") == b"2"


@pytest.mark.parametrize("name", PARTS)
def test_a_key_of_a_wrong_type_leaves_everything_as_it_was(redis_store, client, name):
    fill(redis_store)
    client.set(part(name), "something else")
    before = dump(client)
    # The lease is read where a fence is given, and by itself.
    fence = int(name == "lease")

    with pytest.raises(StoreUnavailable, match="holds something else"):
        redis_store.apply(CLUSTER, EVERYTHING, fence=fence)
    if fence:
        with pytest.raises(StoreUnavailable, match="holds something else"):
            redis_store.acquire(CLUSTER, "one", 60_000)

    assert dump(client) == before
    redis_store.drop(CLUSTER)
    assert redis_store.apply(CLUSTER, [put(node())]).revision.number == 1
    assert redis_store.acquire(CLUSTER, "two", 60_000).holder == "two" or name != "lease"


@pytest.mark.parametrize("name", [name for name in PARTS if name not in ("meta", "lease")])
def test_leftovers_of_a_cluster_without_meta_are_no_part_of_the_next(redis_store, client, name):
    client.set(part(name), "something else")

    redis_store.apply(CLUSTER, [Remove(node())])
    assert client.keys() == []
    client.set(part(name), "something else")
    assert redis_store.apply(CLUSTER, [put(pod())]).revision.number == 1
    assert list(objects(redis_store)) == [pod()]


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [("maxmemory", "1", "out of memory"), ("min-replicas-to-write", "1", "fewer replicas")],
)
def test_a_redis_that_refuses_writes_leaves_everything_as_it_was(
    redis_store, client, setting, value, text
):
    fill(redis_store)
    before = dump(client)
    client.config_set(setting, value)
    try:
        with pytest.raises(StoreUnavailable, match=text):
            redis_store.apply(CLUSTER, EVERYTHING)
        assert dump(client) == before
        assert get_one(redis_store, CLUSTER, node()) is not None
    finally:
        client.config_set(setting, "0")
    assert redis_store.apply(CLUSTER, EVERYTHING).revision.number == 3


def test_a_redis_without_memory_is_read_and_followed(server, redis_store, client):
    fill(redis_store)
    head, stored = redis_store.head(CLUSTER), objects(redis_store)
    client.config_set("maxmemory", "1")
    client.script_flush()
    late = RedisBackend(server.url).open(SETTINGS)
    try:
        for store in (redis_store, late):
            assert store.head(CLUSTER) == head
            assert not store.head("unknown").identity
            assert objects(store) == stored
            assert get_one(store, CLUSTER, node()) == stored[node()]
            assert store.clusters() == [CLUSTER]
            assert [found.revision for found in follow_all(store)][-1] == head.revision
            assert store.follow(CLUSTER, head.identity, head.revision, wait=0) == []
            store.follow(CLUSTER, head.identity, head.revision, wait=0, limit=0)
            store.ping()
            with pytest.raises(StoreUnavailable, match="out of memory"):
                store.apply(CLUSTER, EVERYTHING)
    finally:
        client.config_set("maxmemory", "0")
        late.close()


def test_read_only_replica_is_recognized(redis_store, client):
    fill(redis_store)
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            redis_store.apply(CLUSTER, EVERYTHING, timeout=1)
    finally:
        client.replicaof("NO", "ONE")
    assert redis_store.apply(CLUSTER, EVERYTHING).revision.number == 3


def test_a_log_ahead_of_its_meta_is_refused_untouched(redis_store, client):
    fill(redis_store)
    client.xadd(part("log"), {"t": "x", "p": "y"}, id="9-0")
    before = dump(client)

    with pytest.raises(StoreUnavailable, match="ahead of its meta"):
        redis_store.apply(CLUSTER, EVERYTHING)
    assert dump(client) == before


def test_sending_the_script_again_has_what_is_left_of_the_time(redis_store, client, monkeypatch):
    given = []

    def call(self, command, *args, timeout, **how):
        given.append((command, timeout))
        return sent(self, command, *args, timeout=timeout, **how)

    sent = RedisClient.call
    monkeypatch.setattr(RedisClient, "call", call)
    client.script_flush()
    redis_store.apply(CLUSTER, EVERYTHING, timeout=LONG)

    (first, before), (second, after) = given
    assert (first, second) == ("EVALSHA", "EVAL")
    assert after < before <= LONG


def test_a_flushed_redis_is_another_store(redis_store, client):
    head = write_many(redis_store, 5)[-1]
    identity = redis_store.head(CLUSTER).identity
    client.flushall()

    with pytest.raises(IdentityChanged, match="does not exist"):
        redis_store.follow(CLUSTER, identity, head, wait=LONG)
    assert redis_store.head(CLUSTER) == Head("", Revision())
    assert client.keys() == [], "nothing is repaired"
    redis_store.apply(CLUSTER, [put(node())])
    with pytest.raises(IdentityChanged, match="another identity"):
        redis_store.follow(CLUSTER, identity, head, wait=LONG)
    with pytest.raises(IdentityChanged, match="another identity"):
        redis_store.apply(CLUSTER, [put(pod())], identity=identity)
    assert redis_store.head(CLUSTER).replaced == ()
    assert not redis_store.head(CLUSTER).complete


def test_a_lost_log_is_a_trimmed_one(redis_store, client):
    revisions = write_many(redis_store, 5)
    identity = redis_store.head(CLUSTER).identity
    client.delete(part("log"))

    assert not redis_store.follow(CLUSTER, identity, revisions[-1], wait=0)
    with pytest.raises(RevisionUnavailable, match="trimmed"):
        redis_store.follow(CLUSTER, identity, revisions[-2], wait=LONG)
    news = redis_store.apply(CLUSTER, [put(node())]).revision
    assert news.number == 6
    (found,) = redis_store.follow(CLUSTER, identity, revisions[-1], wait=LONG)
    assert found.revision == news


def test_hole_in_the_log_is_detected_when_it_is_reached(redis_store, client):
    revisions = write_many(redis_store, 5)
    identity = redis_store.head(CLUSTER).identity
    client.xdel(part("log"), "3-0")

    found = redis_store.follow(CLUSTER, identity, Revision(), wait=0)

    assert [transaction.revision for transaction in found] == revisions[:2]
    with pytest.raises(RevisionUnavailable, match="trimmed"):
        redis_store.follow(CLUSTER, identity, revisions[1], wait=LONG)


@pytest.mark.parametrize("fields", [{"something": "else"}, {"t": b"\xff", "p": b"\xfe"}])
def test_a_log_entry_of_others_asks_for_a_new_list(redis_store, client, fields):
    head = write_many(redis_store, 1)[-1]
    identity = redis_store.head(CLUSTER).identity
    client.xadd(part("log"), fields, id="2-0")

    with pytest.raises(RevisionUnavailable, match="cannot be read"):
        redis_store.follow(CLUSTER, identity, head, wait=LONG)


def test_fields_of_others_are_passed_over(redis_store, client):
    fill(redis_store)
    before = objects(redis_store)
    # What has no name among the names, and kinds that a newer version has.
    client.hset(part("object"), mapping={"2/default/x": "x", "no-slash": "y", "99/default/x": "z"})
    client.zadd(part("names"), {"99\0default\0x": 0, "98\0default\0x": 0, "x": 0})

    assert objects(redis_store) == before


def test_objects_that_are_lost_are_not_taken_for_none(redis_store, client):
    fill(redis_store)
    client.hdel(part("object"), "1//node-1")

    with pytest.raises(StoreUnavailable, match="an object that it lost"):
        redis_store.scan(CLUSTER, Kind.NODE)
    assert redis_store.get(CLUSTER, [node()]) == []
    assert redis_store.scan(CLUSTER, Kind.POD).objects
    # Whoever writes it anew makes it whole.
    redis_store.apply(CLUSTER, [put(node(), "1")])
    assert [each.key for each in redis_store.scan(CLUSTER, Kind.NODE).objects] == [node()]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("meta", "number", "x"),
        ("meta", "number", ""),
        ("meta", "number", "-1"),
        ("meta", "number", "1" * 16),
        ("meta", "total", ":"),
        ("meta", "listed", "x"),
        ("meta", "feed", "x"),
        ("meta", "identity", "a b"),
        ("meta", "identity", b"\xff"),
        ("meta", "tag", b"\xff"),
        ("touched", "default", "99"),
        ("touched", "default", "x"),
    ],
)
def test_a_note_of_others_is_refused_before_anything_is_written(
    redis_store, client, name, field, value
):
    fill(redis_store)
    seen = Unchanged(redis_store.head(CLUSTER).revision, ("default",))
    client.hset(part(name), field, value)
    before = dump(client)

    with pytest.raises(StoreUnavailable, match="put it right, or drop the cluster"):
        redis_store.apply(CLUSTER, EVERYTHING, precondition=seen)

    assert dump(client) == before
    redis_store.drop(CLUSTER)
    assert redis_store.apply(CLUSTER, EVERYTHING).revision.number == 1


def test_transaction_numbers_have_fifteen_digits(redis_store, client):
    write_many(redis_store, 1)
    start = 10**15 - 6
    client.xadd(part("log"), {"t": "before", "p": "x"}, id=f"{start}-0")
    client.hset(part("meta"), mapping={"number": start, "tag": "before"})

    revisions = [Revision(start, "before"), *write_many(redis_store, 5, namespace="later")]

    assert [revision.number for revision in revisions] == list(range(start, start + 6))
    found = follow_all(redis_store, after=revisions[0])
    assert [transaction.revision for transaction in found] == revisions[1:]
    for seen in revisions[:-1]:
        with pytest.raises(Conflict):
            redis_store.apply(CLUSTER, [], precondition=Unchanged(seen, ("later",)))
    redis_store.apply(CLUSTER, [put(node())], precondition=Unchanged(revisions[-1], ("later",)))
    before = dump(client)
    with pytest.raises(StoreUnavailable, match="number is"):
        redis_store.apply(CLUSTER, [put(pod())])
    assert dump(client) == before


def test_dropping_leaves_a_mark_that_ends_by_itself(redis_store, client):
    fill(redis_store)
    redis_store.drop(CLUSTER)

    left = [part("lease"), part("meta")]
    assert sorted(client.keys()) == [name.encode() for name in left]
    assert all(86_000 < client.ttl(name) <= 86_400 for name in left)
    fill(redis_store)
    assert [client.ttl(name) for name in left] == [-1, -1]


def test_waits_and_wakes_use_up_no_connections(redis_store, client):
    head = write_many(redis_store, 1)[-1]
    identity = redis_store.head(CLUSTER).identity
    before = client.info("stats")["total_connections_received"]

    for number in range(100):
        redis_store.wake(CLUSTER)
        assert not redis_store.follow(CLUSTER, identity, head, wait=LONG)
        redis_store.follow(CLUSTER, identity, head, wait=0.0001)
        if number % 10 == 0:
            head = redis_store.apply(CLUSTER, [put(pod(f"n-{number}"))]).revision

    # The one that waits.
    assert client.info("stats")["total_connections_received"] <= before + 1


def test_more_threads_than_connections_take_turns(server):
    store = RedisBackend(server.url).open(replace(SETTINGS, connections=2))
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(write_many, store, 10, CLUSTER, f"ns-{n}") for n in range(16)]
        for job in jobs:
            job.result()

    assert store.head(CLUSTER).revision.number == 160
    store.close()


@pytest.fixture
def own(start_redis):
    """A server of the test's own that keeps every acknowledged write."""
    return start_redis(options={"appendonly": "yes", "appendfsync": "always"})


@pytest.fixture
def own_store(own):
    opened = RedisBackend(own.url).open(SETTINGS)
    yield opened
    opened.close()


@pytest.fixture
def hasty(own):
    """A store on the same server that waits for no answer for long."""
    opened = RedisBackend(own.url).open(SHORT)
    yield opened
    opened.close()


def test_a_killed_server_is_unavailable_and_has_every_write_afterwards(own, own_store):
    revisions = write_many(own_store, 20)
    identity = own_store.head(CLUSTER).identity
    own.kill()

    for call in (
        lambda: own_store.apply(CLUSTER, [put(node())]),
        lambda: own_store.follow(CLUSTER, identity, revisions[-1], wait=LONG),
        lambda: own_store.head(CLUSTER),
        lambda: own_store.scan(CLUSTER, Kind.POD),
        lambda: own_store.get(CLUSTER, [pod()]),
        own_store.ping,
        own_store.clusters,
    ):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            call()
    own.start()

    seen = Unchanged(revisions[-1], ("default", "nodes/"))
    applied = own_store.apply(CLUSTER, [put(node())], precondition=seen)
    assert applied.previous == revisions[-1]
    (found,) = own_store.follow(CLUSTER, identity, revisions[-1], wait=LONG)
    assert found.revision == applied.revision
    assert len(objects(own_store)) == 21


def test_a_command_that_is_repeated_is_a_line_at_debug_each_time(own, own_store, caplog):
    caplog.set_level(logging.DEBUG, logger="topospread.store.redis")
    own.kill()

    with pytest.raises(StoreUnavailable):
        own_store.head(CLUSTER)
    assert [each.getMessage() for each in caplog.records] == [
        f"try {number} failed, another follows: Redis cannot be reached; retry"
        for number in range(1, SETTINGS.attempts)
    ]


def test_following_goes_on_after_a_restart(own, own_store):
    head = write_many(own_store, 1)[-1]
    identity = own_store.head(CLUSTER).identity
    assert not own_store.follow(CLUSTER, identity, head, wait=0.001)
    # One connection waits for a place that is passed by now, so that it is idle at the restart.
    head = own_store.apply(CLUSTER, [put(node())]).revision
    own.restart()

    assert not own_store.follow(CLUSTER, identity, head, wait=0.001)
    news = own_store.apply(CLUSTER, [put(node("n"))]).revision
    (found,) = own_store.follow(CLUSTER, identity, head, wait=LONG)
    assert found.revision == news


def test_a_call_may_take_longer_than_the_default_when_its_caller_says_so(own, own_store, hasty):
    write_many(own_store, 1)
    seen = Unchanged(Revision(), ("elsewhere",))
    with own.client() as client:
        client.client_pause(round(SHORT.timeout * 2000))

    applied = hasty.apply(CLUSTER, [put(node())], precondition=seen, timeout=LONG)

    assert applied.revision.number == 2


def test_a_server_killed_during_a_wait_ends_it(own, own_store):
    head = write_many(own_store, 1)[-1]
    identity = own_store.head(CLUSTER).identity

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(own_store.follow, CLUSTER, identity, head, wait=LONG)
        until_blocked(own)
        own.kill()

        with pytest.raises(StoreUnavailable):
            waiting.result(LONG)


def test_a_frozen_server_is_unavailable_within_the_time(own, own_store, hasty):
    head = write_many(own_store, 1)[-1]
    identity = own_store.head(CLUSTER).identity
    own.pause()

    with pytest.raises(StoreUnavailable, match="in time"):
        own_store.apply(CLUSTER, [put(node())], timeout=0.05)
    with pytest.raises(StoreUnavailable, match="in time"):
        hasty.follow(CLUSTER, identity, head, wait=ENDLESS)
    own.resume()

    # The write that got no answer happened after all, once: repeating it is safe.
    assert own_store.apply(CLUSTER, [put(node())]).revision.number == 2
    assert len(follow_all(own_store)) == 2


def test_a_look_at_a_frozen_server_takes_no_longer_than_the_call(own, monkeypatch):
    monkeypatch.setattr("topospread.store.redis.client.CHECK_INTERVAL", 0.0)
    store = RedisBackend(own.url).open(replace(SETTINGS, timeout=ENDLESS))
    store.head(CLUSTER)
    own.pause()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(store.head, CLUSTER, timeout=0.05)
        try:
            with pytest.raises(StoreUnavailable, match="in time"):
                asked.result(LONG)
        finally:
            own.resume()
    store.close()


def test_a_frozen_server_ends_a_wait(own, own_store, hasty):
    head = write_many(own_store, 1)[-1]
    identity = own_store.head(CLUSTER).identity

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hasty.follow, CLUSTER, identity, head, wait=LONG)
        until_blocked(own)
        own.pause()

        with pytest.raises(StoreUnavailable, match="in time"):
            waiting.result(LONG)
    own.resume()


def test_a_wake_reaches_a_wait_on_a_frozen_server(own, own_store):
    head = write_many(own_store, 1)[-1]
    identity = own_store.head(CLUSTER).identity

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(own_store.follow, CLUSTER, identity, head, wait=LONG)
        until_blocked(own)
        own.pause()
        own_store.wake(CLUSTER)

        assert not waiting.result(LONG)
    own.resume()


def until_blocked(server) -> None:
    """Until a follower waits inside Redis."""
    until(lambda: info(server, "clients")["blocked_clients"], "somebody waits")


def test_clusters_are_listed_in_few_round_trips(redis_store, monkeypatch):
    for number in range(60):
        redis_store.apply(f"c-{number}", [put(node())])
    trips: list[object] = []
    exchange = RedisClient._exchange

    def call(self, *arguments):
        trips.append(arguments)
        return exchange(self, *arguments)

    monkeypatch.setattr(RedisClient, "_exchange", call)
    assert len(redis_store.clusters()) == 60
    assert len(trips) <= 10
