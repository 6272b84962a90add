"""What clusters cost a server that nobody asks about: threads, open files, CPU and memory."""

from __future__ import annotations

import os
import resource
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import MIB, Outcome, campaign, note, run, server_flag_option
from bench.campaigns.measured import Measured
from tests.redis_server import RedisProcess, default_redis_binary
from tests.servers import Peer, ServerProcess, evaluate_request, two_zones

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = 20.0
"""Longest wait for a call."""

MAX_CORES: Final = 1.0
"""Of processor time for 1,024 clusters at rest; docs/operations.md has 0.54 with Redis."""


def _at_rest(measured: Measured, seconds: float) -> dict[str, float]:
    """What the server has and does while nobody calls."""
    began, cpu = time.monotonic(), measured.cpu
    time.sleep(seconds)
    return {
        "threads": len(os.listdir(f"/proc/{measured.pid}/task")),
        "open files": len(os.listdir(f"/proc/{measured.pid}/fd")),
        "cores": round((measured.cpu - cpu) / (time.monotonic() - began), 3),
        "MiB": measured.rss // MIB,
    }


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return f"{error.code().name}: {str(error.details())[:200]}"
    return "OK"


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as page:
            return str(page.status)
    except (urllib.error.URLError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def _asked(peer: Peer, cluster: str) -> None:
    peer.engine.EvaluatePod(evaluate_request(cluster=cluster), timeout=SECONDS)


def _made(peer: Peer, cluster: str) -> None:
    peer.apply(*two_zones(), cluster=cluster)
    _asked(peer, cluster)


@campaign(
    "clusters",
    click.option("--clusters", type=click.IntRange(1), default=1024, show_default=True),
    click.option("--store", type=click.Choice(["sqlite", "redis"]), default="sqlite"),
    click.option("--seconds", type=float, default=20.0, help="At rest."),
    click.option("--files", type=int, help="The server may have open."),
    server_flag_option,
)
def command(
    clusters: int, store: str, seconds: float, files: int | None, server_flags: tuple[str, ...]
) -> Outcome:
    """Make clusters, ask about each once, and look at the server while nobody calls.

    docs/operations.md promises that clusters past the open files are refused with
    RESOURCE_EXHAUSTED, while health and other calls go on.
    """
    figures: dict[str, Any] = {}
    first: dict[str, int] = {}
    ended: Counter[str] = Counter()
    with ExitStack() as opened:
        folder = opened.enter_context(TemporaryDirectory())
        url = f"sqlite:///{folder}/state.db"
        if store == "redis":
            redis = RedisProcess(Path(folder) / "redis", binary=default_redis_binary())
            url = opened.enter_context(redis).url
        if files is not None:  # which the server inherits
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        flags = ("--store", url, "--http", "127.0.0.1:0", "--log-level", "error", *server_flags)
        server = opened.enter_context(ServerProcess(*flags))
        measured = Measured(server.process.pid, server.address)
        measured.channel.close()
        with Peer(server.address) as peer:
            figures["no cluster"] = _at_rest(measured, min(seconds, 5.0))
            for number in range(clusters):
                outcome = _outcome(lambda: _made(peer, f"cluster-{number}"))  # noqa: B023
                if outcome not in first:
                    first[outcome] = number
                    note(f"clusters: at {number}: {outcome}")
                ended[outcome] += 1
            figures["just asked"] = _at_rest(measured, seconds)
            figures["at rest"] = _at_rest(measured, seconds)
        livez = _page(server.http + "/livez")
        with Peer(server.address) as peer:
            late = _outcome(lambda: _asked(peer, "cluster-0"))
    figures |= {"ended": ended, "first": first, "/livez": livez, "new connection": late}
    broken = [
        f"at {first[outcome]} clusters: {outcome}"
        for outcome in ended
        if outcome != "OK" and not (files and outcome.startswith("RESOURCE_EXHAUSTED"))
    ]
    broken += [f"/livez: {livez}"] * (livez != "200")
    broken += [f"EvaluatePod on a new connection: {late}"] * (late != "OK")
    if (cores := figures["at rest"]["cores"]) > MAX_CORES:
        broken.append(f"{cores} of a core at rest")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
