"""Backends under test, and short ways to write changes down."""

from __future__ import annotations

import copy
import sqlite3
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, Protocol

import redis

from tests.store.toy_store import ToyStore
from topospread.errors import RevisionCompacted
from topospread.store.api import get_one, scan_all
from topospread.store.model import (
    Applied,
    Key,
    Kind,
    Put,
    Revision,
    StoredObject,
    StoreSettings,
    Transaction,
)
from topospread.store.redis import open as redis_open
from topospread.store.rules import LeaseRow
from topospread.store.sqlite import store as sqlite_open
from topospread.store.urls import RedisURL, SqliteURL, parse_store_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.api import Reader, Store
    from topospread.store.model import Change

PROCESSES: Final = get_context("forkserver")
"""What other processes are made by: each is there at once, with the modules of this one."""

PROCESSES.set_forkserver_preload(["pytest", "tests.store.backends"])

CLUSTER = "prod"
DIGEST = b"\x00digest\xff"
OTHER_DIGEST = b"another!"


def node(name: str = "node-1") -> Key:
    return Key(Kind.NODE, "", name)


def pod(name: str = "web-1", namespace: str = "default") -> Key:
    return Key(Kind.POD, namespace, name)


def put(
    key: Key,
    version: str = "",
    payload: bytes = b"spec",
    digest: bytes = DIGEST,
    uid: str = "uid-1",
) -> Put:
    return Put(StoredObject(key, payload, digest, version, uid))


def part(name: str) -> str:
    """One of the cluster's keys in Redis."""
    return f"ts:{{{CLUSTER}}}:{name}"


def scanned(
    store: Reader, kind: Kind, namespace: str = "", cluster: str = CLUSTER
) -> list[StoredObject]:
    """The objects of a kind, in order."""
    return [each for page in scan_all(store, cluster, kind, namespace) for each in page]


def objects(store: Reader, cluster: str = CLUSTER) -> dict[Key, StoredObject]:
    return {each.key: each for kind in Kind for each in scanned(store, kind, cluster=cluster)}


def get(store: Reader, key: Key, cluster: str = CLUSTER) -> StoredObject | None:
    return get_one(store, cluster, key)


def existing(store: Reader, key: Key) -> StoredObject:
    found = get(store, key)
    assert found is not None
    return found


def end_due(store: Store, cluster: str = CLUSTER) -> Applied:
    """End the reservations that are due, as a server does every now and then."""
    return store.apply(cluster, (), identity=store.head(cluster).identity)


def reaches(store: Reader, revision: Revision, cluster: str = CLUSTER) -> None:
    """Check that the log reaches back to a revision; raises as follow() does."""
    identity = store.head(cluster).identity
    assert not store.follow(cluster, identity, revision, wait=0, limit=0)


def oldest(store: Reader, revisions: Sequence[Revision], cluster: str = CLUSTER) -> int:
    """The number of the first of these revisions that the log reaches back to."""
    for revision in revisions:
        try:
            reaches(store, revision, cluster)
        except RevisionCompacted as refused:
            if refused.oldest is None or refused.oldest[0] <= revision.number:
                raise AssertionError("a wrong oldest revision") from refused
        else:
            return revision.number
    raise AssertionError("the log reaches to none of them")


def follow_all(
    store: Reader, cluster: str = CLUSTER, after: Revision | None = None, limit: int = 1000
) -> list[Transaction]:
    """All that the log holds after a revision."""
    identity = store.head(cluster).identity
    found: list[Transaction] = []
    at = after or Revision()
    while batch := store.follow(cluster, identity, at, wait=0, limit=limit):
        found += batch
        at = batch[-1].revision
    return found


def replay(
    objects_before: dict[Key, StoredObject], transactions: Sequence[Transaction]
) -> dict[Key, StoredObject]:
    """What a follower holds who knew some objects and then saw these transactions."""
    held = dict(objects_before)
    for transaction in transactions:
        for entry in transaction.entries:
            if entry.object is None:
                held.pop(entry.key, None)
            else:
                held[entry.key] = entry.object
    return held


def write_many(
    store: Store, count: int, cluster: str = CLUSTER, namespace: str = "default"
) -> list[Revision]:
    """That many transactions of one new pod each; their revisions."""
    changes: list[Change] = [put(pod(f"p-{n}", namespace)) for n in range(count)]
    return [store.apply(cluster, [change]).revision for change in changes]


class Backend(Protocol):
    """One place that stores can be opened on."""

    url: str

    def open(self, settings: StoreSettings | None = None) -> Store: ...

    def save(self, store: Store) -> object:
        """All of the store's state, as a replica or a backup would have it."""

    def restore(self, store: Store, saved: object) -> None:
        """Put the state back: what came after save() is lost."""

    def empty(self, store: Store) -> None:
        """Lose everything, by an accident of the store."""

    def overwrite(self, store: Store, cluster: str, key: Key, value: bytes) -> None:
        """Damage a stored value."""

    def change_lease(
        self, store: Store, cluster: str, *, until: int = 0, fence: int = 0, granted: bool = True
    ) -> None:
        """Add to the numbers of a cluster's lease; ``granted``: whether that is noted of it."""


