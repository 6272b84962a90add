"""`topospread bench`: measure this server on this machine."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import printing
from topospread.cli.bench.race.command import command as race
from topospread.cli.bench.sizes import command as sizes
from topospread.cli.bench.soak.command import command as soak
from topospread.cli.bench.where import redis_server_option
from topospread.cli.options import Options, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topospread.cli.bench.figures import Figures
    from topospread.cli.bench.plan import Plan

BENCHES: Final = {
    "decide": "Decisions over gRPC: rate, latency and CPU, beside an empty echo.",
    "tracing": "Decisions with 0, 1 and 100 % of them traced.",
    "scale": "Decisions in process as pods and nodes grow.",
    "cold": "The first use of a selector that nobody asked for before.",
    "changes": "Changes applied, what they cost decisions, and when they are seen.",
    "feed": "Objects listed and events taken in from an API server.",
    "start": "Time until a new process is ready, and its memory.",
    "placements": "Places held by two servers at once, each judged afterwards.",
    "extender": "kube-scheduler's extender over HTTP, with 500 candidates.",
    "planner": "The planner's verbs, asked one after the other.",
}
"""Each is `measure` of the module with its name."""

_C = TypeVar("_C", bound="Callable[..., Any]")
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


def bench_options(command: _C) -> _C:
    """The options that all benches have."""
    for option in (
        click.option("--ghz", default="", metavar="PROGRAM", help="ghz  [default: on PATH]"),
        redis_server_option,
        click.option(
            "--recorded",
            default="",
            metavar="FILE",
            help="Ask `planner` about the cluster in this file, as conformance reads it.",
        ),
        click.option("--rounds", type=click.IntRange(1), default=5, show_default=True),
        click.option(
            "--seconds",
            type=click.FloatRange(0.05),
            default=2.0,
            show_default=True,
            help="For each case in each round.",
        ),
        click.option("--pods", type=click.IntRange(0), default=50_000, show_default=True),
        click.option("--nodes", type=click.IntRange(1), default=5000, show_default=True),
    ):
        command = option(command)
    return output_option(command)


@click.group("bench")
def command() -> None:
    """Measure the server on this machine, on clusters made up for it.

    Each bench starts the servers it needs, on loopback, and ends them. Cases take turns in rounds;
    figures are medians, with the lowest and highest round beside them.
    """


def _verb(name: str, about: str) -> click.Command:
    @click.command(name, help=about)
    @bench_options
    @pass_options
    def verb(options: Options, /, **chosen: Any) -> None:
        from topospread.cli.bench.machine import environment

        plan = _plan(**chosen)
        figures = run(name, plan)
        if options.output in ("json", "yaml"):
            found = {**figures.plain(), "environment": environment()}
            printing.structure(found, options.output)
        else:
            show(figures)

    return verb


@click.command("all")
@click.option("--report", type=_DIRECTORY, help="Write benchmarks.md and its plots here.")
@bench_options
@pass_options
def everything(options: Options, /, report: Path | None, **chosen: Any) -> None:
    """All benches, one after the other; with --report, as a page with plots."""
    from topospread.cli.bench.machine import environment
    from topospread.cli.bench.report import write

    plan = _plan(**chosen)
    before = environment()
    found: Mapping[str, Figures] = {name: run(name, plan) for name in BENCHES}
    if report is not None:
        write(report, found, plan, before, environment())
        printing.note(f"wrote {report / 'benchmarks.md'}")
    if options.output in ("json", "yaml"):
        plain: dict[str, Any] = {name: figures.plain() for name, figures in found.items()}
        printing.structure({**plain, "environment": environment()}, options.output)
    elif report is None:
        for figures in found.values():
            show(figures)


for _name, _about in BENCHES.items():
    command.add_command(_verb(_name, _about))
command.add_command(everything)
command.add_command(race)
command.add_command(sizes)
command.add_command(soak)


def run(name: str, plan: Plan) -> Figures:
    """Run one bench."""
    from topospread.cli.bench.processes import require_proc

    require_proc()
    measure = importlib.import_module(f"topospread.cli.bench.{name}").measure
    figures: Figures = measure(plan)
    return figures


def show(figures: Figures) -> None:
    """Print a table."""
    plain = figures.plain()
    spread = plain["spread"]
    printing.table(
        ("FIGURE", "#MEDIAN", "#LOWEST", "#HIGHEST"),
        [(name, plain[name], *spread[name]) for name in spread],
    )
    for name, reason in figures.missing.items():
        printing.note(f"{name}: not measured: {reason}")


def _plan(
    nodes: int,
    pods: int,
    seconds: float,
    rounds: int,
    recorded: str,
    redis_server: str,
    ghz: str,
) -> Plan:
    from topospread.cli.bench.cluster import Size
    from topospread.cli.bench.plan import Plan
    from topospread.cli.bench.stores import program_of

    return Plan(
        Size(nodes, pods),
        seconds,
        rounds,
        lambda text: printing.note(f"bench: {text}"),
        program_of(redis_server),
        ghz or shutil.which("ghz") or "",
        recorded,
    )
