"""Printing: tables for people, JSON and YAML for programs, progress bars for terminals.

Answers go to stdout, everything else to stderr. Colour and progress show on a terminal only.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from topospread.cli.errors import UNPRINTABLE_IN_LINES, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

NONE: Final = "<none>"
"""Cell of a table where there is no value."""

_NOT_ASCII: Final = re.compile(r"[^\n -~]")

NO_STYLES: Final[Mapping[str, str]] = {}


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    styles: Mapping[str, str] = NO_STYLES,
    *,
    headings: bool = True,
    least: Sequence[int] = (),
) -> Sequence[int]:
    """Print rows under their headings, as wide as the cells: nothing is cut, as in kubectl.

    Headings that begin with ``#`` hold numbers and are set to the right; cells with None and ""
    show as ``<none>``. `styles` has colours of cells by their text, on a terminal. Columns have at
    least the widths in `least`, for rows below an earlier table; the new widths are returned.
    """
    cells = [[NONE if cell in (None, "") else printable(str(cell)) for cell in row] for row in rows]
    names = [column.removeprefix("#") for column in columns]
    widths = [
        max(fixed, *map(len, column))
        for fixed, column in zip(
            least or [0] * len(names), zip(names, *cells, strict=True), strict=True
        )
    ]
    pads = [str.rjust if column.startswith("#") else str.ljust for column in columns]

    def line(row: Sequence[str], *, bold: bool = False) -> str:
        padded = [pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        shown = [
            click.style(text, fg=colours.get(cell), bold=bold or None)
            if bold or cell in colours
            else text
            for text, cell in zip(padded, row, strict=True)
        ]
        return "  ".join(shown).rstrip()

    colours = {} if "NO_COLOR" in os.environ else styles
    if headings:
        if title:
            click.secho(title, bold=True)
        click.echo(line(names, bold=True))
    for row in cells:
        click.echo(line(row))
    return widths


class Column(NamedTuple):
    """One column of a table of items; its heading begins with ``#`` where it holds numbers."""

    heading: str
    value: Callable[[Any], object]
    wide: bool = False


def print_items(
    columns: Sequence[Column], items: Iterable[Any], *, wide: bool = False, **options: Any
) -> Sequence[int]:
    """Print a row for each item; `options` are those of :func:`table`."""
    shown = [column for column in columns if wide or not column.wide]
    rows = [[column.value(item) for column in shown] for item in items]
    return table([column.heading for column in shown], rows, **options)


def dump(value: Any, form: str) -> None:
    """Print a value as ``json`` or ``yaml``."""
    if form == "json":
        import orjson

        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        # JSON allows characters that a terminal acts on; escaped, they are read as the same.
        escaped = UNPRINTABLE_IN_LINES if encodable(text) else _NOT_ASCII
        click.echo(escaped.sub(lambda match: json.dumps(match[0])[1:-1], text))
        return
    import yaml

    def dumped(*, allow_unicode: bool) -> str:
        written: str = yaml.dump(
            value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=allow_unicode
        )
        return written

    text = dumped(allow_unicode=True)
    if UNPRINTABLE_IN_LINES.search(text) or not encodable(text):
        text = dumped(allow_unicode=False)
    click.echo(text, nl=False)


def dump_line(value: Any, form: str) -> None:
    """Print one value of many: a line of ``json``, or an item of a list in ``yaml``."""
    if form == "json":
        click.echo(json.dumps(value))
    else:
        dump([value], form)


def encodable(text: str) -> bool:
    """Whether stdout's encoding has all characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names with their values, aligned; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name + ':':<{width + 1}} {printable(str(value))}")


def separated(items: Iterable[Any], show: Callable[[Any], object]) -> None:
    """Print items with an empty line between."""
    for position, item in enumerate(items):
        if position:
            click.echo()
        show(item)


def yes_no(value: bool) -> str:
    """Cell of a column that is yes or no."""
    return "yes" if value else "no"


def seconds(duration: float | None) -> str:
    """A duration for a person; "" for none."""
    return "" if duration is None else f"{duration:.1f} s"


_AGES: Final = ((86400, "d"), (3600, "h"), (60, "m"))


def age(duration: float) -> str:
    """Duration in seconds in its largest unit, as kubectl has ages: ``3h``."""
    for unit, letter in _AGES:
        if duration >= 2 * unit:
            return f"{int(duration // unit)}{letter}"
    return f"{max(0, int(duration))}s"


def echo(text: str) -> None:
    """Print a line of the answer on stdout."""
    click.echo(printable(text))


def allow_closed_stdout() -> None:
    """Let a server print into a stdout that is closed: it has other ways to answer."""
    with suppress(OSError):
        number = sys.stdout.fileno()
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), number)


def warn(text: str) -> None:
    """Print lines beside the answer, on stderr."""
    for line in text.split("\n"):
        click.echo(printable(line), err=True)


def stderr_is_terminal() -> bool:
    """Whether a bar may be drawn there."""
    return sys.stderr.isatty()


@contextmanager
def progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Progress bar for long work, on a terminal; yields a function that takes done and total."""
    if not stderr_is_terminal():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show


def _no_progress(done: int, total: int) -> None:
    """Progress where stderr is no terminal."""
