"""Ranges of keys in Redis: after an older version wrote, and where entries were lost."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, node, part, pod, put
from tests.store.test_range import in_order, read, undo
from topospread.errors import RevisionCompacted, StoreUnavailable
from topospread.store.model import Key, Kind, Remove


def test_range_has_what_an_older_version_wrote_to_redis(redis_store, client):
    """It writes neither names nor what it replaced."""
    redis_store.apply(CLUSTER, [put(pod(f"p-{n:04}")) for n in range(300)])
    since = redis_store.head(CLUSTER).revision
    meta, log, pods = (part(name) for name in ("meta", "log", "pod"))
    value = client.hget(pods, "default/p-0001")
    client.hset(pods, "default/older", value)
    client.hdel(pods, "default/p-0002")
    client.xadd(
        log, {"t": "tag", "p": since.tag, "=2/default/older": value}, id=f"{since.number + 1}-0"
    )
    client.hset(meta, mapping={"number": since.number + 1, "tag": "tag"})
    assert read(redis_store)[0] == in_order(redis_store)
    with pytest.raises(RevisionCompacted):
        undo(redis_store, since)
    # What came in between is written, too, and kept in step from the first read on.
    newer = redis_store.head(CLUSTER).revision
    redis_store.apply(CLUSTER, [put(pod("newer")), Remove(pod("p-0003"))])
    assert read(redis_store)[0] == in_order(redis_store)
    assert set(undo(redis_store, newer)) == {pod("newer"), pod("p-0003")}


def test_names_that_redis_has_lost_are_made_anew(redis_store, client):
    redis_store.apply(CLUSTER, [put(pod()), put(node()), put(Key(Kind.SERVICE, "n", "s"))])
    client.delete(part("names"), part("undo"))
    for kind in (Kind.POD, Kind.NODE, Kind.SERVICE):
        assert read(redis_store, kind)[0] == in_order(redis_store, kind)


def test_undo_stream_that_is_further_than_the_log_spoils_no_write(redis_store, client):
    redis_store.apply(CLUSTER, [put(pod())])
    since = redis_store.head(CLUSTER).revision
    client.xadd(part("undo"), {"t": "x"}, id="99-0")
    redis_store.apply(CLUSTER, [put(pod("web-2"))])
    assert read(redis_store)[0] == in_order(redis_store)
    with pytest.raises(RevisionCompacted):
        undo(redis_store, since)
    since = redis_store.head(CLUSTER).revision
    redis_store.apply(CLUSTER, [put(pod("web-3"))])
    assert undo(redis_store, since) == {pod("web-3"): None}


def test_objects_that_redis_has_lost_are_not_listed_as_if_they_were_none(redis_store, client):
    redis_store.apply(CLUSTER, [put(pod()), put(pod("web-2"))])
    client.hdel(part("pod"), "default/web-2")
    with pytest.raises(StoreUnavailable, match="are gone from Redis"):
        read(redis_store)
