"""`topospread report --watch`: the table drawn anew on a terminal, else what changes."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from topospread.cli import documents, output
from topospread.cli.render.constraints import item, path_of, print_table, totals_text
from topospread_client import ConstraintTable, WatchEventType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.cli.options import ClientOptions
    from topospread_client import ConstraintStatus, WatchConstraintsResponse

_LINES_BESIDE_ROWS = 4
"""Of a terminal: headings, rows that are left out, totals, and the cursor."""

_CLEAR = "\x1b[H\x1b[J"
"""Makes a terminal go to its first line, and forget what is shown."""


def follow(
    watch: Iterable[WatchConstraintsResponse],
    options: ClientOptions,
    order: Callable[[ConstraintStatus], Any],
    *,
    headings: bool,
) -> None:
    """Show what a watch tells until it ends.

    Args:
        watch: its messages.
        options: with the form of output.
        order: of the rows.
        headings: whether tables have any.
    """
    table = ConstraintTable()
    redraws = options.output == "table" and sys.stdout.isatty()
    changes = _Changes(options, headings=headings)
    shown: dict[str, ConstraintStatus] = {}
    for message in watch:
        if not table.apply(message):
            continue
        if redraws:
            _draw(table, options, order, headings=headings)
            continue
        there = table.constraints
        changed = [each for each in there.values() if shown.get(each.constraint_id) is not each]
        new = [each for each in changed if each != shown.get(each.constraint_id)]
        gone = [each for key, each in shown.items() if key not in there]
        changes.print(sorted(new, key=order), message.revision)
        changes.print(sorted(gone, key=order), message.revision, gone=True)
        shown = dict(there)


def _draw(
    table: ConstraintTable,
    options: ClientOptions,
    order: Callable[[ConstraintStatus], Any],
    *,
    headings: bool,
) -> None:
    """Draw the rows that the terminal has room for, and how many there are."""
    capacity = max(shutil.get_terminal_size().lines - _LINES_BESIDE_ROWS, 1)
    rows = sorted(table.constraints.values(), key=order)
    click.echo(_CLEAR, nl=False)
    print_table(rows[:capacity], wide=options.wide, headings=headings)
    if len(rows) > capacity:
        output.echo(f"... and {len(rows) - capacity:,} more")
    totals = {each.state: each.constraint_count for each in table.totals}
    output.echo(totals_text(totals, len(rows)))


class _Changes:
    """Prints changes one after the other, as `kubectl get --watch` does."""

    def __init__(self, options: ClientOptions, *, headings: bool) -> None:
        self._options = options
        self._headings = headings
        self._widths: Sequence[int] = ()

    def print(
        self, constraints: Sequence[ConstraintStatus], revision: str, *, gone: bool = False
    ) -> None:
        """Print constraints that are new, differ or are gone."""
        options = self._options
        if options.output in {"json", "yaml"}:
            for each in constraints:
                _print_document(each, revision, options, gone=gone)
        elif options.output == "name":
            for each in constraints:
                output.echo(path_of(each.constraint_id))
        elif constraints:
            self._widths = print_table(
                constraints,
                wide=options.wide,
                headings=self._headings,
                least=self._widths,
                gone=gone,
            )
            self._headings = False


def _print_document(
    each: ConstraintStatus, revision: str, options: ClientOptions, *, gone: bool
) -> None:
    document = documents.document(
        "ConstraintEvent",
        cluster=options.cluster,
        revision=revision,
        type=WatchEventType.DELETED if gone else WatchEventType.APPLIED,
        constraint=item(each),
    )
    if options.output == "json":
        click.echo(json.dumps(document))
    else:
        output.dump([document], "yaml")
