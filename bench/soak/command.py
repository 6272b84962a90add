"""`python -m bench soak`: does a server stay as it is while a day passes."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from bench.options import redis_server_option, store_option
from topospread.cli import output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import ClientOptions, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BROKEN: Final = 1


@click.command("soak")
@click.option("--nodes", type=click.IntRange(30), default=5000, show_default=True)
@click.option("--pods", type=click.IntRange(100), default=50_000, show_default=True)
@click.option(
    "--hours",
    type=click.FloatRange(0.5, 168),
    default=24.0,
    show_default=True,
    help="Of the day that are lived through.",
)
@click.option("--callers", type=click.IntRange(1, 64), default=4, show_default=True)
@store_option
@redis_server_option
@click.option("--seed", type=int, default=1, show_default=True, help="Of all that happens.")
@output_option
@pass_options
def command(
    options: ClientOptions,
    nodes: int,
    pods: int,
    hours: float,
    callers: int,
    store: str | None,
    redis_server: str,
    seed: int,
) -> int:
    """Run a day's changes through a server as fast as they go, and check what they leave behind.

    New revisions, jobs, namespaces, nodes that come and go, and a zone that fails and returns, with
    callers beside them. The exit code is 1 when memory or the store grows, when what the server
    followed is not what a fresh one loads, when selectors or label sets of what is gone are kept,
    when a revision is missing, or when a call fails.
    """
    from bench.processes import require_proc
    from bench.soak.soak import Soak, SoakSettings

    require_proc()
    if store == "memory:":
        raise BadInput("--store: the processes of a soak share a store: name a file or a Redis")
    with ExitStack() as stack:
        stored: Callable[[], float] | None = None
        if store is None:
            store, stored = _own_store(stack, redis_server)
        settings = SoakSettings(
            store,
            stored,
            f"soak-{secrets.token_hex(4)}",
            nodes,
            pods,
            round(hours * 60),
            callers,
            seed,
        )
        progress = stack.enter_context(output.progress("minutes"))
        found = Soak(settings, progress).run()
    broken = list(found.broken())
    for line in broken:
        output.warn(f"broken: {line}")
    if options.output in ("json", "yaml"):
        output.dump(found.plain(), options.output)
    else:
        show(found.plain())
    return BROKEN if broken else DONE


def show(plain: dict[str, Any]) -> None:
    """Print the figures for people."""
    calls = [{"call": name, **each} for name, each in plain.pop("calls").items()]
    tables = (calls, plain.pop("comparedIndexes"), plain.pop("parts"))
    del plain["broken"]  # printed beside the answer
    output.fields((name, _shown(value)) for name, value in plain.items())
    for rows in tables:
        click.echo()
        columns = [name if name == "call" else f"#{name}" for name in rows[0]]
        output.table([name.upper() for name in columns], [list(row.values()) for row in rows])


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return value


def _own_store(stack: ExitStack, redis_server: str) -> tuple[str, Callable[[], float]]:
    """The address of a store for one soak, and a function that returns its MB."""
    from bench.soak.command import redis_megabytes, sqlite_megabytes
    from bench.stores import program_of, redis_store, sqlite_file

    if program := program_of(redis_server):
        address = stack.enter_context(redis_store(program))
        return address, partial(redis_megabytes, address)
    file = stack.enter_context(sqlite_file())
    return f"sqlite://{file}", partial(sqlite_megabytes, file)


def redis_megabytes(address: str) -> float:
    """Megabytes of memory that Redis uses."""
    import redis

    with redis.Redis.from_url(address, protocol=2) as client:
        return int(client.info("memory")["used_memory"]) / 1e6


def sqlite_megabytes(file: Path) -> float:
    """The pages of a file that are in use: free ones stay in it, and are used again."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size / 1e6
