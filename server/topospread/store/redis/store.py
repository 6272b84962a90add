"""The store contract on Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from topospread.store import checks, rules, values
from topospread.store.model import (
    Applied,
    Change,
    Head,
    Kind,
    Lease,
    Page,
    Put,
    Revision,
    Transaction,
    Unchanged,
)
from topospread.store.notifier import Notifier, SocketWaiter
from topospread.store.redis import script
from topospread.store.redis.following import BlockingReaders, RedisFollower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import Key, Listed, StoredObject, StoreSettings
    from topospread.store.redis.client import RedisClients


@final
class RedisStore:
    """A :class:`~topospread.store.api.Store`. Safe for threads; every process opens its own.

    Attributes:
        warnings: what an operator should know about this Redis; for the caller to log.
    """

    def __init__(
        self,
        address: str,
        settings: StoreSettings,
        clients: RedisClients,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._address = address
        self._settings = settings
        self._clients = clients
        self._script = script.Script(clients)
        self._notifier = Notifier(SocketWaiter)
        self._readers = BlockingReaders(clients.topology, settings)
        self._follower = RedisFollower(clients, self._readers, self._notifier)
        self.warnings = warnings

    @property
    def address(self) -> str:
        """The address, without user and password."""
        return self._address

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        checks.check_cluster(cluster)
        words = ("format", "identity", "tag", "replaced")
        numbers = ("number", "listed", "feed", "replaced_at")
        client, meta = self._clients.for_cluster(cluster), script.key(cluster, "meta")
        reply = client.call("HMGET", meta, *words, *numbers, timeout=timeout)
        script.check_format(reply[0])
        _, identity, tag, dropped = map(script.word_of, [cluster] * 4, words, reply)
        number, listed, feed, at = map(script.number_of, [cluster] * 4, numbers, reply[4:])
        now = time.time_ns() // 1_000_000
        return Head(
            identity,
            Revision(number, tag) if identity else Revision(),
            rules.is_complete(listed, feed),
            rules.replaced(dropped, at, now),
        )

    def scan(
        self,
        cluster: str,
        kind: Kind,
        *,
        namespace: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 1000,
        max_bytes: int = 4 << 20,
    ) -> Page:
        checks.check_cluster(cluster)
        bounds = script.names_after(kind, namespace, after)
        args = ("scan", values.FORMAT, *bounds, limit, max_bytes)
        reply = self._script.run(cluster, args, writes=False)
        script.check_accepted(cluster, reply)
        _, last, *rest = reply
        keys = [script.key_of(kind, name) for name in rest[::2]]
        objects = [values.unpack(*pair) for pair in zip(keys, rest[1::2], strict=True)]
        return Page(objects, script.key_of(kind, last)[1:] if last else None)

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        checks.check_cluster(cluster)
        if not keys:
            return ()
        found_format, found = self._clients.for_cluster(cluster).pipeline(
            ("HGET", script.key(cluster, "meta"), "format"),
            ("HMGET", script.key(cluster, "object"), *map(values.name_of, keys)),
        )
        script.check_format(found_format)
        pairs = zip(keys, found, strict=True)
        return [values.unpack(key, value) for key, value in pairs if value is not None]

    def clusters(self) -> Sequence[str]:
        """By SCAN for their meta keys: no second list that could disagree.

        It walks all keys of the database, nine a cluster; give topospread a Redis or a database of
        its own.
        """
        found: set[str] = set()
        for client in self._clients.for_all_masters():
            cursor = None
            while cursor != b"0":
                words = ("SCAN", cursor or 0, "MATCH", script.META_PATTERN, "COUNT", 1000)
                cursor, names = client.call(*words)
                asked = [("HEXISTS", name, "identity") for name in names]
                alive = client.pipeline(*asked) if asked else ()
                pairs = zip(names, alive, strict=True)
                found |= {script.cluster_of(name.decode()) for name, lives in pairs if lives}
        return sorted(found)

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        checks.check_cluster(cluster)
        return self._follower.follow(cluster, identity, after, wait, limit)

    def wake(self, cluster: str) -> None:
        self._notifier.wake(cluster)

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        listed: Listed | None = None,
        timeout: float | None = None,
    ) -> Applied:
        """Write and log changes.

        A write whose answer was lost is repeated if each of its changes names what it follows, so
        that it undoes nothing that others did in between; but not one with a precondition: its own
        first run would make it a conflict.
        """
        checks.check_cluster(cluster)
        checks.check_changes(changes)
        if precondition is not None:
            checks.check_precondition(precondition)
        args = script.apply_args(
            changes, precondition, identity, listed, self._settings, force=force, fence=fence
        )
        repeat = precondition is None and not force and all(map(_names_what_it_follows, changes))
        reply = self._script.run(cluster, args, timeout=timeout, repeat=repeat)
        script.check_accepted(cluster, reply, precondition)
        return script.applied_of(reply)

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        checks.check_cluster(cluster)
        kept = (rules.REPLACED_KEPT, rules.REPLACED_MILLISECONDS)
        # Not repeated when the answer was lost: by then the cluster may have been created anew.
        args = ("drop", values.FORMAT, *kept, identity)
        reply = self._script.run(cluster, args, repeat=False)
        script.check_accepted(cluster, reply)
        self._notifier.notify(cluster)
        return int(reply[1]) if reply[2] else None

    def lease(self, cluster: str, *, timeout: float | None = None) -> Lease:
        checks.check_cluster(cluster)
        return self._lease(cluster, "", 0, timeout)

    def acquire(
        self, cluster: str, holder: str, lifetime: int, *, timeout: float | None = None
    ) -> Lease:
        checks.check_cluster(cluster)
        checks.check_lease(holder, lifetime)
        return self._lease(cluster, holder, lifetime, timeout)

    def _lease(self, cluster: str, holder: str, lifetime: int, timeout: float | None) -> Lease:
        args = ("lease", values.FORMAT, holder, lifetime)
        reply = self._script.run(cluster, args, timeout=timeout, writes=bool(holder))
        script.check_accepted(cluster, reply)
        found, *numbers = reply[1:]
        return Lease(found.decode(), *map(int, numbers))

    def ping(self) -> None:
        for client in self._clients.for_all_masters():
            client.call("PING")

    def close(self) -> None:
        self._notifier.close()
        self._readers.close()
        self._clients.close()


def _names_what_it_follows(change: Change) -> bool:
    """Whether the store leaves alone what others wrote after a first run of the change."""
    if isinstance(change, Put):
        return bool(change.object.resource_version)
    return bool(change.up_to_version or change.uid)
