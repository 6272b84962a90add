"""What clusters cost a server that nobody asks about: threads, open files, processor time, memory.

    python -m tests.costs.clusters [--clusters 1024] [--store sqlite] [--seconds 20] [--files 1024]

Makes so many clusters of one pod each, has each loaded by a question, and looks at the server while
nobody calls. With `--files` the server may have no more files open than that; the first call that
is refused is shown, and how long /livez takes then.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc

from tests.costs.measured import MIB, Measured
from tests.redis_server import RedisProcess, default_redis_binary
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 20.0
"""Longest wait for a call."""


def _look(name: str, measured: Measured, seconds: float) -> None:
    """Print what the server has and does while nobody calls."""
    began, cpu = time.monotonic(), measured.cpu
    time.sleep(seconds)
    busy = (measured.cpu - cpu) / (time.monotonic() - began)
    files = len(os.listdir(f"/proc/{measured.pid}/fd"))
    threads = len(os.listdir(f"/proc/{measured.pid}/task"))
    _say(
        f"{name}: {threads} threads, {files} open files, {busy:.3f} of a core, "
        f"RSS {measured.rss / MIB:.0f} MiB"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return f"{error.code().name}: {str(error.details())[:200]}"
    return "OK"


def _page(url: str) -> str:
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as page:
            answer = str(page.status)
    except (urllib.error.URLError, OSError) as error:
        answer = f"{type(error).__name__}: {error}"
    return f"{answer} in {time.monotonic() - began:.2f} s"


def measure(clusters: int, store: str, seconds: float, flags: list[str]) -> None:
    """Do it with a store, and print what it came to."""
    with ServerProcess(
        "--store", store, "--http", "127.0.0.1:0", "--log-level", "error", *flags
    ) as server:
        measured = Measured(server.process.pid, server.address)
        measured.channel.close()
        with Peer(server.address) as peer:
            _look("no cluster", measured, min(seconds, 5.0))
            ended: Counter[str] = Counter()
            for number in range(clusters):
                name = f"cluster-{number}"
                outcome = _outcome(lambda: _made(peer, name))  # noqa: B023
                if outcome != "OK" and ended[outcome] < 1:
                    _say(f"at {number} clusters: {outcome}")
                ended[outcome] += 1
            _say(f"{ended['OK']} of {clusters} clusters were made and asked about")
            _look(f"{clusters} clusters, just asked", measured, seconds)
            _look(f"{clusters} clusters, not asked for long", measured, seconds)
        _say(f"/livez: {_page(server.http + '/livez')}")
        with Peer(server.address) as peer:
            began = time.monotonic()
            answer = _outcome(
                lambda: peer.engine.EvaluatePod(_question("cluster-0"), timeout=SECONDS)
            )
            _say(f"EvaluatePod on a new connection: {answer} in {time.monotonic() - began:.2f} s")


def _question(cluster: str) -> Any:
    return evaluate_request(cluster=cluster)


def _made(peer: Peer, cluster: str) -> None:
    peer.apply(*two_zones(), cluster=cluster)
    peer.engine.EvaluatePod(_question(cluster), timeout=SECONDS)


def main() -> None:
    """Measure one store or both."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs.clusters")
    parser.add_argument("--clusters", type=int, default=1024)
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=20.0, help="that are looked at")
    parser.add_argument("--files", type=int, help="that the server may have open")
    parser.add_argument("--server-flag", action="append", default=[], help="of topospread serve")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        if asked.store == "redis":
            with RedisProcess(Path(folder) / "redis", binary=default_redis_binary()) as redis:
                _limit(asked.files)
                measure(asked.clusters, redis.url, asked.seconds, asked.server_flag)
        else:
            _limit(asked.files)
            store = f"sqlite:///{folder}/state.db"
            measure(asked.clusters, store, asked.seconds, asked.server_flag)


def _limit(files: int | None) -> None:
    """Have the server, which inherits it, open no more files than that."""
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


if __name__ == "__main__":
    main()
