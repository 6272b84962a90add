"""An error at each step of the script that writes to Redis.

Redis does not undo a script that fails. So the script reads and checks first, and its first write
is the one that Redis may refuse; nothing that Redis does makes a later step fail. Here each step is
made to fail all the same: before the first write nothing may have changed, and after it no
answer may be wrong.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources

import pytest
import redis

from tests.store.backends import (
    CLUSTER,
    RedisBackend,
    dump,
    follow_all,
    node,
    objects,
    pod,
    put,
    replay,
)
from tests.store.conftest import SETTINGS
from topospread.errors import StoreUnavailable
from topospread.store.model import Change, Key, Kind, Put, Remove, Revision, StoredObject
from topospread.store.redis.script import apply_args, script_keys

RESERVATION = Key(Kind.RESERVATION, "default", "web-9")
FIRST_WRITE = "XADD"
GONE = "an object that it lost"


def reserved(name: str, lifetime: int) -> Put:
    key = Key(Kind.RESERVATION, "default", name)
    return Put(StoredObject(key, b"x", b"\0" * 8), lifetime=lifetime)


def fill(store) -> None:
    """Something under every key, and a reservation that is due."""
    store.apply(CLUSTER, [put(node(), "1"), put(pod(), "1"), put(pod("old"), "1")])
    store.apply(CLUSTER, [Remove(pod("old"), up_to_version="5")])
    store.apply(CLUSTER, [put(Key(Kind.STATEFUL_SET, "default", "web"), "1")])
    store.apply(CLUSTER, [reserved("web-9", 3_600_000)])
    store.apply(CLUSTER, [reserved("due", 0)])


# Touches every key, both ways.
EVERYTHING: list[Change] = [
    put(node(), "2"),
    Remove(pod(), up_to_version="7"),
    put(pod("old"), "9"),
    put(Key(Kind.SERVICE, "default", "web")),
    Remove(RESERVATION),
    reserved("web-10", 1000),
]


@pytest.fixture
def server(start_redis):
    return start_redis()


@pytest.fixture
def client(server):
    with server.client() as opened:
        yield opened


@pytest.fixture
def store(server):
    # A small log, so that trimming is among the steps.
    opened = RedisBackend(server.url).open(replace(SETTINGS, log_limit=4))
    yield opened
    opened.close()


def broken(text: str, step: int) -> str:
    """The script, with its n-th command failing; what it ran so far is kept under a key."""
    line = "local call = redis.call\n"
    assert text.count(line) == 1
    return text.replace(
        line,
        "local taken = 0\n"
        "local function call(...)\n"
        "  taken = taken + 1\n"
        f"  if taken == {step} then error('injected before ' .. (...)) end\n"
        "  return redis.call(...)\n"
        "end\n",
    )


def run_broken(client, store, step: int) -> str:
    """Run EVERYTHING with an error at that step; the command that did not run, or empty."""
    text = resources.files("topospread.store.redis").joinpath("store.lua").read_text("utf-8")
    names = script_keys(CLUSTER)
    words = apply_args(EVERYTHING, None, "", None, store._settings, force=False, fence=0)
    message = ""
    try:
        client.eval(broken(text, step), len(names), *names, *words)
    except redis.ResponseError as error:
        message = str(error)
    found = re.search(r"injected before (\w+)", message)
    assert bool(found) is bool(message), message
    return found[1].upper() if found else ""


def test_an_error_at_any_step(client, store):
    reading: list[str] = []
    writing: list[str] = []
    for step in range(1, 200):
        client.flushall()
        fill(store)
        before = dump(client)
        missed = run_broken(client, store, step)
        if not missed:
            break
        if missed == FIRST_WRITE or writing:
            writing.append(missed)
        else:
            reading.append(missed)
        if len(writing) <= 1:
            assert dump(client) == before, f"step {step} came after a write"
            whole(store)
        else:
            never_wrong(store)
    else:
        pytest.fail("the script never ends")
    # Otherwise steps were not found, and this proves nothing.
    assert {"HMGET", "HLEN", "XLEN", "ZCARD", "TIME", "ZRANGEBYSCORE"} <= set(reading)
    assert writing[0] == FIRST_WRITE
    assert {"HSET", "HDEL", "ZADD", "ZREM", "XTRIM"} <= set(writing)


def whole(store) -> None:
    """Objects, log and head agree, and writes go on."""
    head = store.head(CLUSTER)
    log = follow_all(store, after=_before_the_log(store))
    assert log[-1].revision == head.revision
    again = store.apply(CLUSTER, EVERYTHING)
    assert again.previous == head.revision
    assert again.revision.number == head.revision.number + 1


def _before_the_log(store) -> Revision:
    ((identifier, fields),) = store._clients.for_cluster(CLUSTER).call(
        "XRANGE", f"ts:{{{CLUSTER}}}:log", "-", "+", "COUNT", 1
    )
    return Revision(int(identifier.partition(b"-")[0]) - 1, fields[3].decode())


def never_wrong(store) -> None:
    """The write is whole, or every later one is refused until the cluster is dropped.

    So is loading it, where fewer entries are there than were noted.
    """
    before = loaded(store)
    again, refusal = None, ""
    try:
        again = store.apply(CLUSTER, [put(node("after"))])
    except StoreUnavailable as refused:
        refusal = str(refused)
    if again is None:
        assert "ahead of its meta" in refusal or (before is None and GONE in refusal)
        assert loaded(store) == before
        store.drop(CLUSTER)
        fill(store)
        whole(store)
    else:
        assert before is not None
        found = store.follow(CLUSTER, again.identity, again.previous, wait=0)
        assert [transaction.revision for transaction in found] == [again.revision]
        assert objects(store) == replay(before, found)


def loaded(store) -> dict[Key, StoredObject] | None:
    """The objects; None where they are refused for entries that are gone."""
    try:
        return objects(store)
    except StoreUnavailable as refused:
        assert GONE in str(refused)  # noqa: PT017 - it need not be refused
        return None
