"""Commands and the Lua script on Redis: time-outs, bounded retries, errors as StoreUnavailable.

Connections are used below redis-py's command objects: their reply conversions cost more than the
call, and a time-out for one call is not to be had there.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
import time
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store.redis import keys
from topospread.store.redis.connections import check_policy, check_role
from topospread.store.redis.failures import MasterUnknown, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.store.model import StoreSettings
    from topospread.store.redis.connections import Arg, RedisConnection, RedisPool, Reply
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

T = TypeVar("T")


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
        return RedisClient(self, lambda: self.topology.command_pool(cluster))

    def for_all_masters(self) -> list[RedisClient]:
        """A client for each server that holds clusters.

        Raises:
            StoreUnavailable: it is not known which they are.
        """
        try:
            return [RedisClient(self, find) for find in self.topology.masters()]
        except (exceptions.RedisError, OSError) as error:
            raise unavailable(error) from error

    def check_server(self, pool: RedisPool, connection: RedisConnection, deadline: float) -> None:
        """Check once in CHECK_INTERVAL seconds that a server is still a master that evicts no keys.

        Raises:
            redis.RedisError: it is a replica now, or evicts keys, or did not answer by then.
        """
        now = time.monotonic()
        if now < self._checked_at.get(pool, -math.inf) + CHECK_INTERVAL:
            return
        check_role(connection, deadline)
        check_policy(connection, deadline)
        self._checked_at[pool] = now

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        self.topology.close()


class RedisClient:
    """Commands to one server at a time, over a bounded pool of connections."""

    def __init__(self, clients: RedisClients, find: Callable[[], RedisPool]) -> None:
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
        return self._with_retries(
            lambda left: self._exchange(args, left, replicas), timeout, repeat=repeat
        )

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
        return self._with_retries(
            lambda left: self._send_pipeline(commands, left), timeout, repeat=True
        )

    @contextmanager
    def connection(self) -> Iterator[RedisConnection]:
        """Borrow a connection, without retries; it is closed when anything fails on it."""
        self._check_open()
        try:
            with self._borrow() as connection:
                yield connection
        except (exceptions.RedisError, OSError, _NotSent) as error:
            self._note_error(error)
            raise unavailable(_cause(error)) from _cause(error)

    def _check_open(self) -> None:
        if self._clients.closed:
            raise StoreUnavailable("the store is closed")

    def _with_retries(
        self, attempt: Callable[[float], T], timeout: float | None, *, repeat: bool
    ) -> T:
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
                self._note_error(error)
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

    def _note_error(self, error: Exception) -> None:
        """Invalidate the topology, if the error may come from a change of it."""
        if isinstance(error, (_NotSent, *_LOST, *_ELSEWHERE)):
            self._clients.topology.invalidate()

    def _exchange(self, args: Sequence[Arg], left: float, replicas: int) -> Reply:
        deadline = time.monotonic() + left
        with self._borrow(deadline) as connection:
            connection.send_command(*args)
            self._wait_for_reply(connection, deadline - time.monotonic())
            reply = connection.read_response()
            if replicas and reply[:1] == [b"OK"]:
                self._replicate(connection, replicas, deadline - time.monotonic())
            return reply

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

    def _send_pipeline(self, commands: Sequence[Sequence[Arg]], left: float) -> list[Reply]:
        replies: list[Reply] = []
        refused: exceptions.ResponseError | None = None
        deadline = time.monotonic() + left
        with self._borrow(deadline) as connection:
            connection.send_packed_command(connection.pack_commands(commands))
            self._wait_for_reply(connection, deadline - time.monotonic())
            for _ in commands:
                try:
                    replies.append(connection.read_response())
                except exceptions.ResponseError as error:
                    # The answers to the rest are still on their way.
                    refused = refused or error
            if refused:
                raise refused
        return replies

    def _wait_for_reply(self, connection: RedisConnection, left: float) -> None:
        """Wait for an answer until another deadline than the connection's own."""
        own = self._settings.timeout
        if own - 0.01 <= left <= own or connection.can_read(max(0.0, left)):
            return
        connection.disconnect()
        raise exceptions.TimeoutError("no answer before the caller's deadline")

    @contextmanager
    def _borrow(self, deadline: float = math.inf) -> Iterator[RedisConnection]:
        try:
            pool = self._find()
            connection = pool.get_connection()
        except (exceptions.RedisError, OSError) as error:
            raise _NotSent from error
        try:
            self._clients.check_server(pool, connection, deadline)
            yield connection
            self._clients.topology.confirm(pool)
        except exceptions.ReadOnlyError:
            # The master moved: the next try asks again where it is.
            connection.disconnect()
            raise
        except exceptions.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            # A connection that leads elsewhere now is closed under the call that waits on it: the
            # driver's error for that has no information.
            self._clients.topology.confirm(pool)
            raise
        finally:
            pool.release(connection)


def _cause(error: Exception) -> Exception:
    cause = error.__cause__
    return cause if isinstance(error, _NotSent) and isinstance(cause, Exception) else error


class Script:
    """store.lua, wherever a cluster's keys are."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self._text = resources.files(__package__).joinpath("store.lua").read_text("utf-8")
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(
        self,
        cluster: str,
        args: Sequence[Arg],
        *,
        timeout: float | None = None,
        repeat: bool = True,
    ) -> Reply:
        """Run it for one cluster, on its keys; see RedisClient.call()."""
        client = self._clients.for_cluster(cluster)
        names = keys.script_keys(cluster)
        tail = (len(names), *names, *args)

        def run(command: str, script: str) -> Reply:
            replicas = self._clients.settings.wait_replicas
            return client.call(
                command, script, *tail, timeout=timeout, repeat=repeat, replicas=replicas
            )

        try:
            return run("EVALSHA", self._sha)
        except exceptions.NoScriptError:
            return run("EVAL", self._text)
