"""Calls to Redis: time-outs, bounded retries, errors as StoreUnavailable.

Connections are used below redis-py's command objects: their reply conversions cost more than the
call, and a time-out for one call is not to be had there.
"""

from __future__ import annotations

import math
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store.redis.connections import check_policy, check_role
from topospread.store.redis.failures import Unsettled, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.redis.connections import Line, Pool, Reply, Word
    from topospread.store.redis.ways import Ways
    from topospread.store.settings import StoreSettings

_BACKOFF: Final = 0.02
_LONGEST: Final = 0.16
_ANSWER_SECONDS: Final = 0.05
"""What is left of a deadline for an answer that comes at the end of a wait in Redis."""
_LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_REFUSED: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError)
# Answers that say "not here" (MOVED is an ASK to the driver): the command did not run.
_ELSEWHERE: Final = (exceptions.AskError, exceptions.ClusterDownError, exceptions.ReadOnlyError)
# And those that say "not now".
_LATER: Final = (exceptions.BusyLoadingError, exceptions.TryAgainError)

LOOK_AGAIN: Final = 1.0
"""Seconds between two looks at a server that calls go to: so late is it noticed that it became a
replica, or began to evict keys."""

T = TypeVar("T")


class _NotSent(Exception):  # noqa: N818
    """No connection was to be had, so the command cannot have run."""


class Wires:
    """The calls of one store object, each led to where its cluster's keys are."""

    def __init__(self, ways: Ways, settings: StoreSettings) -> None:
        self.ways = ways
        self.settings = settings
        self.closed = False
        self._looked_at: WeakKeyDictionary[Pool, float] = WeakKeyDictionary()

    def of(self, cluster: str) -> Wire:
        """Calls about one cluster."""
        return Wire(self, lambda: self.ways.calls(cluster))

    def each(self) -> list[Wire]:
        """Calls to each server that holds clusters.

        Raises:
            StoreUnavailable: it is not known which they are.
        """
        try:
            return [Wire(self, find) for find in self.ways.masters()]
        except (exceptions.RedisError, OSError) as error:
            raise unavailable(error) from error

    def look_at_server(self, pool: Pool, connection: Line, deadline: float) -> None:
        """Once in LOOK_AGAIN seconds: see that a server still is what it was when connected to.

        Raises:
            redis.RedisError: it is a replica now, or evicts keys, or did not answer by then.
        """
        now = time.monotonic()
        if now < self._looked_at.get(pool, -math.inf) + LOOK_AGAIN:
            return
        check_role(connection, deadline)
        check_policy(connection, deadline)
        self._looked_at[pool] = now

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        self.ways.close()


