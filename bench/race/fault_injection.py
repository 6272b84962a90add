"""Fault injection in the middle of a race: a server is killed, or Redis."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from bench import processes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager, ExitStack

    from bench.processes import Running
    from bench.stores import OwnRedis


_UNGUARDED_SERVER: Final = ("-m", "tests.bench.race.unguarded")


class RaceServers:
    """The servers of a race, one of which may be replaced while it is on.

    Args:
        stack: ends them.
        store: address of the state.
        config: path of a configuration file.
        count: how many.
    """

    def __init__(self, stack: ExitStack, store: str, config: str, count: int) -> None:
        self._stack = stack
        self._store = store
        self._config = config
        self._spent = 0.0
        self._running = [self._start() for _ in range(count)]

    @property
    def addresses(self) -> list[str]:
        """host:port of each; they stay."""
        return [each.address for each in self._running]

    def kill_one(self) -> None:
        """Kill the last server with SIGKILL and start another one at its address."""
        old = self._running[-1]
        self._spent += old.cpu()
        os.kill(old.pid, signal.SIGKILL)
        new = self._start("--listen", old.address)
        self._spent -= new.cpu()
        self._running[-1] = new

    def cpu(self) -> float:
        """Seconds of CPU that all servers used so far, without those of their start."""
        return self._spent + sum(each.cpu() for each in self._running)

    def _start(self, *flags: str) -> Running:
        return self._stack.enter_context(self._server(*flags))

    def _server(self, *flags: str) -> AbstractContextManager[Running]:
        return processes.server(self._store, "--config", self._config, *flags, preload="all")


class UnguardedServers(RaceServers):
    """Servers that write without looking; none is replaced."""

    @override
    def _server(self, *flags: str) -> AbstractContextManager[Running]:
        return processes.started((*_UNGUARDED_SERVER, self._store, self._config, *flags), {})


def restart(redis: OwnRedis) -> None:
    """End Redis with SIGKILL, as a crash would, and start it again with what it has written."""
    redis.kill()
    redis.start()
