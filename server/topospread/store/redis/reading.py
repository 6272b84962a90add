"""Heads, scans, and reads by key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.store import rules, values
from topospread.store.model import Head, Page, Revision
from topospread.store.redis import keys
from topospread.store.redis.keys import check_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.store.model import Key, Kind, StoredObject
    from topospread.store.redis.client import RedisClient
    from topospread.store.redis.connections import Reply

LONGEST_NUMBER: Final = 20
"""Digits of a stream's largest number, which has 64 bits."""


def head(client: RedisClient, cluster: str, timeout: float | None) -> Head:
    """The newest revision, from the cluster's meta."""
    words = ("format", "identity", "tag", "replaced")
    numbers = ("number", "listed", "feed", "replaced_at")
    reply = client.call("HMGET", keys.key(cluster, "meta"), *words, *numbers, timeout=timeout)
    check_format(reply[0])
    _, identity, tag, replaced = map(word_of, [cluster] * 4, words, reply)
    number, listed, feed, at = map(number_of, [cluster] * 4, numbers, reply[4:])
    now = time.time_ns() // 1_000_000
    return Head(
        identity,
        Revision(number, tag) if identity else Revision(),
        rules.is_complete(listed, feed),
        rules.replaced(replaced, at, now),
    )


def word_of(cluster: str, field: str, found: bytes | None) -> str:
    """A text of the cluster's meta; empty where there is none.

    Raises:
        StoreUnavailable: it is none of ours.
    """
    word = found or b""
    if not word.isascii():
        raise values.unreadable(cluster, f"{field} is {word[:20]!r}")
    return word.decode()


def number_of(cluster: str, field: str, found: bytes | None) -> int:
    """A number of the cluster's meta; 0 where there is none.

    Raises:
        StoreUnavailable: it is none.
    """
    word = found or b"0"
    if not word.isdigit() or len(word) > LONGEST_NUMBER:
        raise values.unreadable(cluster, f"{field} is {word[:20]!r}")
    return int(word)


def get(client: RedisClient, cluster: str, wanted: Sequence[Key]) -> list[StoredObject]:
    """Read objects by their keys."""
    if not wanted:
        return []
    found_format, found = client.pipeline(
        ("HGET", keys.key(cluster, "meta"), "format"),
        ("HMGET", keys.key(cluster, "object"), *map(values.name_of, wanted)),
    )
    check_format(found_format)
    pairs = zip(wanted, found, strict=True)
    return [values.unpack(key, value) for key, value in pairs if value is not None]


def page_of(kind: Kind, reply: Reply) -> Page:
    """The objects of a scan's answer."""
    names, found = reply[2::2], reply[3::2]
    pairs = zip((keys.key_of(kind, name) for name in names), found, strict=True)
    objects = [values.unpack(key, value) for key, value in pairs]
    if not reply[1]:
        return Page(objects)
    last = keys.key_of(kind, reply[1])
    return Page(objects, (last.namespace, last.name))


def clusters(clients: Iterable[RedisClient]) -> list[str]:
    """Names of the clusters, by SCAN for their meta keys: no second list that could disagree.

    It walks all keys of the database, nine a cluster; give topospread a Redis or a database of
    its own.
    """
    found: set[str] = set()
    for client in clients:
        cursor = b"0"
        while True:
            cursor, names = client.call("SCAN", cursor, "MATCH", keys.META_PATTERN, "COUNT", 1000)
            asked = [("HEXISTS", name, "identity") for name in names]
            alive = client.pipeline(*asked) if asked else []
            found.update(
                keys.cluster_of(name.decode())
                for name, is_alive in zip(names, alive, strict=True)
                if is_alive
            )
            if cursor == b"0":
                break
    return sorted(found)
