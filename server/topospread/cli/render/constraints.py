"""Lists of constraints: tables with a bar for each domain, and documents."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import MAX_LINES
from topospread_client import SpreadState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.cli.constraint_lists import ConstraintList, Wanted
    from topospread.cli.options import ClientOptions
    from topospread_client import ConstraintStatus

COLUMNS: Final = ("NAMESPACE", "OWNER", "KEY", "WHEN", "SKEW", "STATE", "#PENDING", "#BLOCKED")
WIDE_COLUMNS: Final = ("DOMAINS", "SELECTOR", "DEFAULTED", "ID")

_STATE: Final = COLUMNS.index("STATE")

STYLES: Final = {"Blocked": "red", "Violated": "red", "Ineffective": "yellow"}
"""Colours of states on a terminal."""

_WELL_KNOWN: Final = ("topology.kubernetes.io/", "kubernetes.io/")
"""Prefixes that tables leave out of keys."""

_WIDTH: Final = 72
"""Characters of a spread where no terminal limits them."""

_NARROWEST: Final = 20
"""Characters that a spread may have on any terminal."""

_BAR: Final = 10
"""Characters of the longest bar."""


def item(status: ConstraintStatus) -> dict[str, Any]:
    """Constraint as an item of a document, with the fields of its own beside those of its state."""
    own, state = documents.plain(status.constraint), documents.plain(status)
    del own["id"], state["constraint"]
    return {**own, **state}


def path_of(constraint_id: str) -> str:
    """Name of a constraint as `-o name` prints it."""
    return f"constraint/{constraint_id}"


def show(found: ConstraintList, wanted: Wanted, options: ClientOptions, *, headings: bool) -> None:
    """Print a list in the form of `--output`; how many there are in each state goes to stderr."""
    if options.output == "name":
        for each in found.constraints:
            output.echo(path_of(each.constraint_id))
    elif options.output != "table":
        _show_document(found, options)
    elif found.constraints:
        print_table(found.constraints, wide=options.wide, headings=headings)
        if headings and not options.wide:
            _print_messages(found.constraints)
        output.warn(totals_text(found.totals, len(found.constraints)))
    else:
        warn_of_none(found, wanted)


def warn_of_none(found: ConstraintList, wanted: Wanted) -> None:
    """Say on stderr that no constraint is shown: there is none, or none in these states."""
    others = found.totals.total()
    output.warn(totals_text(found.totals, 0) if others else wanted.nothing_found)


def _show_document(found: ConstraintList, options: ClientOptions) -> None:
    totals = [
        {"state": state, "constraintCount": found.totals[state]} for state in reversed(SpreadState)
    ]
    documents.show(
        "ConstraintList",
        options.output,
        cluster=options.cluster,
        revision=found.revision,
        totals=totals,
        items=[item(each) for each in found.constraints],
    )


def owner_text(each: ConstraintStatus) -> str:
    """Controller of a constraint's pods as KIND/NAME; empty without one."""
    return f"{each.owner.kind}/{each.owner.name}" if each.owner else ""


def cells(each: ConstraintStatus, *, wide: bool) -> list[object]:
    """Cells of a constraint's row, but for its spread."""
    key = each.constraint.topology_key
    if not wide:
        for prefix in _WELL_KNOWN:
            key = key.removeprefix(prefix)
    row: list[object] = [
        each.constraint.namespace,
        owner_text(each),
        key,
        each.constraint.when_unsatisfiable,
        f"{each.skew}/{each.constraint.max_skew}",
        each.state.label,
        each.pending_pod_count,
        each.blocked_pod_count,
    ]
    if wide:
        allowed, eligible = each.allowed_domain_count, each.eligible_domain_count
        row += [
            f"{allowed} of {eligible} allow" if allowed < eligible else f"{eligible}",
            each.constraint.selector_text,
            "yes" if each.defaulted else "no",
            each.constraint_id,
        ]
    return row


