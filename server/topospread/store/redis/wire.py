"""Calls to one Redis: time-outs, bounded retries, errors as StoreUnavailable.

Connections are used below redis-py's command objects: their reply conversions cost more than the
call, and a time-out for one call is not to be had there.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store.redis.failures import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.redis.connections import Line, Pool, Reply, Word
    from topospread.store.settings import StoreSettings

_BACKOFF: Final = 0.02
_LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_REFUSED: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError)
# Answers that say "not now": the command did not run.
_LATER: Final = (exceptions.BusyLoadingError, exceptions.ReadOnlyError, exceptions.TryAgainError)

T = TypeVar("T")


class _NotSent(Exception):  # noqa: N818
    """No connection was to be had, so the command cannot have run."""


class Wire:
    """One Redis, reached over a bounded pool of connections."""

    def __init__(self, pool: Pool, settings: StoreSettings) -> None:
        self._pool = pool
        self._settings = settings
        self.closed = False

    def call(self, *words: Word, timeout: float | None = None, repeat: bool = True) -> Reply:
        """Run one command.

        Args:
            words: the command.
            timeout: seconds for all tries together.
            repeat: whether it may run twice, when the answer to the first try was lost.

        Raises:
            StoreUnavailable: no answer in time, or a refusal.
            NoScriptError: EVALSHA of a script that this Redis does not have.
        """
        return self._tries(lambda left: self._exchange(words, left), timeout, repeat=repeat)

    def allowed(self, *words: Word) -> Reply:
        """Run one command that the user may lack the right to; None then."""
        try:
            return self.call(*words)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, exceptions.NoPermissionError):
                return None
            raise

    def together(self, *commands: Sequence[Word]) -> list[Reply]:
        """Run read commands in one MULTI/EXEC: all see the same moment."""
        return self._tries(lambda left: self._multi(commands, left), None, repeat=True)

    @contextmanager
    def connection(self) -> Iterator[Line]:
        """One connection, without retries; closed when anything fails on it."""
        if self.closed:
            raise StoreUnavailable("the store is closed")
        try:
            with self._borrowed() as connection:
                yield connection
        except (exceptions.RedisError, OSError, _NotSent) as error:
            raise unavailable(_cause(error)) from _cause(error)

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        self._pool.disconnect()

    def _tries(self, attempt: Callable[[float], T], timeout: float | None, *, repeat: bool) -> T:
        if self.closed:
            raise StoreUnavailable("the store is closed")
        deadline = time.monotonic() + (self._settings.timeout if timeout is None else timeout)
        tries = 0
        while True:
            tries += 1
            try:
                return attempt(deadline - time.monotonic())
            except exceptions.NoScriptError:
                raise
            except (exceptions.RedisError, OSError, _NotSent) as error:
                again = isinstance(error, (_NotSent, *_LATER)) or (
                    repeat and isinstance(error, _LOST)
                )
                pause = _BACKOFF * 2**tries * random.uniform(0.5, 1.0)
                if (
                    not again
                    or isinstance(_cause(error), _REFUSED)
                    or tries >= self._settings.attempts
                    or time.monotonic() + pause >= deadline
                ):
                    raise unavailable(_cause(error)) from _cause(error)
            time.sleep(pause)

    def _exchange(self, words: Sequence[Word], left: float) -> Reply:
        with self._borrowed() as connection:
            connection.send_command(*words)
            self._await(connection, left)
            return connection.read_response()

    def _multi(self, commands: Sequence[Sequence[Word]], left: float) -> list[Reply]:
        with self._borrowed() as connection:
            packed = connection.pack_commands([("MULTI",), *commands, ("EXEC",)])
            connection.send_packed_command(packed)
            self._await(connection, left)
            try:
                for _ in range(len(commands) + 1):
                    connection.read_response()
                replies = connection.read_response()
            except exceptions.ResponseError:
                # The answers to the rest are still on their way.
                connection.disconnect()
                raise
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return list(replies)

    def _await(self, connection: Line, left: float) -> None:
        """Wait for an answer for another time than the connection itself would."""
        own = self._settings.timeout
        if own - 0.01 <= left <= own or connection.can_read(max(0.0, left)):
            return
        connection.disconnect()
        raise exceptions.TimeoutError("no answer before the caller's deadline")

    @contextmanager
    def _borrowed(self) -> Iterator[Line]:
        try:
            connection = self._pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            raise _NotSent from error
        try:
            yield connection
        except exceptions.ReadOnlyError:
            # The master moved: the next try asks again where it is.
            connection.disconnect()
            raise
        except exceptions.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)


def _cause(error: Exception) -> Exception:
    cause = error.__cause__
    return cause if isinstance(error, _NotSent) and isinstance(cause, Exception) else error
