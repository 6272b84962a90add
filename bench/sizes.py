"""`python -m bench sizes`: what a cluster takes up in Redis and in a SQLite file."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from bench.options import redis_server_option
from topospread.cli import output
from topospread.cli.errors import BadInput
from topospread.cli.options import ClientOptions, output_option, pass_options

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cluster import Size

CLUSTER: Final = "sizes"
TOGETHER: Final = 20
"""Changes in one transaction of the log."""


@click.command("sizes")
@click.option("--nodes", type=click.IntRange(1), default=5000, show_default=True)
@click.option("--pods", type=click.IntRange(1), default=50_000, show_default=True)
@click.option(
    "--changes",
    type=click.IntRange(1),
    default=105_000,
    show_default=True,
    help="Written to fill the log, which keeps the newest 100,000 or a few more.",
)
@redis_server_option
@output_option
@pass_options
def command(options: ClientOptions, nodes: int, pods: int, changes: int, redis_server: str) -> None:
    """Write a made-up cluster, fill its log, and ask how many bytes that takes.

    Pods have three labels and no constraints of their own; every change of the log is a pod that
    comes or goes.
    """
    from bench.cluster import Size
    from bench.stores import program_of, redis_store, sqlite_file

    program = program_of(redis_server)
    if not program:
        raise BadInput("no redis-server on PATH: name one with --redis-server")
    size = Size(nodes, pods)
    with redis_store(program) as address:
        found = _in_redis(address, size, changes)
    with sqlite_file() as file:
        found["sqliteBytes"] = _in_sqlite(file, size, changes)
    if options.output in ("json", "yaml"):
        output.dump(found, options.output)
    else:
        output.fields(found.items())


def _in_redis(address: str, size: Size, changes: int) -> dict[str, Any]:
    """Bytes by what they are for, as Redis counts them."""
    import redis

    with redis.Redis.from_url(address, protocol=2) as client:
        empty = int(client.info("memory")["used_memory"])
        _fill(address, size, changes)
        sizes = {
            part: client.memory_usage(f"ts:{{{CLUSTER}}}:{part}", samples=0) or 0
            for part in ("object", "log", "touched", "names")
        }
        # Beside the changes an entry has its tag and the tag before it.
        kept = sum(len(entry) - 2 for _, entry in client.xrange(f"ts:{{{CLUSTER}}}:log"))
        objects = int(client.hlen(f"ts:{{{CLUSTER}}}:object"))
        whole = int(client.info("memory")["used_memory"]) - empty
    return {
        "nodes": size.nodes,
        "objects": objects,
        "redisBytesAnObject": round(sizes["object"] / objects),
        "logChanges": kept,
        "redisBytesALoggedChange": round(sizes["log"] / kept),
        "redisLogBytes": sizes["log"],
        "redisBytesAName": round(sizes["names"] / objects),
        "redisBytes": whole,
    }


def _in_sqlite(file: Path, size: Size, changes: int) -> int:
    """Bytes of the file when it is closed."""
    _fill(f"sqlite://{file}", size, changes)
    return file.stat().st_size


def _fill(address: str, size: Size, changes: int) -> None:
    from bench.cluster import churn, fill
    from topospread.app.stores import open_store

    with closing(open_store(address, {})) as store:
        fill(store, CLUSTER, size)
        more = churn(size)
        for _ in range(0, changes, TOGETHER):
            store.apply(CLUSTER, list(islice(more, TOGETHER)))