def print_table(
    constraints: Sequence[ConstraintStatus],
    *,
    wide: bool,
    headings: bool = True,
    least: Sequence[int] = (),
    gone: bool = False,
) -> Sequence[int]:
    """Print a row for each constraint, with its spread.

    Args:
        constraints: in their order.
        wide: with all columns.
        headings: whether to print these.
        least: widths of the columns of an earlier table.
        gone: the constraints are there no more.

    Returns:
        The columns' widths.
    """
    columns = [*COLUMNS, *(WIDE_COLUMNS if wide else ()), "SPREAD", *(["MESSAGE"] if wide else [])]
    rows = [cells(each, wide=wide) for each in constraints]
    width = _WIDTH if wide else _width_left(columns[:-1], rows)
    for row, each in zip(rows, constraints, strict=True):
        if gone:
            row[_STATE] = "Gone"
        row.append(spread(each, width))
        if wide:
            row.append(each.message)
    return output.table(columns, rows, styles=STYLES, headings=headings, least=least)


def print_ids(constraints: Sequence[ConstraintStatus], *, headings: bool) -> None:
    """Print a row for each constraint, with the id by which `get` takes it."""
    columns = [COLUMNS[0], "ID", *COLUMNS[1:]]
    rows = [cells(each, wide=False) for each in constraints]
    for row, each in zip(rows, constraints, strict=True):
        row.insert(1, each.constraint_id)
    output.table(columns, rows, styles=STYLES, headings=headings)


def _width_left(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Characters that a terminal has left for spreads beside the other columns."""
    if not sys.stdout.isatty():
        return _WIDTH
    names = [column.removeprefix("#") for column in columns]
    taken = [
        max(len(str(cell or output.NONE)) for cell in column)
        for column in zip(names, *rows, strict=True)
    ]
    left = shutil.get_terminal_size().columns - sum(taken) - 2 * len(taken)
    return max(left, _NARROWEST)


def spread(each: ConstraintStatus, width: int) -> str:
    """How pods are spread over domains: a bar for each, or the ends where they are too many."""
    if not each.domains:
        return ""
    if each.unlisted_domain_count == 0:
        domains = sorted(each.domains, key=lambda domain: domain.value)
        values = [domain.value or '""' for domain in domains]
        for names in (values, _without_prefix(values)):
            shown = _bars(
                list(zip(names, (each.pod_count for each in domains), strict=True)), width
            )
            if shown:
                return shown
    counts = f"{each.lowest_pod_count}..{each.highest_pod_count}"
    return f"{counts} in {each.eligible_domain_count} domains"


def _without_prefix(values: Sequence[str]) -> Sequence[str]:
    """Values without the words that all begin with: eu-west-1a and eu-west-1b as -1a and -1b."""
    shared = os.path.commonprefix(values).rfind("-")  # noqa: RUF071 # of characters, as meant
    return values if shared < 0 else [value[shared:] for value in values]


def _bars(domains: Sequence[tuple[str, int]], width: int) -> str:
    """A bar for each domain; empty where they do not fit."""
    block, between = ("█", " · ") if output.encodable("█·") else ("#", ", ")
    most = max(pods for _, pods in domains)
    words = sum(len(f"{value}  {pods}") for value, pods in domains)
    capacity = width - words - len(between) * (len(domains) - 1)
    longest = min(_BAR, most, capacity // len(domains))
    if capacity < 0 or (most and not longest):
        return ""
    bars = (block * -(-pods * longest // most) if most else "" for _, pods in domains)
    return between.join(
        f"{value} {bar} {pods}" if bar else f"{value} {pods}"
        for (value, pods), bar in zip(domains, bars, strict=True)
    )


def totals_text(totals: Mapping[SpreadState, int], shown: int) -> str:
    """Number of constraints in each state, the worst first, for people."""
    everything = sum(totals.values())
    counted = [
        f"{totals[state]} {state.label.lower()}" for state in reversed(SpreadState) if totals[state]
    ]
    text = f"{everything} constraint{'s' * (everything != 1)}"
    text += f": {', '.join(counted)}" if counted else ""
    return text if shown == everything else f"{text}; {shown} shown"


def _print_messages(constraints: Sequence[ConstraintStatus]) -> None:
    """Print why constraints are not satisfied, a line for each."""
    worse = [each for each in constraints if each.message]
    if worse:
        click.echo()
    for each in worse[:MAX_LINES]:
        where = f"{each.constraint.namespace} {owner_text(each)}".rstrip()
        output.echo(f"{where}, {each.constraint.topology_key}: {each.message}")
    if len(worse) > MAX_LINES:
        output.echo(f"... and {len(worse) - MAX_LINES} more: -o wide has all messages")
