"""The store contract on Redis."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from topospread.errors import Conflict, IdentityChanged, RevisionCompacted, RevisionOfOtherHistory
from topospread.store import checks, rules, values
from topospread.store.api import (
    Applied,
    Change,
    Head,
    Key,
    Kind,
    Lease,
    Outcome,
    Put,
    Revision,
    StoredObject,
    Transaction,
    Unchanged,
)
from topospread.store.redis import reading
from topospread.store.redis.following import Tail
from topospread.store.redis.format import check_format
from topospread.store.redis.script import Script
from topospread.store.redis.tail import Tails
from topospread.store.sleepers import Sleeper, Sleepers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from topospread.store.redis.connections import Reply, Word
    from topospread.store.redis.wire import Wires
    from topospread.store.settings import StoreSettings

_OUTCOMES: Final = {
    "C": Outcome.CREATED,
    "U": Outcome.UPDATED,
    "=": Outcome.UNCHANGED,
    "S": Outcome.IGNORED_STALE,
    "D": Outcome.DELETED,
    "N": Outcome.NOT_FOUND,
}


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
        wires: Wires,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._address = address
        self._settings = settings
        self._wires = wires
        self._script = Script(wires)
        self._sleepers = Sleepers(Sleeper)
        self._tails = Tails(wires.ways, settings)
        self._tail = Tail(wires, self._tails, self._sleepers)
        self.warnings = warnings

    @property
    def address(self) -> str:
        """Where it is, without user and password."""
        return self._address

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.head(self._wires.of(cluster), cluster, timeout)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """See the contract."""
        checks.check_cluster(cluster)
        self._tail.verify(cluster, identity, revision)

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.scan(self._wires.of(cluster), cluster, page, kind)

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.get(self._wires.of(cluster), cluster, key)

    def clusters(self) -> Sequence[str]:
        """See the contract."""
        return reading.clusters(self._wires.each())

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """See the contract."""
        checks.check_cluster(cluster)
        return self._tail.follow(cluster, identity, after, wait, max(1, limit))

    def wake(self, cluster: str) -> None:
        """See the contract."""
        self._sleepers.wake(cluster)

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
        words = self._apply_words(changes, precondition, identity, force=force, fence=fence)
        repeat = precondition is None and not force and all(map(_names_what_it_follows, changes))
        reply = self._script.run(cluster, words, timeout=timeout, repeat=repeat)
        if reply[0] == b"FENCED":
            raise rules.fenced(cluster, reply[1].decode(errors="replace"))
        if reply[0] != b"OK":
            _refuse(cluster, reply, precondition)
        return _applied(reply)

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """See the contract."""
        checks.check_cluster(cluster)
        words = self._apply_words((), None, "", force=False)
        reply = self._script.run(cluster, ("purge", *words[1:]), timeout=timeout)
        if reply[0] != b"OK":
            _refuse(cluster, reply, None)
        return _applied(reply)

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        """See the contract."""
        checks.check_cluster(cluster)
        kept = (reading.DROPPED_KEPT, reading.DROPPED_MILLISECONDS)
        # Not repeated when the answer was lost: by then somebody may have begun the cluster anew.
        words = ("drop", values.FORMAT, *kept, identity)
        reply = self._script.run(cluster, words, repeat=False)
        if reply[0] != b"OK":
            _refuse(cluster, reply, None)
        self._sleepers.notify(cluster)
        count = int(reply[1])
        # Objects may be left of a cluster that has lost its identity.
        return count if count or reply[2] else None

    def vouch(
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
        words = ("vouch", values.FORMAT, *kept, identity, instead_of)
        reply = self._script.run(cluster, (*words, *(kind.value for kind in kinds)))
        if reply[0] != b"OK":
            _refuse(cluster, reply, None)

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
        words = ("lease", values.FORMAT, holder, lifetime, fence or "")
        reply = self._script.run(cluster, words, timeout=timeout)
        if reply[0] != b"OK":
            _refuse(cluster, reply, None)
        found, *numbers = reply[1:]
        return Lease(found.decode(), *map(int, numbers))

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """See the contract."""
        checks.check_cluster(cluster)
        return reading.leased(self._wires.of(cluster), cluster, timeout)

    def ping(self) -> None:
        """See the contract."""
        for wire in self._wires.each():
            wire.call("PING")

    def close(self) -> None:
        """See the contract."""
        self._sleepers.close()
        self._tails.close()
        self._wires.close()

    def _apply_words(
        self,
        changes: Sequence[Change],
        precondition: Unchanged | None,
        identity: str,
        *,
        force: bool,
        fence: int = 0,
    ) -> list[Word]:
        """The script's arguments; their order stands at the top of store.lua."""
        settings = self._settings
        scopes = precondition.scopes if precondition else ()
        words: list[Word] = [
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
                words += _put_words(change)
            else:
                words += ("r", values.name_of(change.key), change.uid, change.up_to_version)
        return words


def _names_what_it_follows(change: Change) -> bool:
    """Whether the store leaves alone what others wrote after a first run of the change."""
    if isinstance(change, Put):
        return bool(change.object.resource_version)
    return bool(change.up_to_version or change.uid)


def _put_words(put: Put) -> tuple[Word, ...]:
    stored = put.object
    name = values.name_of(stored.key)
    if stored.key.kind is not Kind.RESERVATION:
        return "e" if put.ends_reservation else "p", name, values.pack(stored)
    lifetime = "" if put.lifetime is None else put.lifetime
    return "v", name, values.front(stored), stored.payload, lifetime


def _applied(reply: Reply) -> Applied:
    texts = (word.decode(errors="replace") for word in reply)
    _, number, tag, before, before_tag, outcomes, at, identity, *ended = texts
    return Applied(
        Revision(int(number), tag),
        Revision(int(before), before_tag),
        tuple(_OUTCOMES[letter] for letter in outcomes),
        tuple(Key(Kind.RESERVATION, *name.split("/", 1)) for name in ended if "/" in name),
        int(at),
        identity,
    )


def _refuse(cluster: str, reply: Reply, precondition: Unchanged | None) -> None:
    """Raise the error for a refusal of the script."""
    reason, *rest = (word.decode(errors="replace") for word in reply)
    number = precondition.revision.number if precondition else 0
    match reason:
        case "FORMAT":
            check_format(reply[1])
        case "IDENTITY":
            what = "has another identity" if rest[0] else "does not exist"
            raise IdentityChanged(
                f"the cluster {what} in this store: it is not the one followed so far"
            )
        case "TRIMMED":
            raise RevisionCompacted(f"the log was trimmed past revision {number}: list again")
        case "DIVERGED":
            raise RevisionOfOtherHistory(
                f"revision {number} is of another history than the store's: list again"
            )
        case "CONFLICT":
            raise Conflict(
                f"{rest[0]!r} changed at revision {rest[1]}, after {number}: evaluate again"
            )
        case "VANISHED":
            raise reading.vanished(cluster, *rest)
        case "UNREADABLE":
            raise values.unreadable(cluster, f"{rest[0]} is {rest[1]!r:.20}")
    raise AssertionError(f"store.lua answered {reason!r}")
