"""Commands on Redis: time-outs, bounded retries, errors as StoreUnavailable.

Connections are used below redis-py's command objects: their reply conversions cost more than the
call, and a time-out for one call is not to be had there.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store.redis.connections import CHECKS, check_policy, check_role
from topospread.store.redis.failures import MasterUnknown, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.redis.connections import (
        Arg,
        RedisConnection,
        RedisPool,
        Reply,
        ServerPool,
    )
    from topospread.store.redis.topology import RedisTopology


LOG: Final = logging.getLogger(__name__)

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

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of a server that commands go to: bounds how late it is noticed that it
became a replica, or began to evict keys."""


class _NotSent(Exception):  # noqa: N818
    """No connection was to be had, so the command cannot have run."""


class RedisClients:
    """The clients of one store object; each sends to the servers that have its cluster's keys."""

    def __init__(self, topology: RedisTopology, settings: StoreSettings) -> None:
        self.topology = topology
        self.settings = settings
        self.closed = False
        self._checked_at: WeakKeyDictionary[RedisPool, float] = WeakKeyDictionary()

    def for_cluster(self, cluster: str) -> RedisClient:
        """The client for one cluster's keys."""
        return RedisClient(self, lambda: self.topology.pool(cluster))

    def for_all_masters(self) -> list[RedisClient]:
        """A client for each server that holds clusters.

        Raises:
            StoreUnavailable: it is not known which they are.
        """
        try:
            return [RedisClient(self, find) for find in self.topology.masters()]
        except (exceptions.RedisError, OSError) as error:
            raise unavailable(error) from error

    def due_checks(self, pool: RedisPool) -> Sequence[Sequence[Arg]]:
        """CHECKS to send along, once in CHECK_INTERVAL seconds to each server."""
        due = time.monotonic() >= self._checked_at.get(pool, -math.inf) + CHECK_INTERVAL
        return CHECKS if due else ()

    def check(self, pool: RedisPool, answers: Sequence[Reply]) -> None:
        """Check that a server is still a master that evicts no keys.

        Raises:
            redis.RedisError: it is a replica now, or evicts keys.
        """
        check_role(answers[0])
        check_policy(answers[1])
        self._checked_at[pool] = time.monotonic()

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        self.topology.close()


