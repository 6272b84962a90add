"""`python -m bench race`: does maxSkew hold when several servers place pods at once."""

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

from bench.options import redis_server_option, store_option
from topospread.cli import output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import ClientOptions, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.figures import Figures
    from bench.options import BenchOptions
    from bench.race.judge import RaceFindings
    from bench.race.race import CallCounts
    from bench.stores import OwnRedis
    from topospread.store.model import Transaction

BREACHED: Final = 1
SHOWN: Final = 10

PLACEMENTS_PER_SECOND: Final = 500
"""Places a round of `placements` holds, by the seconds that a case takes."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The figures of one race."""

    counts: CallCounts
    found: RaceFindings
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
        held = max(1, self.counts.held)
        latencies = sorted(self.counts.latencies) or [0.0]
        recovered = {}
        if self.recovered is not None:
            recovered["placesHeldAgainAfterSeconds"] = round(self.recovered, 3)
        return {
            "breaches": self.breaches,
            "placements": self.counts.held,
            "judged": self.found.placements + self.found.renewals,
            "renewals": self.found.renewals,
            "ended": self.found.ended,
            "conflicts": self.counts.conflicts,
            "refusals": self.counts.refused,
            "failed": dict(self.counts.failed),
            "seconds": round(self.seconds, 2),
            "placementsPerSecond": round(self.counts.held / self.seconds, 1),
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
    options: ClientOptions,
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
        result = run_race(
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
        output.warn(f"breach: {breach}")
    if options.output in ("json", "yaml"):
        output.dump(result.plain(), options.output)
    else:
        plain = result.plain()
        failed = ", ".join(f"{count} {name}" for name, count in plain.pop("failed").items())
        output.fields([*plain.items(), ("failed", failed)])
    return BREACHED if result.breaches else DONE


@contextmanager
def _configuration() -> Iterator[str]:
    """A file with the servers' plugin arguments."""
    from bench.race.scenario import CONFIGURATION

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        # JSON is YAML.
        json.dump(CONFIGURATION, file)
        file.flush()
        yield file.name


@contextmanager
def own_store(redis_server: str) -> Iterator[str]:
    """The address of a store for one race: Redis where there is one, else a SQLite file."""
    from bench.stores import program_of, redis_store, sqlite_store

    program = program_of(redis_server)
    with redis_store(program) if program else sqlite_store() as address:
        yield address


def _own_redis(store: str | None, redis_server: str) -> AbstractContextManager[OwnRedis]:
    from bench.stores import own_redis, program_of

    program = program_of(redis_server)
    if store is not None or not program:
        raise BadInput(
            "--restart-redis needs a redis-server of its own: leave --store out, and name the "
            "program with --redis-server if it is not on PATH"
        )
    return own_redis(program)


def run_race(
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
) -> RaceResult:
    """Race once, and judge all places; the parameters are the options of the command."""
    from bench import processes
    from bench.race.fault_injection import RaceServers, UnguardedServers, restart
    from bench.race.judge import LogReplay
    from bench.race.race import Race, RaceSettings
    from bench.stores import LogRecorder
    from topospread.app.stores import open_store
    from topospread_client import Client

    processes.require_proc()
    cluster = f"race-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        config = stack.enter_context(_configuration())
        running = (RaceServers if guarded else UnguardedServers)(stack, store, config, servers)
        clients = [stack.enter_context(Client(at, cluster=cluster)) for at in running.addresses]
        # Deleted while there is a server that can delete it.
        stack.callback(clients[0].delete_cluster, cluster)
        opened = open_store(store, os.environ)
        stack.callback(opened.close)
        spaces = [f"team-{number}" for number in range(namespaces)]
        fault: Callable[[], None] | None = running.kill_one if kill_server else None
        if redis is not None:
            fault = partial(restart, redis)
        settings = RaceSettings(clients, callers, placements, nodes, spaces, seed, fault)
        with output.progress("racing") as progress:
            race = Race(settings, lambda done: progress(done, placements))
            race.prepare()
            log: list[Transaction] = []
            recorder = LogRecorder(opened, cluster, log.append)
            before = running.cpu()
            counts, seconds = race.run()
            cpu = running.cpu() - before
        revisions = recorder.finish()
        with output.progress("judging") as progress:
            found = LogReplay().play(log, lambda done: progress(done, len(log)))
    return RaceResult(counts, found, seconds, cpu, revisions, race.recovered)


def measure_placements(options: BenchOptions) -> Figures:
    """Race, in one namespace and in many."""
    from bench.figures import Figures

    figures = Figures()
    for number in range(options.rounds):
        options.progress(f"placements: round {number + 1} of {options.rounds}")
        for mark, namespaces in {"": 1, "_64_namespaces": 64}.items():
            with own_store(options.redis_server) as store:
                result = run_race(
                    store,
                    None,
                    callers=8,
                    servers=2,
                    placements=max(8, round(options.seconds * PLACEMENTS_PER_SECOND)),
                    nodes=60,
                    namespaces=namespaces,
                    seed=number,
                    guarded=True,
                    kill_server=False,
                )
            plain = result.plain()
            figures.add(f"places_per_s{mark}", plain["placementsPerSecond"])
            figures.add(f"place_cpu_us{mark}", plain["serverCpuMicrosecondsPerPlacement"])
            figures.add(f"place_p50_ms{mark}", plain["p50Milliseconds"])
            figures.add(f"place_p99_ms{mark}", plain["p99Milliseconds"])
            figures.add(f"conflicts{mark}", plain["conflicts"])
            figures.add(f"breaches{mark}", plain["breaches"])
    return figures
