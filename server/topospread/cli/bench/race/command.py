"""`topospread bench race`: does maxSkew hold when several servers place pods at once."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import printing
from topospread.cli.bench.where import redis_server_option, store_option
from topospread.cli.complaints import DONE, BadInput
from topospread.cli.options import Options, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from topospread.cli.bench.race.replay import Found
    from topospread.cli.bench.race.run import Tally
    from topospread.cli.bench.stores import OwnRedis
    from topospread.store.api import Transaction

BREACHED: Final = 1
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a race."""

    tally: Tally
    found: Found
    seconds: float
    cpu: float
    revisions: int
    recovered: float | None

    @property
    def breaches(self) -> int:
        """Places that the state just before them did not allow, and pods that counted twice."""
        return len(self.found.breaches) + len(self.found.doubles)

    def plain(self) -> dict[str, Any]:
        """The figures by name."""
        held = max(1, self.tally.held)
        latencies = sorted(self.tally.latencies) or [0.0]
        recovered = {}
        if self.recovered is not None:
            recovered["placesHeldAgainAfterSeconds"] = round(self.recovered, 3)
        return {
            "breaches": self.breaches,
            "placements": self.tally.held,
            "judged": self.found.placements + self.found.renewals,
            "renewals": self.found.renewals,
            "ended": self.found.ended,
            "conflicts": self.tally.conflicts,
            "refusals": self.tally.refused,
            "failed": dict(self.tally.failed),
            "seconds": round(self.seconds, 2),
            "placementsPerSecond": round(self.tally.held / self.seconds, 1),
            "serverCpuMicrosecondsPerPlacement": round(self.cpu / held * 1e6),
            "p50Milliseconds": round(latencies[len(latencies) // 2] * 1e3, 2),
            "p99Milliseconds": round(latencies[int(len(latencies) * 0.99)] * 1e3, 2),
            "revisions": self.revisions,
            **recovered,
        }


@click.command("race")
@click.option("--callers", type=click.IntRange(1, 256), default=8, show_default=True)
@click.option("--servers", type=click.IntRange(1, 16), default=2, show_default=True)
@click.option("--placements", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--nodes", type=click.IntRange(4), default=60, show_default=True)
@click.option("--namespaces", type=click.IntRange(1), default=1, show_default=True)
@store_option
@redis_server_option
@click.option("--seed", type=int, default=1, show_default=True, help="Of what callers do.")
@click.option(
    "--break-precondition",
    is_flag=True,
    help="Let servers write without looking what changed: the race must find breaches.",
)
@click.option(
    "--kill-server",
    is_flag=True,
    help="When half of the places are held, kill a server and start another in its place.",
)
@click.option(
    "--restart-redis",
    is_flag=True,
    help="When half of the places are held, kill Redis (one of its own) and start it again.",
)
@output_option
@pass_options
def command(
    options: Options,
    callers: int,
    servers: int,
    placements: int,
    nodes: int,
    namespaces: int,
    store: str | None,
    redis_server: str,
    seed: int,
    break_precondition: bool,
    kill_server: bool,
    restart_redis: bool,
) -> int:
    """Let callers place pods through several servers at once, and judge each place afterwards.

    Servers of its own share one store, while pods are bound, end and are deleted and nodes come, go
    and are tainted. The whole log is recorded and gone through again: a place that a plain recount
    of the state just before it does not allow is a breach, and the exit code is 1.
    """
    if kill_server and (break_precondition or restart_redis):
        raise BadInput("--kill-server goes with neither --break-precondition nor --restart-redis")
    with ExitStack() as stack:
        redis = None
        if restart_redis:
            redis = stack.enter_context(_own_redis(store, redis_server))
            store = redis.address
        if store is None:
            store = stack.enter_context(own_store(redis_server))
        result = raced(
            store,
            redis,
            callers=callers,
            servers=servers,
            placements=placements,
            nodes=nodes,
            namespaces=namespaces,
            seed=seed,
            guarded=not break_precondition,
            kill_server=kill_server,
        )
    for breach in (*result.found.breaches, *result.found.doubles)[:SHOWN]:
        printing.note(f"breach: {breach}")
    if options.output in ("json", "yaml"):
        printing.structure(result.plain(), options.output)
    else:
        plain = result.plain()
        failed = ", ".join(f"{count} {name}" for name, count in plain.pop("failed").items())
        printing.fields([*plain.items(), ("failed", failed)])
    return BREACHED if result.breaches else DONE


@contextmanager
def _configuration() -> Iterator[str]:
    """A file that tells servers by which arguments to judge."""
    from topospread.cli.bench.race.scenario import CONFIGURATION

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        # JSON is YAML.
        json.dump(CONFIGURATION, file)
        file.flush()
        yield file.name


@contextmanager
def own_store(redis_server: str) -> Iterator[str]:
    """The address of a store for one race: Redis where there is one, else a SQLite file."""
    from topospread.cli.bench.stores import program_of, redis_store, sqlite_store

    program = program_of(redis_server)
    with redis_store(program) if program else sqlite_store() as address:
        yield address


def _own_redis(store: str | None, redis_server: str) -> AbstractContextManager[OwnRedis]:
    from topospread.cli.bench.stores import own_redis, program_of

    program = program_of(redis_server)
    if store is not None or not program:
        raise BadInput(
            "--restart-redis needs a redis-server of its own: leave --store out, and name the "
            "program with --redis-server if it is not on PATH"
        )
    return own_redis(program)


def raced(
    store: str,
    redis: OwnRedis | None,
    *,
    callers: int,
    servers: int,
    placements: int,
    nodes: int,
    namespaces: int,
    seed: int,
    guarded: bool,
    kill_server: bool,
) -> Result:
    """Race once, and judge all places; the options of the command say what is what."""
    from topospread.app.stores import open_store
    from topospread.cli.bench import processes
    from topospread.cli.bench.race.mishaps import Servers, Unguarded, restart
    from topospread.cli.bench.race.replay import Replay
    from topospread.cli.bench.race.run import Entry, Race
    from topospread.cli.bench.record import Recorder
    from topospread_client import Client

    processes.require_proc()
    cluster = f"race-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        config = stack.enter_context(_configuration())
        running = (Servers if guarded else Unguarded)(stack, store, config, servers)
        clients = [stack.enter_context(Client(at, cluster=cluster)) for at in running.addresses]
        # Closed before the servers go: dropped while somebody can be asked to.
        stack.callback(clients[0].delete_cluster, cluster)
        opened = open_store(store, os.environ)
        stack.callback(opened.close)
        spaces = [f"team-{number}" for number in range(namespaces)]
        mishap: Callable[[], None] | None = running.kill_one if kill_server else None
        if redis is not None:
            mishap = partial(restart, redis)
        entry = Entry(clients, callers, placements, nodes, spaces, seed, mishap)
        with printing.progress("racing") as progress:
            race = Race(entry, lambda done: progress(done, placements))
            race.prepare()
            log: list[Transaction] = []
            recorder = Recorder(opened, cluster, log.append)
            before = running.cpu()
            tally, seconds = race.run()
            cpu = running.cpu() - before
        revisions = recorder.finish()
        with printing.progress("judging") as progress:
            found = Replay().play(log, lambda done: progress(done, len(log)))
    return Result(tally, found, seconds, cpu, revisions, race.recovered)
