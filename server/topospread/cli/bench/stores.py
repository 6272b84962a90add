"""Stores of a bench's own, filled with a made-up cluster."""

from __future__ import annotations

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
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        yield f"sqlite://{directory}/state.db"


@contextmanager
def redis_store(program: str) -> Iterator[str]:
    """The address of an empty redis-server of its own that keeps its log as one should.

    Args:
        program: the redis-server.

    Raises:
        Unreachable: it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        port = free_port()
        process = subprocess.Popen(
            [program, "-"],
            stdin=subprocess.PIPE,
            stdout=(Path(directory) / "redis.log").open("wb"),
            cwd=directory,
            text=True,
        )
        try:
            assert process.stdin is not None
            process.stdin.write(
                f'bind 127.0.0.1\nport {port}\nsave ""\nappendonly yes\nappendfsync everysec\n'
            )
            process.stdin.close()
            address = f"redis://127.0.0.1:{port}"
            _await(address, process, program)
            yield address
        finally:
            process.terminate()
            process.wait()


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
