"""Stores of a bench's own, filled with a made-up cluster."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topospread.app.stores import open_store
from topospread.cli.bench.cluster import fill
from topospread.cli.bench.questions import CLUSTER
from topospread.cli.complaints import Unreachable
from topospread.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.cli.bench.cluster import Size

_START_SECONDS: Final = 20.0


@contextmanager
def filled_store(size: Size) -> Iterator[str]:
    """The address of a SQLite store that holds a cluster."""
    with sqlite_store() as address:
        filled(address, size)
        yield address


def filled(address: str, size: Size, cluster: str = CLUSTER) -> None:
    """Write a whole cluster to the store at an address."""
    store = open_store(address, {})
    try:
        fill(store, cluster, size)
    finally:
        store.close()


@contextmanager
def sqlite_store() -> Iterator[str]:
    """The address of an empty SQLite file, removed afterwards."""
    with sqlite_file() as file:
        yield f"sqlite://{file}"


@contextmanager
def sqlite_file() -> Iterator[Path]:
    """Where a SQLite file may be made; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        yield Path(directory) / "state.db"


def program_of(redis_server: str) -> str:
    """The redis-server that was named, or that can be found; empty when there is none."""
    return redis_server or os.environ.get("REDIS_SERVER") or shutil.which("redis-server") or ""


class OwnRedis:
    """A redis-server that keeps its log as one should.

    Args:
        program: the redis-server.
        directory: where its files are.
    """

    def __init__(self, program: str, directory: Path) -> None:
        # It runs in another directory; a bare name is looked for on PATH.
        self._program = os.path.abspath(program) if os.sep in program else program
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[str] | None = None
        self.address = f"redis://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Run it with what its directory holds, until it answers.

        Raises:
            Unreachable: it does not start.
        """
        try:
            with (self._directory / "redis.log").open("ab") as log:
                self._process = process = subprocess.Popen(
                    [self._program, "-"],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    cwd=self._directory,
                    text=True,
                )
        except OSError as cause:
            raise Unreachable(f"{self._program} cannot be run: {cause.strerror}") from cause
        assert process.stdin is not None
        process.stdin.write(
            f'bind 127.0.0.1\nport {self._port}\nsave ""\nappendonly yes\nappendfsync everysec\n'
        )
        process.stdin.close()
        _await(self.address, process, self._program)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()


@contextmanager
def own_redis(program: str) -> Iterator[OwnRedis]:
    """An empty redis-server; raises as its start() does."""
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        redis = OwnRedis(program, Path(directory))
        try:
            redis.start()
            yield redis
        finally:
            redis.stop()


@contextmanager
def redis_store(program: str) -> Iterator[str]:
    """The address of an empty redis-server of its own; raises as its start() does."""
    with own_redis(program) as redis:
        yield redis.address


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(address: str, process: subprocess.Popen[str], program: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            open_store(address, {}).close()
        except StoreUnavailable as cause:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Unreachable(f"{program} does not start: {cause}") from cause
            time.sleep(0.05)
        else:
            return
