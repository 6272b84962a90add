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
    Key,
    Kind,
    Lease,
    Put,
    Revision,
    StoredObject,
    Transaction,
    Unchanged,
)
from topospread.store.notifier import Notifier, SocketWaiter
from topospread.store.redis import keys, reading
from topospread.store.redis.client import Script
from topospread.store.redis.following import BlockingReaders, RedisFollower
from topospread.store.redis.replies import applied_of, raise_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from topospread.store.model import StoreSettings
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
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.head(self._clients.for_cluster(cluster), cluster, timeout)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """See the contract."""
        checks.check_cluster(cluster)
        self._follower.verify(cluster, identity, revision)

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.scan(self._clients.for_cluster(cluster), cluster, page, kind)

    def read_range(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        after: tuple[str, str],
        limit: int,
        max_bytes: int,
    ) -> tuple[Sequence[StoredObject], bool]:
        """See the contract."""
        checks.check_cluster(cluster)
        bounds = keys.names_after(kind, namespace, after)
        args = ("range", values.FORMAT, *bounds, limit, max_bytes)
        reply = self._script.run(cluster, args)
        if reply[0] != b"RANGE":
            raise_refusal(cluster, reply, None)
        _, early, *rest = reply
        found = [
            values.unpack(keys.listed_key(kind, name), value)
            for name, value in zip(rest[::2], rest[1::2], strict=True)
        ]
        return found, early == b"1" or len(found) == limit

    def read_keys(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.read_keys(self._clients.for_cluster(cluster), cluster, keys)

    def read_undo(
        self, cluster: str, identity: str, since: Revision, wanted: Callable[[Key], bool]
    ) -> Mapping[Key, StoredObject | None]:
        """See the contract."""
        checks.check_cluster(cluster)
        client = self._clients.for_cluster(cluster)
        found = reading.read_undo(client, cluster, since, wanted)
        # Afterwards: an identity does not come back.
        self._follower.verify(cluster, identity, since)
        return found

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.get(self._clients.for_cluster(cluster), cluster, key)

    def clusters(self) -> Sequence[str]:
        """See the contract."""
        return reading.clusters(self._clients.for_all_masters())

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """See the contract."""
        checks.check_cluster(cluster)
        return self._follower.follow(cluster, identity, after, wait, max(1, limit))

    def wake(self, cluster: str) -> None:
        """See the contract."""
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
        args = self._apply_words(changes, precondition, identity, force=force, fence=fence)
        repeat = precondition is None and not force and all(map(_names_what_it_follows, changes))
        reply = self._script.run(cluster, args, timeout=timeout, repeat=repeat)
        if reply[0] == b"FENCED":
            raise rules.fenced(cluster, reply[1].decode(errors="replace"))
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, precondition)
        return applied_of(reply)

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """See the contract."""
        checks.check_cluster(cluster)
        args = self._apply_words((), None, "", force=False)
        reply = self._script.run(cluster, ("purge", *args[1:]), timeout=timeout)
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        return applied_of(reply)

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        """See the contract."""
        checks.check_cluster(cluster)
        kept = (reading.DROPPED_KEPT, reading.DROPPED_MILLISECONDS)
        # Not repeated when the answer was lost: by then the cluster may have been created anew.
        args = ("drop", values.FORMAT, *kept, identity)
        reply = self._script.run(cluster, args, repeat=False)
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        self._notifier.notify(cluster)
        count = int(reply[1])
        # Objects may be left of a cluster that has lost its identity.
        return count if count or reply[2] else None

    def confirm_history(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """See the contract."""
        checks.check_cluster(cluster)
        kept = (reading.DROPPED_KEPT, reading.DROPPED_MILLISECONDS)
        args = ("vouch", values.FORMAT, *kept, identity, instead_of)
        reply = self._script.run(cluster, (*args, *(kind.value for kind in kinds)))
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)

    def lease(
        self,
        cluster: str,
        holder: str,
        lifetime: int,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        """See the contract."""
        checks.check_cluster(cluster)
        checks.check_lease(holder, lifetime)
        args = ("lease", values.FORMAT, holder, lifetime, fence or "")
        reply = self._script.run(cluster, args, timeout=timeout)
        if reply[0] != b"OK":
            raise_refusal(cluster, reply, None)
        found, *numbers = reply[1:]
        return Lease(found.decode(), *map(int, numbers))

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.leased(self._clients.for_cluster(cluster), cluster, timeout)

    def ping(self) -> None:
        """See the contract."""
        for client in self._clients.for_all_masters():
            client.call("PING")

    def close(self) -> None:
        """See the contract."""
        self._notifier.close()
        self._readers.close()
        self._clients.close()

    def _apply_words(
        self,
        changes: Sequence[Change],
        precondition: Unchanged | None,
        identity: str,
        *,
        force: bool,
        fence: int = 0,
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
            len(scopes),
            *scopes,
        ]
        for change in changes:
            if isinstance(change, Put):
                args += _put_words(change)
            else:
                args += ("r", values.name_of(change.key), change.uid, change.up_to_version)
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
        return "e" if put.ends_reservation else "p", name, values.pack(stored)
    lifetime = "" if put.lifetime is None else put.lifetime
    return "v", name, values.header_of(stored), stored.payload, lifetime
