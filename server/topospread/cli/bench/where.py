"""The options of benches that say where the state is."""

from __future__ import annotations

from typing import Final

import click

redis_server_option: Final = click.option(
    "--redis-server",
    default="",
    metavar="PROGRAM",
    help="redis-server  [default: $REDIS_SERVER, or on PATH]",
)
"""The program of benches that run a Redis of their own."""

store_option: Final = click.option(
    "--store",
    metavar="URL",
    help="Where the state is.  [default: a redis-server of its own, or a SQLite file]",
)
"""The store of benches that may use one that is there."""
