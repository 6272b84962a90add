"""`topospread report`: how the pods of all constraints are spread, the worst first."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.completeness import require_nodes, require_pods
from topospread.cli.errors import DONE, NO_NODE_FITS, BadInput
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.render.constraint_lists import listed, resolved, workloads_named
from topospread.cli.render.constraints import (
    STATES,
    complete_states,
    nothing_found,
    parse_states,
    path_of,
    print_table,
    row_gaps_text,
    show,
    totals_text,
)
from topospread.cli.request_options import (
    RequestOptions,
    all_namespaces_option,
    request_options,
)
from topospread.cli.state_source import check_changes, from_option
from topospread_client import selector_from_query
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from topospread.cli.options import ApiCaller
    from topospread.cli.render.constraint_lists import OwnerName


def _by_name(each: pb.ConstraintStatus) -> Any:
    return (
        each.constraint.namespace,
        each.owner.kind,
        each.owner.name,
        each.constraint.topology_key,
        each.constraint_id,
    )


def _by_severity(each: pb.ConstraintStatus) -> Any:
    excess = each.skew - each.constraint.max_skew
    return (-each.state, -each.blocked_pod_count, -excess, _by_name(each))


_BY_SERVER: Final = {"severity": pb.CONSTRAINT_ORDER_SEVERITY, "name": pb.CONSTRAINT_ORDER_NAME}
"""Values of `--sort-by` that the server sorts a list by."""

_ORDERS: Final[Mapping[str, Callable[[pb.ConstraintStatus], Any]]] = {
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
@request_options("settings", "consistency")
@from_option
@server_verb
def command(
    options: ClientOptions,
    workloads: Sequence[str],
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    states: Sequence[pb.SpreadState.ValueType],
    key: str | None,
    hard: bool | None,
    sort_by: str,
    limit: int | None,
    domains: int,
    fail_on: str | None,
    no_headers: bool,
    watch: bool,
    asked: RequestOptions,
) -> int:
    """Show how the pods of each constraint in force are spread, the worst first.

    With KIND/NAME or KIND/NAMESPACE/NAME, as deploy/web, only those of these workloads. A row has
    the skew and maxSkew, the state, the pods that wait and those of them that wait for this
    constraint alone, and the pods of each domain.

    States, the worst first: blocked, the next replica has no domain that the constraint allows;
    violated, skew is above maxSkew; ineffective, it cannot do what it says; satisfied.
    """
    failing = _failing(states, fail_on)
    owners = workloads_named(workloads, namespace)
    wanted = pb.ConstraintFilter(
        namespace=namespace or "",
        label_selector=selector_from_query(selector, "--selector") if selector else None,
        states=states,
        topology_key=key or "",
        when_unsatisfiable=_WHEN[hard],
    )
    if watch:
        if len(owners) > 1:
            raise click.UsageError("--watch is of one workload, or of all")
        if limit or fail_on:
            raise click.UsageError("--limit and --fail-on are of one look: leave --watch out")
        check_changes(options)
        if owners:
            with options.client() as client:
                _choose(client, wanted, owners[0])
        watched = pb.WatchConstraintsRequest(filter=wanted, domain_limit=domains)
        changes = options.watch("WatchConstraints", asked.fill(watched))
        _follow(changes, options, _ORDERS[sort_by], headings=not no_headers)
        return DONE
    request = pb.ListConstraintsRequest(
        filter=wanted,
        order=_BY_SERVER.get(sort_by, pb.CONSTRAINT_ORDER_NAME),
        domain_limit=domains,
    )
    in_order = sort_by in _BY_SERVER and len(owners) <= 1
    with options.client() as client:
        found = listed(client, asked.fill(request), owners, limit if in_order else None)
        if not any(each.constraint_count for each in found.totals):
            labels = wanted.label_selector if selector else None
            require_pods(client, namespace, labels)
            if fail_on and key:
                raise BadInput(f"nothing was checked: {nothing_found(wanted)}")
        elif not any(each.domain_count for each in found.constraints):
            require_nodes(client)
    if not in_order:
        found.constraints.sort(key=_ORDERS[sort_by])
        del found.constraints[limit or len(found.constraints) :]
    show(found, wanted, options, headings=not no_headers)
    # What passes the filters counts, shown or not.
    failed = any(each.constraint_count for each in found.totals if each.state in failing)
    return NO_NODE_FITS if failed else DONE


def _choose(client: ApiCaller, wanted: pb.ConstraintFilter, owner: OwnerName) -> None:
    """Narrow a filter to one workload."""
    found = resolved(client, pb.ListConstraintsRequest(filter=wanted), owner)[0]
    wanted.owner.kind, wanted.owner.name = found.kind, found.name
    wanted.namespace = found.namespace or wanted.namespace


_WHEN: Final = {None: "", True: "DoNotSchedule", False: "ScheduleAnyway"}
"""whenUnsatisfiable by `--hard/--soft`."""


def _failing(
    states: Sequence[pb.SpreadState.ValueType], fail_on: str | None
) -> Sequence[pb.SpreadState.ValueType]:
    if fail_on is None:
        return ()
    bad = {word: state for word, state in STATES.items() if state >= STATES[fail_on]}
    failing = [state for state in bad.values() if not states or state in states]
    if not failing:
        raise click.UsageError(
            f"--fail-on {fail_on} fails on nothing that --state shows: add {' or '.join(bad)} to "
            "--state, or leave one of the two out"
        )
    return failing


_LINES_BESIDE_ROWS = 4
"""Of a terminal: headings, rows that are left out, totals, and the cursor; one more for gaps."""

_CLEAR = "\x1b[H\x1b[J"
"""Makes a terminal go to its first line, and forget what is shown."""


def _follow(
    watch: Iterable[pb.WatchConstraintsResponse],
    options: ClientOptions,
    order: Callable[[pb.ConstraintStatus], Any],
    *,
    headings: bool,
) -> None:
    from topospread_client import ConstraintTable

    table: Any = ConstraintTable()
    redraws = options.output == "table" and sys.stdout.isatty()
    shown: dict[str, pb.ConstraintStatus] = {}
    widths: Sequence[int] = ()
    said = ""
    for message in watch:
        if not table.apply(message):
            continue
        there = table.constraints
        if redraws:
            _draw(there.values(), table.totals, options, order, headings=headings)
            continue
        new = [each for key, each in there.items() if each != shown.get(key)]
        gone = [each for key, each in shown.items() if key not in there]
        for changed in (new, gone):
            if options.output == "table" and changed:
                widths = print_table(
                    sorted(changed, key=order),
                    wide=options.wide,
                    headings=headings and not widths,
                    least=widths,
                    gone=changed is gone,
                    apart=False,
                )
                continue
            for each in sorted(changed, key=order):
                _print(each, message.meta, options, gone=changed is gone)
        gaps = row_gaps_text(there.values())
        if options.output == "table" and gaps not in ("", said):
            output.warn(gaps)
        shown, said = dict(there), gaps


def _draw(
    constraints: Iterable[pb.ConstraintStatus],
    totals: Iterable[pb.SpreadStateCount],
    options: ClientOptions,
    order: Callable[[pb.ConstraintStatus], Any],
    *,
    headings: bool,
) -> None:
    rows = sorted(constraints, key=order)
    gaps = row_gaps_text(rows)
    beside = _LINES_BESIDE_ROWS + bool(gaps)
    capacity = max(shutil.get_terminal_size().lines - beside, 1)
    click.echo(_CLEAR, nl=False)
    print_table(rows[:capacity], wide=options.wide, headings=headings)
    if len(rows) > capacity:
        output.echo(f"... and {len(rows) - capacity:,} more")
    if gaps:
        output.echo(gaps)
    output.echo(totals_text(totals, len(rows)))


def _print(each: pb.ConstraintStatus, meta: Any, options: ClientOptions, *, gone: bool) -> None:
    if options.output == "name":
        output.echo(path_of(each.constraint_id))
        return
    event = documents.document(
        "ConstraintEvent",
        cluster=options.cluster,
        revision=meta.revision,
        kubernetes_version=meta.kubernetes_version,
        type="Deleted" if gone else "Applied",
        constraint=each,
    )
    output.dump_line(event, options.output)
