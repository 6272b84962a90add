"""Damaged metadata of a cluster: reported, refused before a write begins, and dropped."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from random import Random

import pytest
import redis

from tests.store.backends import (
    CLUSTER,
    RedisBackend,
    SqliteBackend,
    follow_all,
    node,
    objects,
    pod,
    put,
)
from topospread.errors import (
    StoreUnavailable,
    TopospreadError,
)
from topospread.store.model import Key, Kind, Put, Remove, Unchanged

UNREADABLE = "what the store notes of cluster 'prod' cannot be read"


@pytest.fixture
def file(tmp_path):
    """A SQLite store with two objects, and a way past it."""
    path = tmp_path / "state.db"
    store = SqliteBackend(f"sqlite:///{path}").open()
    store.apply(CLUSTER, [put(node()), put(pod())])
    past = sqlite3.connect(path, isolation_level=None, timeout=30)
    yield store, past.execute
    past.close()
    store.close()


@pytest.fixture
def hashes(redis_url):
    """The same in a Redis."""
    store = RedisBackend(redis_url).open()
    store.apply(CLUSTER, [put(node()), put(pod())])
    with redis.Redis.from_url(redis_url) as past:
        yield store, past
    store.close()


def healthy(store) -> bool:
    try:
        store.head(CLUSTER)
    except StoreUnavailable as error:
        assert UNREADABLE in str(error)  # noqa: PT017 - it need not be refused
        return False
    return True


@pytest.mark.parametrize(
    ("table", "column", "found"),
    [
        *(("cluster", each, "x") for each in ("number", "total", "tombstones", "listed", "feed")),
        *(("cluster", each, b"x") for each in ("name", "identity", "tag", "marks", "replaced")),
        ("cluster", "number", b"\xff"),
        ("cluster", "replaced_at", ""),
        *(("object", each, b"\xff") for each in ("kind", "namespace", "name")),
        ("object", "value", "text"),
        *(("log", each, b"\xff") for each in ("number", "tag", "previous")),
        ("log", "entries", "text"),
        ("touched", "number", "x"),
        ("object", "due", "x"),
        ("tombstone", "version", b"x"),
        ("lease", "fence", "x"),
    ],
)
def test_a_file_refuses_values_of_another_type(file, table, column, found):
    store, execute = file
    store.apply(CLUSTER, [Remove(pod("gone"), up_to_version="5"), reserved("held")])
    store.acquire(CLUSTER, "one", 1000)
    before = objects(store)
    with pytest.raises(sqlite3.IntegrityError):
        execute(f"UPDATE {table} SET {column} = ?", (found,))
    assert objects(store) == before


def reserved(name: str) -> Put:
    return Put(put(Key(Kind.RESERVATION, "default", name)).object, lifetime=60_000)


@pytest.mark.parametrize("field", ["number", "tag", "listed", "feed", "replaced", "replaced_at"])
def test_a_head_that_is_no_text(hashes, field):
    store, past = hashes
    past.hset(f"ts:{{{CLUSTER}}}:meta", field, b"\xff\xfe")
    assert not healthy(store)
    store.drop(CLUSTER)
    assert store.head(CLUSTER).identity == ""


def test_a_change_that_is_noted_for_the_future_is_no_conflict_without_end(file, hashes):
    for store, damage in (
        (file[0], lambda: file[1]("UPDATE touched SET number = 99")),
        (hashes[0], lambda: hashes[1].hset(f"ts:{{{CLUSTER}}}:touched", "nodes/", "99")),
    ):
        head = store.head(CLUSTER).revision
        damage()
        with pytest.raises(StoreUnavailable, match=UNREADABLE):
            store.apply(
                CLUSTER, [put(pod("more"))], precondition=Unchanged(head, scopes=("nodes/",))
            )


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_changed_bytes_is_read_or_refused(tmp_path, seed):
    path, random = tmp_path / "state.db", Random(seed)
    backend = SqliteBackend(f"sqlite:///{path}")
    store = backend.open()
    store.apply(CLUSTER, [put(pod(f"p-{number}"), payload=bytes(100)) for number in range(200)])
    store.close()
    content = bytearray(path.read_bytes())
    for _ in range(30):
        content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content if seed % 4 else content[: random.randrange(len(content))])
    with suppress(TopospreadError):
        damaged = backend.open()
        try:
            for look in (
                lambda: objects(damaged),
                lambda: follow_all(damaged),
                lambda: damaged.apply(CLUSTER, [put(pod("more"))]),
                lambda: damaged.drop(CLUSTER),
            ):
                with suppress(TopospreadError):
                    look()
        finally:
            damaged.close()
