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
    from topospread.store.settings import StoreSettings
    from topospread.store.sleepers import Sleeper

SLICE: Final = 1.0
"""Seconds that one XREAD blocks: how late a dropped or replaced cluster is noticed at most."""

_BROKEN: Final = (exceptions.RedisError, OSError)


@dataclass(slots=True)
class _Waiting:
    """A connection, what its XREAD waits for (if one is under way), when the answer is due."""

    connection: Line
    place: tuple[str, int] | None = None
    due: float = 0.0


class Tails:
    """The waiting connections of one store object; grows to one for each thread that follows."""

    def __init__(self, pool: Pool, settings: StoreSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._idle: list[_Waiting] = []
        self._lock = Lock()
        self._closed = False

    def wait(self, stream: str, after: int, count: int, sleeper: Sleeper, seconds: float) -> Reply:
        """At most ``count`` entries of a stream after ``<after>-0``; empty when there are none yet.

        Ends early when the sleeper is rung, and after SLICE seconds.

        Raises:
            StoreUnavailable: the connection broke, or Redis keeps silent.
        """
        try:
            line = self._take((stream, after))
        except _BROKEN as error:
            raise unavailable(error) from error
        try:
            reply = self._wait(line, (stream, after), count, sleeper, seconds)
        except _BROKEN as error:
            self._discard(line)
            raise unavailable(error) from error
        except BaseException:
            self._discard(line)
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(line)
                return reply
        self._discard(line)
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

    def _take(self, place: tuple[str, int]) -> _Waiting:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            chosen = next((line for line in self._idle if line.place == place), None)
            chosen = chosen or next((line for line in self._idle if line.place is None), None)
            chosen = chosen or next((line for line in self._idle if _answered(line)), None)
            if chosen is not None:
                self._idle.remove(chosen)
        if chosen is None:
            return _Waiting(self._pool.get_connection())
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
        self._pool.release(line.connection)


def _answered(line: _Waiting) -> bool:
    """Whether what it waited for is there, or it was closed by the other side."""
    try:
        return line.connection.can_read(0)
    except _BROKEN:
        return True
