"""Heads, single objects, and scans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.errors import CorruptValue, StoreUnavailable
from topospread.store import rules, values
from topospread.store.model import Head, Key, Kind, Lease, Revision, StoredObject
from topospread.store.redis import keys
from topospread.store.redis.keys import check_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.store.redis.client import RedisClient

DROPPED_KEPT: Final = 8
DROPPED_MILLISECONDS: Final = 86_400_000

_LOOKS: Final = 10
"""Reads of a cluster that is written to without pause: others write between the parts."""

UNDO_ENTRIES: Final = 500
"""Transactions whose undo entries are read at once."""

LONGEST_NUMBER: Final = 20
"""Digits of a stream's largest number, which has 64 bits."""


def head(client: RedisClient, cluster: str, timeout: float | None) -> Head:
    """The newest revision, from the cluster's meta."""
    fields = ("format", "identity", "number", "tag", "oldest", "dropped", "dropped_at", "vouched")
    ask = ("HMGET", keys.key(cluster, "meta"), *fields)
    reply, at = client.call(*ask, timeout=timeout), 0
    if not reply[1]:
        # The clock is of interest only here, so that other calls need not ask for it.
        (seconds, micros), reply = client.pipeline(("TIME",), ask, timeout=timeout)
        at = int(seconds) * 1000 + int(micros) // 1000
    check_format(reply[0])
    identity, tag, dropped, vouched = (
        word_of(cluster, fields[place], reply[place]) for place in (1, 3, 5, 7)
    )
    number, oldest, dropped_at = (
        number_of(cluster, fields[place], reply[place]) for place in (2, 4, 6)
    )
    gone: tuple[str, ...] = ()
    if dropped and time.time_ns() // 1_000_000 - dropped_at < DROPPED_MILLISECONDS:
        gone = tuple(dropped.split())
    if not identity:
        return Head("", Revision(), 0, gone, values.parse_confirmed(vouched), at)
    return Head(identity, Revision(number, tag), oldest or 1, gone, values.parse_confirmed(vouched))


def leased(client: RedisClient, cluster: str, timeout: float | None) -> Lease:
    """The cluster's lease as it is."""
    fields = ("holder", "fence", "until", "granted_for")
    (seconds, micros), found = client.pipeline(
        ("TIME",), ("HMGET", keys.key(cluster, "feeder"), *fields), timeout=timeout
    )
    fence, until, granted_for = (
        number_of(cluster, name, word) for name, word in zip(fields[1:], found[1:], strict=True)
    )
    holder = word_of(cluster, "holder", found[0])
    now = int(seconds) * 1000 + int(micros) // 1000
    return rules.as_found((holder, fence, until, granted_for), now)


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


def get(client: RedisClient, cluster: str, key: Key) -> StoredObject | None:
    """Read an object."""
    check_format(client.call("HGET", keys.key(cluster, "meta"), "format"))
    value = client.call("HGET", *keys.place(cluster, key))
    if value is None:
        return None
    found = values.unpack(key, value)
    if not found.digest:
        name = values.name_of(key)
        raise CorruptValue(f"the stored value of {name} cannot be read: write it anew")
    return found


def read_keys(client: RedisClient, cluster: str, wanted: Sequence[Key]) -> list[StoredObject]:
    """Read objects by their keys, those of one hash with one command."""
    asked: dict[str, list[tuple[str, Key]]] = {}
    for each in wanted:
        hashed, field = keys.place(cluster, each)
        asked.setdefault(hashed, []).append((field, each))
    format_, *replies = client.pipeline(
        ("HGET", keys.key(cluster, "meta"), "format"),
        *(("HMGET", hashed, *(field for field, _ in here)) for hashed, here in asked.items()),
    )
    check_format(format_)
    return [
        values.unpack(key, value)
        for here, found in zip(asked.values(), replies, strict=True)
        for (_, key), value in zip(here, found, strict=True)
        if value is not None
    ]


