"""`topospread report`: how the pods of all constraints are spread, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli.constraint_lists import (
    STATES,
    ConstraintList,
    Wanted,
    complete_states,
    listed,
    parse_states,
    workloads_named,
)
from topospread.cli.errors import DONE, NO_NODE_FITS
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render.constraint_changes import follow
from topospread.cli.render.constraints import show
from topospread.cli.request_options import (
    all_namespaces_option,
    check_all_namespaces,
    consistency_of,
    consistency_option,
    rules_options,
    settings_of,
)
from topospread.cli.state_source import check_changes, from_option
from topospread_client import ConstraintOrder, SpreadState, selector_from_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from topospread_client import ConstraintStatus

_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"

_WORST_FIRST: Final = list(STATES.values())


def _by_name(each: ConstraintStatus) -> Any:
    owner = (each.owner.kind, each.owner.name) if each.owner else ("", "")
    return (each.constraint.namespace, *owner, each.constraint.topology_key, each.constraint_id)


def _by_severity(each: ConstraintStatus) -> Any:
    excess = each.skew - each.constraint.max_skew
    return (_WORST_FIRST.index(each.state), -each.blocked_pod_count, -excess, _by_name(each))


_BY_SERVER: Final = {"severity": ConstraintOrder.SEVERITY, "name": ConstraintOrder.NAME}
"""Values of `--sort-by` that the server sorts a list by."""

_ORDERS: Final[Mapping[str, Callable[[ConstraintStatus], Any]]] = {
    "severity": _by_severity,
    "name": _by_name,
    "skew": lambda each: (-each.skew, _by_severity(each)),
    "pods": lambda each: (-each.pod_count, _by_severity(each)),
    "pending": lambda each: (-each.pending_pod_count, _by_severity(each)),
    "blocked": lambda each: (-each.blocked_pod_count, _by_severity(each)),
}
"""Values of `--sort-by`."""


@click.command("report", short_help="How are pods spread, and where badly?")
@click.argument("workloads", nargs=-1, metavar="[KIND/NAME]...")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [all]")
@all_namespaces_option
@click.option(
    "-l", "--selector", metavar="QUERY", help="Only constraints of pods with these labels."
)
@click.option(
    "--state",
    "states",
    callback=parse_states,
    shell_complete=complete_states,
    metavar="STATE,…",
    help=f"Only constraints in these states: {', '.join(STATES)}.",
)
@click.option("--key", metavar="KEY", help="Only constraints with this topology key.")
@click.option(
    "--hard/--soft", "hard", default=None, help="Only DoNotSchedule; only ScheduleAnyway.  [both]"
)
@click.option(
    "--sort-by",
    type=click.Choice(list(_ORDERS)),
    default="severity",
    show_default=True,
    help="Order; by a number, the greatest first.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show the first N.  [all]")
@click.option(
    "--domains",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Domains to list of each constraint: those with the fewest pods and with the most.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(STATES)),
    help="Exit code 1 when a constraint is in this state or a worse one.",
)
@click.option("--no-headers", is_flag=True, help="Print the table's rows alone.")
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Go on until Ctrl-C: draw the table anew on a terminal, else print what changes.",
)
@rules_options
@consistency_option
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    workloads: Sequence[str],
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    states: Sequence[SpreadState],
    key: str | None,
    hard: bool | None,
    sort_by: str,
    limit: int | None,
    domains: int,
    fail_on: str | None,
    no_headers: bool,
    watch: bool,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    consistency: str,
) -> int:
    """Show how the pods of each constraint in force are spread, the worst first.

    With KIND/NAME, as deploy/web, only the constraints of these workloads. A row has the skew and
    maxSkew, the state, the pods that wait and those of them that wait for this constraint alone,
    and the pods of each domain.

    States, the worst first: blocked, the next replica has no domain that the constraint allows;
    violated, skew is above maxSkew; ineffective, it cannot do what it says; satisfied.
    """
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    failing = _failing(states, fail_on)
    wanted = Wanted(
        namespace,
        workloads_named(workloads),
        selector_from_query(selector, "--selector") if selector else None,
        states,
        key,
        None if hard is None else _HARD if hard else _SOFT,
        _BY_SERVER.get(sort_by, ConstraintOrder.NAME),
        domains,
        settings_of(args_file, profile, gates),
    )
    if watch:
        _check_watch(options, wanted, limit, fail_on)
        with options.client() as client:
            changes = client.watch_constraints(**wanted.filters(next(iter(wanted.owners), None)))
            follow(changes, options, _ORDERS[sort_by], headings=not no_headers)
        return DONE
    freshness = consistency_of(consistency)
    in_order = sort_by in _BY_SERVER and len(wanted.owners) <= 1
    with options.client() as client:
        found = listed(client, wanted, freshness, limit if in_order else None)
    if not in_order:
        found.constraints = sorted(found.constraints, key=_ORDERS[sort_by])[:limit]
    show(found, wanted, options, headings=not no_headers)
    return _exit_code(found, failing)


def _check_watch(
    options: ClientOptions, wanted: Wanted, limit: int | None, fail_on: str | None
) -> None:
    """Refuse what a watch cannot do.

    Raises:
        UsageError: with what to leave out.
    """
    if len(wanted.owners) > 1:
        raise click.UsageError("--watch is of one workload, or of all")
    if limit or fail_on:
        raise click.UsageError("--limit and --fail-on are of one look: leave --watch out")
    check_changes(options)


def _failing(states: Sequence[SpreadState], fail_on: str | None) -> Sequence[SpreadState]:
    """States of constraints that fail the check; none without one.

    Raises:
        UsageError: `--state` leaves all of them out, so that the check always passes.
    """
    if fail_on is None:
        return ()
    bad = _WORST_FIRST[: _WORST_FIRST.index(STATES[fail_on]) + 1]
    failing = [state for state in bad if not states or state in states]
    if not failing:
        words = " or ".join(state.label.lower() for state in bad)
        raise click.UsageError(
            f"--fail-on {fail_on} fails on nothing that --state shows: add {words} to --state, or "
            "leave one of the two out"
        )
    return failing


def _exit_code(found: ConstraintList, failing: Sequence[SpreadState]) -> int:
    """1 where a constraint that passes the filters is as bad as `--fail-on` says, shown or not."""
    return NO_NODE_FITS if any(found.totals[state] for state in failing) else DONE
