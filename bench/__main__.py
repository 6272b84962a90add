"""`python -m bench`: measure the server on this machine."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bench.command import run_command
from bench.options import redis_server_option
from bench.race.command import command as race
from bench.sizes import command as sizes
from bench.soak.command import command as soak
from topospread.cli import output
from topospread.cli.options import ClientOptions, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.figures import Figures
    from bench.options import BenchOptions

BENCHES: Final = {
    "scheduler": ("scheduler", "EvaluatePod beside kube-scheduler's own plugin."),
    "decide": ("decide", "Decisions over gRPC: rate, latency and CPU, beside an empty echo."),
    "client": ("client", "EvaluatePod by the Python client, beside a generated stub."),
    "tracing": ("decide", "Decisions with 0, 1 and 100 % of them traced."),
    "scale": ("in_process", "Decisions in process as pods and nodes grow."),
    "cold": ("in_process", "The first use of a selector that was never used before."),
    "changes": ("changes", "Changes applied, what they cost decisions, and when they are seen."),
    "sync": ("sync", "Objects listed and events taken in from an API server."),
    "start": ("start", "Time until a new process is ready, and its memory."),
    "placements": ("race.command", "Places held by two servers at once, each judged afterwards."),
    "extender": ("extender", "kube-scheduler's extender over HTTP, with 500 candidates."),
    "planner": ("planner", "The planner's calls, one after the other."),
    "inspector": ("inspector", "Lists of all constraints, and what their metrics cost decisions."),
}
"""Benches by name: the module whose function `measure_NAME` it is, and its help."""

_C = TypeVar("_C", bound="Callable[..., Any]")
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


def common_options(command: _C) -> _C:
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


@click.group("bench", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Measure the server on this machine, on clusters made up for it.

    Each bench starts the servers it needs, on loopback, and ends them. Cases take turns in rounds;
    figures are medians, with the lowest and highest round beside them.
    """


def _command(name: str, about: str) -> click.Command:
    @click.command(name, help=about)
    @common_options
    @pass_options
    def one(options: ClientOptions, /, **chosen: Any) -> None:
        from bench.figures import environment

        figures = run(name, _bench_options(**chosen))
        if options.output in ("json", "yaml"):
            found = {**figures.plain(), "environment": environment()}
            output.dump(found, options.output)
        else:
            show(figures)

    return one


@click.command("all")
@click.option(
    "--report",
    type=_DIRECTORY,
    help="Of a checkout: write docs/benchmarks.md, its plots and CONTRIBUTING.md's table.",
)
@common_options
@pass_options
def everything(options: ClientOptions, /, report: Path | None, **chosen: Any) -> None:
    """All benches, one after the other; with --report, as a page with plots."""
    from bench.figures import environment
    from bench.report import write

    bench_options = _bench_options(**chosen)
    before = environment()
    found: Mapping[str, Figures] = {name: run(name, bench_options) for name in BENCHES}
    if report is not None:
        write(report, found, bench_options, before, environment())
        output.warn(f"wrote {report / 'docs' / 'benchmarks.md'}")
    if options.output in ("json", "yaml"):
        plain: dict[str, Any] = {name: figures.plain() for name, figures in found.items()}
        output.dump({**plain, "environment": environment()}, options.output)
    elif report is None:
        for figures in found.values():
            show(figures)


for _name, (_, _about) in BENCHES.items():
    command.add_command(_command(_name, _about))
command.add_command(everything)
command.add_command(race)
command.add_command(sizes)
command.add_command(soak)


def run(name: str, options: BenchOptions) -> Figures:
    """Run one bench."""
    from bench.processes import require_proc

    require_proc()
    module, _ = BENCHES[name]
    measure = getattr(importlib.import_module(f"bench.{module}"), f"measure_{name}")
    figures: Figures = measure(options)
    return figures


def show(figures: Figures) -> None:
    """Print a table."""
    plain = figures.plain()
    spread = plain["spread"]
    output.table(
        ("FIGURE", "#MEDIAN", "#LOWEST", "#HIGHEST"),
        [(name, plain[name], *spread[name]) for name in spread],
    )
    for name, reason in figures.missing.items():
        output.warn(f"{name}: not measured: {reason}")


def _bench_options(
    nodes: int,
    pods: int,
    seconds: float,
    rounds: int,
    recorded: str,
    redis_server: str,
    ghz: str,
) -> BenchOptions:
    from bench.cluster import Size
    from bench.options import BenchOptions
    from bench.stores import program_of

    return BenchOptions(
        size=Size(nodes, pods),
        seconds=seconds,
        rounds=rounds,
        progress=lambda text: output.warn(f"bench: {text}"),
        redis_server=program_of(redis_server),
        ghz=ghz or shutil.which("ghz") or "",
        go=shutil.which("go") is not None,
        recorded=recorded,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a bench and return its exit code, which is one of those of `topospread`."""
    return run_command(command, "python -m bench", arguments)


if __name__ == "__main__":
    sys.exit(main())