class RedisClient:
    """Commands to one server at a time, over a bounded pool of connections."""

    def __init__(self, clients: RedisClients, find: Callable[[], ServerPool]) -> None:
        self._clients = clients
        self._settings = clients.settings
        self._find = find

    def call(
        self,
        *args: Arg,
        timeout: float | None = None,
        repeat: bool = True,
        replicas: int = 0,
    ) -> Reply:
        """Run one command.

        Args:
            args: the command and its arguments.
            timeout: seconds for all tries together.
            repeat: whether it may run twice, when the answer to the first try was lost.
            replicas: how many replicas must have the write, if it is one and happened.

        Raises:
            StoreUnavailable: no answer in time, a refusal, or fewer replicas: then it is written.
            NoScriptError: EVALSHA of a script that this Redis does not have.
        """
        (reply,) = self._with_retries((args,), timeout, repeat=repeat, replicas=replicas)
        return reply

    def try_call(self, *args: Arg) -> Reply:
        """Run one command; None when the user lacks the right to it."""
        try:
            return self.call(*args)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, exceptions.NoPermissionError):
                return None
            raise

    def pipeline(self, *commands: Sequence[Arg], timeout: float | None = None) -> list[Reply]:
        """Run read commands in this order, in one round trip; others may write in between.

        Not in MULTI: a Redis that is out of memory refuses to queue even reads there.
        """
        return self._with_retries(commands, timeout, repeat=True)

    def _with_retries(
        self,
        commands: Sequence[Sequence[Arg]],
        timeout: float | None,
        *,
        repeat: bool,
        replicas: int = 0,
    ) -> list[Reply]:
        if self._clients.closed:
            raise StoreUnavailable("the store is closed")
        deadline = time.monotonic() + (self._settings.timeout if timeout is None else timeout)
        tries = 0
        while True:
            tries += 1
            try:
                return self._exchange(commands, deadline - time.monotonic(), replicas)
            except exceptions.NoScriptError:
                raise
            except (exceptions.RedisError, OSError, _NotSent) as error:
                pause = min(_LONGEST, _BACKOFF * 2**tries) * random.uniform(0.5, 1.0)
                if not self._worth_retrying(error, tries, repeat=repeat) or (
                    time.monotonic() + pause >= deadline
                ):
                    raise unavailable(_cause(error)) from _cause(error)
                LOG.debug("try %d failed, another follows: %s", tries, unavailable(_cause(error)))
            time.sleep(pause)

    def _worth_retrying(self, error: Exception, tries: int, *, repeat: bool) -> bool:
        """Whether to try again after that many tries.

        "Not here" and "not now" come from a Redis that is well and changes its place or state: that
        takes the time it takes, and costs the caller alone.
        """
        if isinstance(_cause(error), (*_LATER, *_ELSEWHERE)):
            return True
        if isinstance(_cause(error), MasterUnknown):
            return repeat or isinstance(error, _NotSent)
        if tries >= self._settings.attempts or isinstance(_cause(error), _REFUSED):
            return False
        return isinstance(error, _NotSent) or (repeat and isinstance(error, _LOST))

    def _exchange(
        self, commands: Sequence[Sequence[Arg]], left: float, replicas: int
    ) -> list[Reply]:
        """Send commands, with the checks that are due, and read what they are answered."""
        deadline = time.monotonic() + left
        with self._borrow() as (pool, connection):
            checks = self._clients.due_checks(pool)
            sent = (*checks, *commands)
            connection.send_packed_command(connection.pack_commands(sent))
            answers = [self._answer(connection, deadline) for _ in sent]
            if checks:
                self._clients.check(pool, answers[: len(checks)])
            replies = answers[len(checks) :]
            for reply in replies:
                if isinstance(reply, exceptions.ResponseError):
                    raise reply
            if replicas and replies[0][:1] == [b"OK"]:
                self._replicate(connection, replicas, deadline - time.monotonic())
            return replies

    def _answer(self, connection: RedisConnection, deadline: float) -> Reply:
        """The next answer; a refusal is returned: the answers to the rest are still to be read."""
        self._wait_for_reply(connection, deadline - time.monotonic())
        try:
            return connection.read_response()
        except exceptions.ResponseError as error:
            return error

    def _replicate(self, connection: RedisConnection, replicas: int, left: float) -> None:
        """Wait until replicas have what this connection wrote."""
        patience = max(1, round((left - _ANSWER_SECONDS) * 1000))
        reached, cause = 0, None
        try:
            connection.send_command("WAIT", replicas, patience)
            self._wait_for_reply(connection, left)
            reached = connection.read_response()
        except (exceptions.RedisError, OSError) as error:
            connection.disconnect()
            cause = error
        if reached < replicas:
            raise StoreUnavailable(
                f"written, but only {reached} of {replicas} replicas confirmed it in time: a "
                "failover may lose it; repeat the call to wait again"
            ) from cause

    def _wait_for_reply(self, connection: RedisConnection, left: float) -> None:
        """Wait for an answer until another deadline than the connection's own."""
        own = self._settings.timeout
        if own - 0.01 <= left <= own or connection.can_read(max(0.0, left)):
            return
        connection.disconnect()
        raise exceptions.TimeoutError("no answer before the caller's deadline")

    @contextmanager
    def _borrow(self) -> Iterator[tuple[RedisPool, RedisConnection]]:
        topology, pool = self._clients.topology, None
        try:
            pool = self._find().commands
            connection = pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            topology.invalidate(pool)
            raise _NotSent from error
        try:
            yield pool, connection
            topology.confirm(pool)
        except exceptions.ResponseError as error:
            # The keys moved: the next try asks again where they are.
            if isinstance(error, _ELSEWHERE):
                topology.invalidate()
            if isinstance(error, exceptions.ReadOnlyError):
                connection.disconnect()
            raise
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, _LOST):
                topology.invalidate(pool)
            # A connection that leads elsewhere now is closed under the call that waits on it: the
            # driver's error for that has no information.
            topology.confirm(pool)
            raise
        finally:
            pool.release(connection)


def _cause(error: Exception) -> Exception:
    cause = error.__cause__
    return cause if isinstance(error, _NotSent) and isinstance(cause, Exception) else error
