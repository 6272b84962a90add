"""Temporary stores filled with a generated cluster, and a recorder of a cluster's log."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.cluster import fill
from bench.requests import CLUSTER
from topospread.app.stores import open_store
from topospread.cli.errors import Unreachable
from topospread.errors import StoreUnavailable
from topospread.store.model import Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import Size
    from topospread.store.api import Store
    from topospread.store.model import Transaction


_START_SECONDS: Final = 20.0

_PAUSE: Final = 0.02


@contextmanager
def filled_store(size: Size) -> Iterator[str]:
    """The address of a SQLite store that holds a cluster."""
    with sqlite_store() as address:
        fill_store(address, size)
        yield address


def fill_store(address: str, size: Size, cluster: str = CLUSTER) -> None:
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
    """A path for a SQLite file; it is removed afterwards."""
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
    """A TCP port of 127.0.0.1 that was free a moment ago."""
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


class LogGap(Exception):  # noqa: N818 - named after what is the case
    """The log does not continue what was recorded."""


class LogRecorder:
    """Follows a cluster's log in a thread.

    Args:
        store: one of its own.
        cluster: which exists.
        take: given each transaction, in order, in the recorder's thread.
    """

    def __init__(self, store: Store, cluster: str, take: Callable[[Transaction], None]) -> None:
        self._take = take
        self._revisions: list[Revision] = []
        self._store = store
        self._cluster = cluster
        self._identity = store.head(cluster).identity
        self._until: int | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def recorded(self) -> int:
        """The number of transactions so far."""
        return len(self._revisions)

    @property
    def going_on(self) -> bool:
        """Whether more may be recorded: nothing is missing so far."""
        return self._thread.is_alive()

    def finish(self) -> int:
        """Go on up to the present head; returns how many transactions there were.

        Raises:
            Gap: something is missing.
        """
        head = self._store.head(self._cluster).revision
        self._until = head.number
        self._store.wake(self._cluster)
        self._thread.join()
        if self._failure is not None:
            raise LogGap(f"the log could not be followed: {self._failure}") from self._failure
        if head.number and self._revisions[head.number - 1] != head:
            raise LogGap(f"what was recorded is not the history that ends with {head.number}")
        return len(self._revisions)

    def _run(self) -> None:
        at = Revision()
        try:
            while self._until is None or at.number < self._until:
                try:
                    found = self._store.follow(self._cluster, self._identity, at, wait=0.2)
                except StoreUnavailable:
                    # It may come back; what it lost then is a gap.
                    time.sleep(_PAUSE)
                    continue
                for transaction in found:
                    if (
                        transaction.revision.number != at.number + 1
                        or transaction.previous_tag != at.tag
                    ):
                        raise LogGap(f"revision {transaction.revision.number} follows {at.number}")
                    self._take(transaction)
                    self._revisions.append(transaction.revision)
                    at = transaction.revision
        except Exception as failure:  # noqa: BLE001 - raised by finish(), in its caller's thread
            self._failure = failure
