"""Following the log: one look that checks identity and chain, then a blocking wait for more."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from topospread.errors import IdentityChanged, RevisionCompacted, RevisionOfOtherHistory
from topospread.store import values
from topospread.store.api import LogEntry, Revision, Transaction
from topospread.store.redis import keys
from topospread.store.redis.format import check_format
from topospread.store.redis.reading import number_of, word_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.redis.connections import Reply
    from topospread.store.redis.tail import Tails
    from topospread.store.redis.wire import Wires
    from topospread.store.sleepers import Sleepers

UNKNOWN_SIZE: Final = 64.0
"""Changes a transaction is taken to have before any was seen: between a watch's and a load's."""


class Tail:
    """The follow() of one store object."""

    def __init__(self, wires: Wires, tails: Tails, sleepers: Sleepers) -> None:
        self._wires = wires
        self._tails = tails
        self._sleepers = sleepers
        # Changes a transaction, as last seen.
        self._sizes: dict[str, float] = {}

    def follow(
        self, cluster: str, identity: str, after: Revision, wait: float, limit: int
    ) -> Sequence[Transaction]:
        """As the contract says."""
        deadline = time.monotonic() + wait
        stream = keys.key(cluster, "log")
        with self._sleepers.sleeping(cluster) as sleeper:
            while True:
                found = self._look(cluster, identity, after, limit)
                left = deadline - time.monotonic()
                if found or sleeper.woken() or left <= 0:
                    return found
                ask = self._expected(cluster, limit)
                reply = self._tails.wait(cluster, (stream, after.number), ask, sleeper, left)
                found = _transactions(reply, limit)
                if found and _continues(after, found):
                    self._note(cluster, found)
                    return found
                # Entries that do not continue are of another history: the next look says which.
                if not found and (sleeper.woken() or time.monotonic() >= deadline):
                    return ()

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """As the contract says."""
        self._look(cluster, identity, revision, 1)

    def _look(self, cluster: str, identity: str, after: Revision, limit: int) -> list[Transaction]:
        meta, stream = keys.key(cluster, "meta"), keys.key(cluster, "log")
        begin, ask = f"{after.number + 1}-0", self._expected(cluster, limit)
        wire = self._wires.of(cluster)
        head, reply, still = wire.together(
            ("HMGET", meta, "format", "identity", "number", "tag"),
            ("XRANGE", stream, begin, "+", "COUNT", ask),
            ("HGET", meta, "identity"),
        )
        check_format(head[0])
        # The same before and after the log was read: an identity does not come back.
        _check_identity(word_of(cluster, "identity", head[1]), identity)
        _check_identity(word_of(cluster, "identity", still), identity)
        found = _transactions(reply, limit)
        newest = Revision(number_of(cluster, "number", head[2]), word_of(cluster, "tag", head[3]))
        _check_chain(after, found, newest)
        self._note(cluster, found)
        while len(reply) == ask and (missing := limit - _changes(found)) > 0:
            ask = self._expected(cluster, missing)
            begin = f"{found[-1].revision.number + 1}-0"
            reply = wire.call("XRANGE", stream, begin, "+", "COUNT", ask)
            rest = _transactions(reply, missing)
            if not rest or not _continues(found[-1].revision, rest):
                break
            self._note(cluster, rest)
            found += rest
        return found

    def _expected(self, cluster: str, limit: int) -> int:
        """How many transactions may hold that many changes, so that big ones do not pile up."""
        return max(1, math.ceil(limit / self._sizes.get(cluster, UNKNOWN_SIZE)))

    def _note(self, cluster: str, found: Sequence[Transaction]) -> None:
        if found:
            self._sizes[cluster] = max(1.0, _changes(found) / len(found))


def _check_chain(after: Revision, found: Sequence[Transaction], head: Revision) -> None:
    """Refuse a log that was cut after ``after``, or that is of another history; head as in meta."""
    if found:
        trimmed = found[0].revision.number != after.number + 1
        if not trimmed and found[0].previous_tag == after.tag:
            return
    else:
        trimmed = head.number > after.number
        if head == after:
            return
    if trimmed:
        oldest = (head.number, head.tag)
        if found:
            oldest = (found[0].revision.number - 1, found[0].previous_tag)
        raise RevisionCompacted(
            f"the log was trimmed past revision {after.number}: list again", oldest
        )
    raise RevisionOfOtherHistory(
        f"revision {after.number} is of another history than the store's: list again"
    )


def _continues(after: Revision, found: Sequence[Transaction]) -> bool:
    first = found[0]
    return first.revision.number == after.number + 1 and first.previous_tag == after.tag


def _changes(found: Sequence[Transaction]) -> int:
    return sum(len(transaction.entries) for transaction in found)


def _transactions(reply: Reply, limit: int) -> list[Transaction]:
    """Transactions of a stream's entries, until they hold ``limit`` changes or the first gap."""
    found: list[Transaction] = []
    count = 0
    for identifier, fields in reply:
        number = int(identifier.partition(b"-")[0])
        if count >= limit or (found and number != found[-1].revision.number + 1):
            break
        found.append(_transaction(number, fields))
        count += len(found[-1].entries)
    return found


def _transaction(number: int, fields: list[bytes]) -> Transaction:
    if fields[0:4:2] != [b"t", b"p"] or not (fields[1] + fields[3]).isascii():
        raise RevisionCompacted(f"log entry {number} cannot be read: list again")
    entries: list[LogEntry] = []
    for at in range(4, len(fields), 2):
        found = values.entry(fields[at], fields[at + 1])
        if found is not None:
            entries.append(found)
    revision = Revision(number, fields[1].decode())
    return Transaction(revision, fields[3].decode(), tuple(entries))


def _check_identity(found: str, wanted: str) -> None:
    if not found or found != wanted:
        what = "has another identity" if found else "does not exist"
        raise IdentityChanged(
            f"the cluster {what} in this store: it is not the one followed so far"
        )