class Wire:
    """Calls that go one way, over a bounded pool of connections."""

    def __init__(self, wires: Wires, find: Callable[[], Pool]) -> None:
        self._wires = wires
        self._settings = wires.settings
        self._find = find

    def call(
        self,
        *words: Word,
        timeout: float | None = None,
        repeat: bool = True,
        replicas: int = 0,
    ) -> Reply:
        """Run one command.

        Args:
            words: the command.
            timeout: seconds for all tries together.
            repeat: whether it may run twice, when the answer to the first try was lost.
            replicas: how many replicas must have the write, if it is one and happened.

        Raises:
            StoreUnavailable: no answer in time, a refusal, or fewer replicas: then it is written.
            NoScriptError: EVALSHA of a script that this Redis does not have.
        """
        return self._tries(
            lambda left: self._exchange(words, left, replicas), timeout, repeat=repeat
        )

    def allowed(self, *words: Word) -> Reply:
        """Run one command that the user may lack the right to; None then."""
        try:
            return self.call(*words)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, exceptions.NoPermissionError):
                return None
            raise

    def together(self, *commands: Sequence[Word], timeout: float | None = None) -> list[Reply]:
        """Run read commands in this order, in one round trip; others may write in between.

        Not in MULTI: a Redis that is out of memory refuses to queue even reads there.
        """
        return self._tries(lambda left: self._pipeline(commands, left), timeout, repeat=True)

    @contextmanager
    def connection(self) -> Iterator[Line]:
        """One connection, without retries; closed when anything fails on it."""
        self._check_open()
        try:
            with self._borrowed() as connection:
                yield connection
        except (exceptions.RedisError, OSError, _NotSent) as error:
            self._judge(error)
            raise unavailable(_cause(error)) from _cause(error)

    def _check_open(self) -> None:
        if self._wires.closed:
            raise StoreUnavailable("the store is closed")

    def _tries(self, attempt: Callable[[float], T], timeout: float | None, *, repeat: bool) -> T:
        self._check_open()
        deadline = time.monotonic() + (self._settings.timeout if timeout is None else timeout)
        tries = 0
        while True:
            tries += 1
            try:
                return attempt(deadline - time.monotonic())
            except exceptions.NoScriptError:
                raise
            except (exceptions.RedisError, OSError, _NotSent) as error:
                self._judge(error)
                pause = min(_LONGEST, _BACKOFF * 2**tries) * random.uniform(0.5, 1.0)
                if not self._may_help(error, tries, repeat=repeat) or (
                    time.monotonic() + pause >= deadline
                ):
                    raise unavailable(_cause(error)) from _cause(error)
            time.sleep(pause)

    def _may_help(self, error: Exception, tries: int, *, repeat: bool) -> bool:
        """Whether to try again after that many tries.

        Who is told "not here" or "not now" speaks to a Redis that is well and changes its place or
        state: that takes the time it takes, and costs nobody but the caller.
        """
        if isinstance(_cause(error), (*_LATER, *_ELSEWHERE)):
            return True
        if isinstance(_cause(error), Unsettled):
            return repeat or isinstance(error, _NotSent)
        if tries >= self._settings.attempts or isinstance(_cause(error), _REFUSED):
            return False
        return isinstance(error, _NotSent) or (repeat and isinstance(error, _LOST))

    def _judge(self, error: Exception) -> None:
        """Doubt the way that was taken, if the error may come from that."""
        if isinstance(error, (_NotSent, *_LOST, *_ELSEWHERE)):
            self._wires.ways.mistrust()

    def _exchange(self, words: Sequence[Word], left: float, replicas: int) -> Reply:
        deadline = time.monotonic() + left
        with self._borrowed(deadline) as connection:
            connection.send_command(*words)
            self._await(connection, deadline - time.monotonic())
            reply = connection.read_response()
            if replicas and reply[:1] == [b"OK"]:
                self._replicate(connection, replicas, deadline - time.monotonic())
            return reply

    def _replicate(self, connection: Line, replicas: int, left: float) -> None:
        """Wait until replicas have what this connection wrote."""
        patience = max(1, round((left - _ANSWER_SECONDS) * 1000))
        reached, cause = 0, None
        try:
            connection.send_command("WAIT", replicas, patience)
            self._await(connection, left)
            reached = connection.read_response()
        except (exceptions.RedisError, OSError) as error:
            connection.disconnect()
            cause = error
        if reached < replicas:
            raise StoreUnavailable(
                f"written, but only {reached} of {replicas} replicas confirmed it in time: a "
                "failover may lose it; repeat the call to wait again"
            ) from cause

    def _pipeline(self, commands: Sequence[Sequence[Word]], left: float) -> list[Reply]:
        replies: list[Reply] = []
        refused: exceptions.ResponseError | None = None
        deadline = time.monotonic() + left
        with self._borrowed(deadline) as connection:
            connection.send_packed_command(connection.pack_commands(commands))
            self._await(connection, deadline - time.monotonic())
            for _ in commands:
                try:
                    replies.append(connection.read_response())
                except exceptions.ResponseError as error:
                    # The answers to the rest are still on their way.
                    refused = refused or error
            if refused:
                raise refused
        return replies

    def _await(self, connection: Line, left: float) -> None:
        """Wait for an answer for another time than the connection itself would."""
        own = self._settings.timeout
        if own - 0.01 <= left <= own or connection.can_read(max(0.0, left)):
            return
        connection.disconnect()
        raise exceptions.TimeoutError("no answer before the caller's deadline")

    @contextmanager
    def _borrowed(self, deadline: float = math.inf) -> Iterator[Line]:
        try:
            pool = self._find()
            connection = pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            raise _NotSent from error
        try:
            self._wires.look_at_server(pool, connection, deadline)
            yield connection
            self._wires.ways.confirm(pool)
        except exceptions.ReadOnlyError:
            # The master moved: the next try asks again where it is.
            connection.disconnect()
            raise
        except exceptions.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            # A connection that leads elsewhere now is closed under the call that waits on it: the
            # driver's error for that says nothing.
            self._wires.ways.confirm(pool)
            raise
        finally:
            pool.release(connection)


def _cause(error: Exception) -> Exception:
    cause = error.__cause__
    return cause if isinstance(error, _NotSent) and isinstance(cause, Exception) else error