def scan(
    client: RedisClient, cluster: str, page: int, kind: Kind | None
) -> Iterator[Sequence[StoredObject]]:
    """Pages of a cluster's objects by HSCAN: HGETALL would hold Redis for 100 ms and more.

    One connection for all pages, given up at the first failure: a cursor means nothing to a Redis
    that was restarted, and would silently skip objects there.
    """
    check_format(client.call("HGET", keys.key(cluster, "meta"), "format"))
    with client.connection() as connection:
        for hashed, prefix, pattern in keys.hashes(cluster, kind):
            cursor = b"0"
            while True:
                connection.send_command("HSCAN", hashed, cursor, "MATCH", pattern, "COUNT", page)
                cursor, pairs = connection.read_response()
                if pairs:
                    yield [
                        _object(name, pairs[at + 1])
                        for at in range(0, len(pairs), 2)
                        if not values.is_from_newer_version(name := prefix + pairs[at])
                    ]
                if cursor == b"0":
                    break
    _check_whole(client, cluster)


def read_undo(
    client: RedisClient, cluster: str, since: Revision, wanted: Callable[[Key], bool]
) -> dict[Key, StoredObject | None]:
    """What the transactions after a revision have replaced, up to the newest one at the call."""
    meta, stream = keys.key(cluster, "meta"), keys.key(cluster, "undo")
    found = client.call("HMGET", meta, "format", "number")
    check_format(found[0])
    head, number = number_of(cluster, "number", found[1]), since.number
    replaced: dict[Key, StoredObject | None] = {}
    while number < head:
        reply = client.call("XRANGE", stream, f"{number + 1}-0", "+", "COUNT", UNDO_ENTRIES)
        for identifier, fields in reply:
            number += 1
            if identifier != b"%d-0" % number:
                raise rules.undone(since)
            rules.undo(replaced, zip(fields[2::2], fields[3::2], strict=False), wanted)
        if not reply:
            raise rules.undone(since)
    return replaced


def _check_whole(client: RedisClient, cluster: str) -> None:
    """Check that no entries are gone which no write removed.

    Raises:
        StoreUnavailable: some are: an evicted hash reads like one that is empty.
    """
    meta = keys.key(cluster, "meta")
    for _ in range(_LOOKS):
        (number, noted), *counts, still = client.pipeline(
            ("HMGET", meta, "number", "counts"),
            *(("HLEN", keys.key(cluster, part)) for part in keys.COUNTED),
            ("HGET", meta, "number"),
        )
        if number == still:
            args = word_of(cluster, "counts", noted).split()
            if not all(map(str.isdigit, args)):
                raise values.unreadable(cluster, f"counts is {noted[:20]!r}")
            # Of another number is what a server left that notes nothing.
            expected = args[1:] if args[:1] == [(number or b"").decode()] else []
            for part, count, found in zip(keys.COUNTED, map(int, expected), counts, strict=False):
                if found < count:
                    there = " ".join(map(str, counts))
                    raise vanished(cluster, keys.key(cluster, part), " ".join(expected), there)
            return


def vanished(cluster: str, key: str, noted: str, found: str) -> StoreUnavailable:
    """The error for a key that has fewer entries than were written."""
    return StoreUnavailable(
        f"entries of cluster {cluster!r} are gone from Redis that no write removed ({key}; "
        f"{', '.join(keys.COUNTED)}: {noted} noted, {found} found): evicted, or deleted by hand; "
        "restore them, or drop the cluster and load it again"
    )


def clusters(clients: Iterable[RedisClient]) -> list[str]:
    """Names of the clusters, by SCAN for their meta keys: no second list that could disagree.

    It walks all keys of the database, a dozen a cluster; give topospread a Redis or a database of
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


def _object(name: bytes, value: bytes) -> StoredObject:
    key = values.key_of(name)
    if key is None:
        # Not written by us; the caller counts and skips it.
        return StoredObject(Key(Kind.POD, "", name.decode(errors="replace")), value, b"")
    return values.unpack(key, value)
