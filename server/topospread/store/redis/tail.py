"""Connections that wait for a stream to grow.

A wait can end before Redis answers: the caller's time is over, or somebody wakes it. The command
then stays under way, and the next wait for the same place takes it up again; so neither a short
wait nor a wake costs a connection.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store.redis.failures import unavailable

if TYPE_CHECKING:
    from topospread.store.redis.connections import Line, Pool, Reply
    from topospread.store.redis.ways import Ways
    from topospread.store.settings import StoreSettings
    from topospread.store.sleepers import Sleeper

SLICE: Final = 1.0
"""Seconds that one XREAD blocks: how late a dropped or replaced cluster is noticed at most."""

MAX_IDLE: Final = 1024
"""Connections kept that nobody waits on; a node that is gone may have left some behind."""

_BROKEN: Final = (exceptions.RedisError, OSError)


@dataclass(slots=True)
class _Waiting:
    """A connection, what its XREAD waits for (if one is under way), when the answer is due."""

    connection: Line
    pool: Pool
    place: tuple[str, int] | None = None
    due: float = 0.0


class Tails:
    """The waiting connections of one store object; grows to one for each thread that follows."""

    def __init__(self, ways: Ways, settings: StoreSettings) -> None:
        self._ways = ways
        self._settings = settings
        self._idle: list[_Waiting] = []
        self._lock = Lock()
        self._closed = False

    def wait(
        self, cluster: str, place: tuple[str, int], count: int, sleeper: Sleeper, seconds: float
    ) -> Reply:
        """Entries of a cluster's stream; empty when there are none yet.

        Ends early when the sleeper is rung, and after SLICE seconds.

        Args:
            cluster: its name.
            place: (key, n): entries after ``<n>-0`` of this stream.
            count: how many entries at most.
            sleeper: of the calling thread.
            seconds: how long to wait.

        Raises:
            StoreUnavailable: the connection broke, or Redis keeps silent.
        """
        try:
            line = self._take(self._ways.tails(cluster), place)
        except _BROKEN as error:
            self._ways.mistrust()
            raise unavailable(error) from error
        try:
            reply = self._wait(line, place, count, sleeper, seconds)
        except _BROKEN as error:
            self._ways.mistrust()
            self._discard(line)
            raise unavailable(error) from error
        except BaseException:
            self._discard(line)
            raise
        self._put_back(line)
        return reply

    def close(self) -> None:
        """Close all connections that nobody waits on; the others as they are given back."""
        with self._lock:
            self._closed = True
            lines, self._idle = self._idle, []
        for line in lines:
            self._discard(line)

    def _wait(
        self, line: _Waiting, place: tuple[str, int], count: int, sleeper: Sleeper, seconds: float
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
        if not (connection.can_read(0) or sleeper.wait_for(connected, min(seconds, patience))):
            if time.monotonic() >= line.due:
                raise exceptions.TimeoutError("XREAD was not answered in its time")
            return ()
        reply = connection.read_response()
        line.place = None
        return reply[0][1] if reply else ()

    def _put_back(self, line: _Waiting) -> None:
        with self._lock:
            spare = line
            if not self._closed:
                self._idle.append(line)
                if len(self._idle) <= MAX_IDLE:
                    return
                spare = self._idle.pop(0)
        self._discard(spare)

    def _take(self, pool: Pool, place: tuple[str, int]) -> _Waiting:
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
            return _Waiting(pool.get_connection(), pool)
        if chosen.place != place:
            self._clear(chosen)
        return chosen

    def _clear(self, line: _Waiting) -> None:
        """Make a connection ready for another command; what it brought was fetched otherwise."""
        try:
            while line.connection.can_read(0):
                line.connection.read_response()
        except _BROKEN:
            # Disconnected by the driver: the next command connects again.
            line.connection.disconnect()
        line.place = None

    def _discard(self, line: _Waiting) -> None:
        line.connection.disconnect()
        line.pool.release(line.connection)


def _answered(line: _Waiting) -> bool:
    """Whether what it waited for is there, or it was closed by the other side."""
    try:
        return line.connection.can_read(0)
    except _BROKEN:
        return True
