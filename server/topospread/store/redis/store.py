"""The store contract on Redis."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, final
from uuid import uuid4

from topospread.store import checks, rules, values
from topospread.store.model import (
    Applied,
    Change,
    Head,
    Kind,
    Lease,
    Page,
    Put,
    Transaction,
    Unchanged,
)
from topospread.store.notifier import Notifier, SocketWaiter
from topospread.store.redis import reading
from topospread.store.redis.client import Script
from topospread.store.redis.following import BlockingReaders, RedisFollower
from topospread.store.redis.keys import names_after
from topospread.store.redis.replies import applied_of, raise_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import Key, Listed, Revision, StoredObject, StoreSettings
    from topospread.store.redis.client import RedisClients
    from topospread.store.redis.connections import Arg


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
        self._script = Script(clients)
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
        return reading.head(self._clients.for_cluster(cluster), cluster, timeout)

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
        bounds = names_after(kind, namespace, after)
        args = ("scan", values.FORMAT, *bounds, limit, max_bytes)
        reply = self._script.run(cluster, args, writes=False)
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        return reading.page_of(kind, reply)

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        checks.check_cluster(cluster)
        return reading.get(self._clients.for_cluster(cluster), cluster, keys)

    def clusters(self) -> Sequence[str]:
        return reading.clusters(self._clients.for_all_masters())

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
        """See the contract.

        A write whose answer was lost is repeated if each of its changes names what it follows, so
        that it undoes nothing that others did in between; but not one with a precondition: its own
        first run would make it a conflict.
        """
        checks.check_cluster(cluster)
        checks.check_changes(changes)
        if precondition is not None:
            checks.check_precondition(precondition)
        args = self._apply_words(changes, precondition, identity, listed, force=force, fence=fence)
        repeat = precondition is None and not force and all(map(_names_what_it_follows, changes))
        reply = self._script.run(cluster, args, timeout=timeout, repeat=repeat)
        if reply[0] == b"FENCED":
            raise rules.fenced(cluster, reply[1].decode(errors="replace"))
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, precondition)
        return applied_of(reply)

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        checks.check_cluster(cluster)
        kept = (rules.REPLACED_KEPT, rules.REPLACED_MILLISECONDS)
        # Not repeated when the answer was lost: by then the cluster may have been created anew.
        args = ("drop", values.FORMAT, *kept, identity)
        reply = self._script.run(cluster, args, repeat=False)
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        self._notifier.notify(cluster)
        return int(reply[1]) if reply[2] else None

    def lease(
        self,
        cluster: str,
        holder: str = "",
        lifetime: int = 0,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        checks.check_cluster(cluster)
        if holder:
            checks.check_lease(holder, lifetime)
        args = ("lease", values.FORMAT, holder, lifetime, fence or "")
        reply = self._script.run(cluster, args, timeout=timeout, writes=bool(holder))
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        found, *numbers = reply[1:]
        return Lease(found.decode(), *map(int, numbers))

    def ping(self) -> None:
        for client in self._clients.for_all_masters():
            client.call("PING")

    def close(self) -> None:
        self._notifier.close()
        self._readers.close()
        self._clients.close()

    def _apply_words(
        self,
        changes: Sequence[Change],
        precondition: Unchanged | None,
        identity: str,
        listed: Listed | None,
        *,
        force: bool,
        fence: int,
    ) -> list[Arg]:
        """The script's arguments; their order stands at the top of store.lua."""
        settings = self._settings
        scopes = precondition.scopes if precondition else ()
        args: list[Arg] = [
            "apply",
            values.FORMAT,
            uuid4().hex,
            identity,
            secrets.token_hex(8),
            int(force),
            settings.log_limit,
            round(settings.tombstone_seconds * 1000),
            settings.tombstone_limit,
            precondition.revision.number if precondition else "",
            precondition.revision.tag if precondition else "",
            fence or "",
            *rules.with_listed(0, 0, listed),
            len(scopes),
            *scopes,
        ]
        for change in changes:
            if isinstance(change, Put):
                args += _put_words(change)
            else:
                args += ("r", values.name_of(change.key), change.uid, change.up_to_version, "")
        return args


def _names_what_it_follows(change: Change) -> bool:
    """Whether the store leaves alone what others wrote after a first run of the change."""
    if isinstance(change, Put):
        return bool(change.object.resource_version)
    return bool(change.up_to_version or change.uid)


def _put_words(put: Put) -> tuple[Arg, ...]:
    stored = put.object
    name = values.name_of(stored.key)
    if stored.key.kind is not Kind.RESERVATION:
        return "e" if put.ends_reservation else "p", name, values.pack(stored), "", ""
    lifetime = "" if put.lifetime is None else put.lifetime
    return "v", name, values.header_of(stored), stored.payload, lifetime
