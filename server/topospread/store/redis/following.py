"""Follows the log: a read that checks identity and chain, then a blocking wait for more.

A wait can end before Redis answers: the caller's time is over, or it is woken. The command then
stays under way, and the next wait for the same place takes it up again; so neither a short wait nor
a wake costs a connection.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from redis import exceptions

from topospread.errors import RevisionCompacted, StoreUnavailable
from topospread.store import rules, values
from topospread.store.model import LogEntry, Revision, Transaction
from topospread.store.redis import script
from topospread.store.redis.failures import unavailable
from topospread.store.redis.script import check_format, number_of, word_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.notifier import Notifier, SocketWaiter
    from topospread.store.redis.client import RedisClients
    from topospread.store.redis.connections import RedisConnection, RedisPool, Reply
    from topospread.store.redis.topology import RedisTopology


UNKNOWN_SIZE: Final = 64.0
"""Changes per transaction that are assumed before any was seen: between a watch's and a load's."""

SLICE: Final = 1.0
"""Seconds that one XREAD blocks: how late a dropped or replaced cluster is noticed at most."""

MAX_IDLE: Final = 1024
"""Idle connections kept; a node that is gone may have left some behind."""

_BROKEN: Final = (exceptions.RedisError, OSError)


class RedisFollower:
    """Carries out follow() for one store object."""

    def __init__(self, clients: RedisClients, readers: BlockingReaders, notifier: Notifier) -> None:
        self._clients = clients
        self._readers = readers
        self._notifier = notifier
        # Changes per transaction, as last seen.
        self._sizes: dict[str, float] = {}

    def follow(
        self, cluster: str, identity: str, after: Revision, wait: float, limit: int
    ) -> Sequence[Transaction]:
        if not limit:
            self._look(cluster, identity, after, 1)
            return ()
        deadline = time.monotonic() + wait
        stream = script.key(cluster, "log")
        with self._notifier.waiting(cluster) as waiter:
            while True:
                found = self._look(cluster, identity, after, limit)
                left = deadline - time.monotonic()
                if found or waiter.woken() or left <= 0:
                    return found
                ask = self._expected(cluster, limit)
                reply = self._readers.wait(cluster, (stream, after.number), ask, waiter, left)
                found = _transactions(reply, limit)
                if found and _continues(after, found):
                    self._note(cluster, found)
                    return found
                # Entries that do not continue are of another history, which the next read reports.
                if not found and (waiter.woken() or time.monotonic() >= deadline):
                    return ()

    def _look(self, cluster: str, identity: str, after: Revision, limit: int) -> list[Transaction]:
        meta, stream = script.key(cluster, "meta"), script.key(cluster, "log")
        begin, ask = f"{after.number + 1}-0", self._expected(cluster, limit)
        client = self._clients.for_cluster(cluster)
        head, reply, still = client.pipeline(
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
            reply = client.call("XRANGE", stream, begin, "+", "COUNT", ask)
            rest = _transactions(reply, missing)
            if not rest or not _continues(found[-1].revision, rest):
                break
            self._note(cluster, rest)
            found += rest
        return found

    def _expected(self, cluster: str, limit: int) -> int:
        """Transactions that hold about that many changes, so that big ones do not pile up."""
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
        raise rules.trimmed_past(after.number, oldest)
    raise rules.other_history(after.number)


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
        raise rules.other_identity(found)


@dataclass(slots=True)
class _Read:
    """A connection with the XREAD that is under way on it, if any."""

    connection: RedisConnection
    pool: RedisPool
    place: tuple[str, int] | None = None
    due: float = 0.0


class BlockingReaders:
    """The connections that wait for a stream; grows to one for each thread that follows."""

    def __init__(self, topology: RedisTopology, settings: StoreSettings) -> None:
        self._topology = topology
        self._settings = settings
        self._idle: list[_Read] = []
        self._lock = Lock()
        self._closed = False

    def wait(
        self,
        cluster: str,
        place: tuple[str, int],
        count: int,
        waiter: SocketWaiter,
        seconds: float,
    ) -> Reply:
        """Entries of a stream; none when there are none yet.

        Ends early when the waiter is notified, and after SLICE seconds.

        Args:
            cluster: whose stream it is.
            place: (key, n): entries after ``<n>-0`` of this stream.
            count: how many entries at most.
            waiter: the calling thread's.
            seconds: how long to wait.

        Raises:
            StoreUnavailable: the connection broke, or Redis keeps silent.
        """
        line = None
        try:
            line = self._take(self._topology.pool(cluster).blocking, place)
            reply = self._wait(line, place, count, waiter, seconds)
        except BaseException as error:
            if line is not None:
                self._discard(line)
            if isinstance(error, _BROKEN):
                self._topology.invalidate(None if line is None else line.pool)
                raise unavailable(error) from error
            raise
        self._put_back(line)
        return reply

    def close(self) -> None:
        """Close idle connections now, and the others as they are given back."""
        with self._lock:
            self._closed = True
            lines, self._idle = self._idle, []
        for line in lines:
            self._discard(line)

    def _wait(
        self,
        line: _Read,
        place: tuple[str, int],
        count: int,
        waiter: SocketWaiter,
        seconds: float,
    ) -> Reply:
        connection = line.connection
        if line.place is None:
            block = round(SLICE * 1000)
            connection.send_command(
                "XREAD", "COUNT", count, "BLOCK", block, "STREAMS", place[0], f"{place[1]}-0"
            )
            line.place = place
            line.due = time.monotonic() + SLICE + self._settings.timeout
        patience = line.due - time.monotonic()
        # The driver has no public way to wait for a connection and for something else at once.
        connected = connection._get_socket()  # noqa: SLF001
        if connected is None:
            raise exceptions.ConnectionError("the connection was closed")
        if not (connection.can_read(0) or waiter.wait_for(connected, min(seconds, patience))):
            if time.monotonic() >= line.due:
                raise exceptions.TimeoutError("XREAD was not answered in its time")
            return ()
        reply = connection.read_response()
        line.place = None
        return reply[0][1] if reply else ()

    def _put_back(self, line: _Read) -> None:
        with self._lock:
            spare = line
            if not self._closed:
                self._idle.append(line)
                if len(self._idle) <= MAX_IDLE:
                    return
                spare = self._idle.pop(0)
        self._discard(spare)

    def _take(self, pool: RedisPool, place: tuple[str, int]) -> _Read:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            there = [line for line in self._idle if line.pool is pool]
            chosen = next((line for line in there if line.place == place), None)
            chosen = chosen or next((line for line in there if line.place is None), None)
            chosen = chosen or next((line for line in there if _answered(line)), None)
            if chosen is not None:
                self._idle.remove(chosen)
        if chosen is None:
            return _Read(pool.get_connection(), pool)
        if chosen.place != place:
            self._clear(chosen)
        return chosen

    def _clear(self, line: _Read) -> None:
        """Make a connection ready for another command; what it brought was fetched otherwise."""
        try:
            while line.connection.can_read(0):
                line.connection.read_response()
        except _BROKEN:
            # Disconnected by the driver: the next command connects again.
            line.connection.disconnect()
        line.place = None

    def _discard(self, line: _Read) -> None:
        line.connection.disconnect()
        line.pool.release(line.connection)


def _answered(line: _Read) -> bool:
    """Whether the answer is there, or the connection was closed by the other side."""
    try:
        return line.connection.can_read(0)
    except _BROKEN:
        return True
