"""Options of benches: how large, how long, and which stores and programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from bench.cluster import Size

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of a bench: what to measure with, and for how long.

    Attributes:
        size: of the cluster, where a bench has only one.
        seconds: for each case in each round.
        rounds: how often each case has its turn.
        progress: called with what is under way.
        redis_server: a redis-server program; empty when there is none.
        ghz: a ghz program; empty when there is none.
        go: whether there is a Go, which builds kube-scheduler's plugin.
        recorded: file of a recorded cluster that `planner` asks about; empty for one made up.
        only: cases of `decide` to measure; empty for all.
    """

    size: Size = field(default_factory=Size)
    seconds: float = 2.0
    rounds: int = 5
    progress: Callable[[str], None] = lambda _: None
    redis_server: str = ""
    ghz: str = ""
    go: bool = False
    recorded: str = ""
    only: frozenset[str] = frozenset()


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