class SqliteBackend:
    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, settings: StoreSettings | None = None) -> Store:
        parsed = parse_store_url(self.url, {})
        assert isinstance(parsed, SqliteURL)
        return sqlite_open.open_store(parsed, settings or StoreSettings())

    def save(self, store: Store) -> object:
        saved = sqlite3.connect(":memory:")
        _writer(store).backup(saved)
        return saved

    def restore(self, store: Store, saved: object) -> None:
        assert isinstance(saved, sqlite3.Connection)
        # A follower of a store in memory may be about to look by way of the same connection.
        with store._connections._turn:  # type: ignore[attr-defined]
            saved.backup(_writer(store))
        saved.close()

    def empty(self, store: Store) -> None:
        for table in ("cluster", "object", "log", "touched", "tombstone", "lease"):
            _writer(store).execute(f"DELETE FROM {table}")

    def overwrite(self, store: Store, cluster: str, key: Key, value: bytes) -> None:
        changed = _writer(store).execute(
            "UPDATE object SET value = ? WHERE kind = ? AND namespace = ? AND name = ? "
            "AND cluster = (SELECT id FROM cluster WHERE name = ?)",
            (value, key.kind.value, key.namespace, key.name, cluster),
        )
        assert changed.rowcount == 1

    def change_lease(
        self, store: Store, cluster: str, *, until: int = 0, fence: int = 0, granted: bool = True
    ) -> None:
        changed = _writer(store).execute(
            "UPDATE lease SET until = until + ?, fence = fence + ?, granted_for = granted_for * ? "
            "WHERE name = ?",
            (until, fence, granted, cluster),
        )
        assert changed.rowcount == 1


class ToyBackend:
    """Each store has a memory of its own."""

    url = "toy:"

    def open(self, settings: StoreSettings | None = None) -> Store:
        return ToyStore(settings)

    def save(self, store: Store) -> object:
        return copy.deepcopy(_toy(store)._clusters)

    def restore(self, store: Store, saved: object) -> None:
        assert isinstance(saved, dict)
        toy = _toy(store)
        with toy._changed:
            toy._clusters = saved
            toy._changed.notify_all()

    def empty(self, store: Store) -> None:
        self.restore(store, {})

    def overwrite(self, store: Store, cluster: str, key: Key, value: bytes) -> None:
        held = _toy(store)._clusters[cluster].objects
        assert key in held
        held[key] = value

    def change_lease(
        self, store: Store, cluster: str, *, until: int = 0, fence: int = 0, granted: bool = True
    ) -> None:
        found = _toy(store)._clusters[cluster]
        lease = found.granted
        found.granted = LeaseRow(
            lease.holder, lease.fence + fence, lease.until + until, lease.granted_for * granted
        )


def _toy(store: Store) -> ToyStore:
    assert isinstance(store, ToyStore)
    return store


class RedisBackend:
    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, settings: StoreSettings | None = None) -> Store:
        parsed = parse_store_url(self.url, {})
        assert isinstance(parsed, RedisURL)
        return redis_open.open_store(parsed, settings or StoreSettings())

    def save(self, store: Store) -> object:
        with redis.Redis.from_url(self.url) as client:
            return dump(client)

    def restore(self, store: Store, saved: object) -> None:
        assert isinstance(saved, dict)
        # At once, as a server that begins with other data does it.
        with (
            redis.Redis.from_url(self.url) as client,
            client.pipeline(transaction=True) as all_of_it,
        ):
            all_of_it.flushall()
            for name, value in saved.items():
                all_of_it.restore(name, 0, value)
            all_of_it.execute()

    def empty(self, store: Store) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def overwrite(self, store: Store, cluster: str, key: Key, value: bytes) -> None:
        part, field = "object", f"{key.kind.value}/{key.namespace}/{key.name}"
        with redis.Redis.from_url(self.url) as client:
            assert client.hexists(f"ts:{{{cluster}}}:{part}", field)
            client.hset(f"ts:{{{cluster}}}:{part}", field, value)

    def change_lease(
        self, store: Store, cluster: str, *, until: int = 0, fence: int = 0, granted: bool = True
    ) -> None:
        name = f"ts:{{{cluster}}}:lease"
        with redis.Redis.from_url(self.url) as client:
            assert client.hexists(name, "until")
            client.hincrby(name, "until", until)
            client.hincrby(name, "fence", fence)
            if not granted:
                client.hdel(name, "granted_for")
            left = client.pttl(name)
            if left != -1:
                client.pexpire(name, max(1, left + min(until, 0)))


def dump(client: redis.Redis) -> dict[bytes, bytes]:
    """Every key with its serialized value."""
    return {name: value for name in client.scan_iter() if (value := client.dump(name)) is not None}


def _writer(store: Store) -> sqlite3.Connection:
    return store._connections._writer  # type: ignore[attr-defined]
