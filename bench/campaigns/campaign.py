"""Commands of campaigns: shared options, how figures are printed, and when a check fails."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from bench.command import run_command
from topospread.cli import output
from topospread.cli.options import ClientOptions, output_option, pass_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MIB: Final = 1 << 20
MAX_SHOWN: Final = 20
"""Broken promises that are printed, each with so many characters; `-o json` has all of them."""

MAX_CHARACTERS: Final = 3000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a campaign measured.

    Attributes:
        figures: by name, nested where several belong together.
        broken: promises that were broken, a sentence each.
    """

    figures: Mapping[str, Any]
    broken: Sequence[str] = ()


Option = Any
"""A decorator that `click.option` returns."""

nodes_option: Final = click.option(
    "--nodes", type=click.IntRange(1), default=5000, show_default=True
)
pods_option: Final = click.option(
    "--pods", type=click.IntRange(0), default=50_000, show_default=True
)
seed_option: Final = click.option(
    "--seed", type=int, default=1, show_default=True, help="Of all that is random."
)
server_flag_option: Final = click.option(
    "--server-flag", "server_flags", multiple=True, metavar="FLAG", help="Of topospread serve."
)


def campaign(name: str, *options: Option) -> Callable[[Callable[..., Outcome]], click.Command]:
    """Make a function that measures the command of a campaign, with `-o` and `--check`."""

    def decorated(measure: Callable[..., Outcome]) -> click.Command:
        def one(given: ClientOptions, /, *, check: bool, **chosen: Any) -> int:
            outcome = measure(**chosen)
            _show(outcome, given.output)
            return 1 if check and outcome.broken else 0

        made: Any = pass_options(one)
        for option in reversed(options):
            made = option(made)
        made = click.option("--check", is_flag=True, help="End with 1 when a promise is broken.")(
            made
        )
        return click.command(name, help=measure.__doc__)(output_option(made))

    return decorated


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run one campaign's command and return its exit code."""
    return run_command(command, f"python -m bench.campaigns.{command.name}", arguments)


def note(text: str) -> None:
    """Say on stderr what is under way."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _show(outcome: Outcome, form: str) -> None:
    if form in ("json", "yaml"):
        output.dump({**outcome.figures, "broken": [*outcome.broken]}, form)
        return
    figures = outcome.figures
    if figures and all(isinstance(each, Mapping) for each in figures.values()):
        columns = [*dict.fromkeys(name for each in figures.values() for name in each)]
        rows = [
            (name, *(_cell(each.get(column)) for column in columns))
            for name, each in figures.items()
        ]
        output.table(("FIGURE", *(f"#{column.upper()}" for column in columns)), rows)
    else:
        output.table(("FIGURE", "#VALUE"), [*_flat(figures)])
    for broken in outcome.broken[:MAX_SHOWN]:
        output.warn(broken[:MAX_CHARACTERS])
    if len(outcome.broken) > MAX_SHOWN:
        output.warn(f"and {len(outcome.broken) - MAX_SHOWN} more")


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}: ")
        else:
            yield f"{before}{name}", _cell(value)


def _cell(value: object) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case Mapping():
            return ", ".join(f"{_cell(each)} {name}" for name, each in value.items()) or "0"
        case None:
            return "-"
    return str(value)
