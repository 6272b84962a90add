"""`topospread plan-rebalance`: the fewest evictions that bring constraints within maxSkew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import documents, output
from topospread.cli.completeness import require_nodes, require_pods
from topospread.cli.errors import DONE, NO_NODE_FITS
from topospread.cli.kinds import full_name, pod_path
from topospread.cli.options import MAX_NUMBER, ClientOptions, Seconds, server_verb
from topospread.cli.output import Column
from topospread.cli.request_options import (
    RequestOptions,
    all_namespaces_option,
    request_options,
)
from topospread.cli.state_source import from_option
from topospread.wording import counted
from topospread_client import selector_from_query
from topospread_proto.v1.common_pb2 import OPTIMALITY_PROVEN, Consistency, Optimality
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest, PlanRebalanceResponse
from topospread_proto.v1.rebalance_pb2 import REBALANCE_OUTCOME_PLANNED, RebalanceOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.v1.rebalance_pb2 import RebalanceConstraint, RebalanceGroup, StuckPods

_COUNT: Final = click.IntRange(0, MAX_NUMBER)


@click.command("plan-rebalance", short_help="Which evictions would even pods out?")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [all]")
@all_namespaces_option
@click.option(
    "--exclude-namespace", "excluded", multiple=True, metavar="NAME", help="Leave this one alone."
)
@click.option(
    "-l", "--selector", metavar="QUERY", help="Only the constraints of these pods; evict only them."
)
@click.option("--include-soft", is_flag=True, help="Also constraints that only prefer.")
@click.option("--max-evictions", type=_COUNT, metavar="N", help="In all.  [any number]")
@click.option(
    "--max-evictions-per-node", type=_COUNT, metavar="N", help="From one node.  [any number]"
)
@click.option(
    "--max-evictions-per-namespace",
    type=_COUNT,
    metavar="N",
    help="In one namespace.  [any number]",
)
@click.option(
    "--priority-threshold",
    type=click.IntRange(-MAX_NUMBER - 1, MAX_NUMBER),
    metavar="P",
    help="Evict only pods of a lower priority.  [2000000000]",
)
@click.option(
    "--evict-bare-pods",
    is_flag=True,
    help="Evict also pods without a controller, which are not recreated.",
)
@click.option(
    "--protect-pods-with-pvc",
    is_flag=True,
    help="Never evict pods with a persistent volume claim.",
)
@click.option(
    "--evict-pods-with-unknown-volumes",
    is_flag=True,
    help="Evict also pods with claims whose volumes are not in the state: as if nothing held them.",
)
@click.option("--protect-selector", metavar="QUERY", help="Never evict pods with these labels.")
@click.option(
    "--search-timeout",
    type=Seconds(0, 60, min_open=True),
    metavar="SECONDS",
    help="How long to search for fewer evictions.  [5]",
)
@request_options("settings")
@from_option
@server_verb
def command(
    options: ClientOptions,
    namespace: str | None,
    all_namespaces: bool,
    excluded: Sequence[str],
    selector: str | None,
    include_soft: bool,
    protect_selector: str | None,
    search_timeout: float | None,
    asked: RequestOptions,
    **limits: Any,
) -> int:
    """Plan the fewest evictions that bring all constraints within maxSkew together.

    Nothing is evicted. Each eviction names a node that the replacement can go to then. The exit
    code is 1 when a constraint stays above its maxSkew.
    """
    request = PlanRebalanceRequest(
        namespace=namespace or "",
        excluded_namespaces=excluded,
        include_soft=include_soft,
        consistency=Consistency(fully_consistent=True),
    )
    # Each of these options has the name of its field.
    for name, value in limits.items():
        part = request.eviction_limits if name.startswith("max_") else request.filters
        if value is not None:
            setattr(part, name, value)
    if selector:
        request.label_selector.CopyFrom(selector_from_query(selector, "--selector"))
    if protect_selector:
        protected = selector_from_query(protect_selector, "--protect-selector")
        request.filters.protect_selector.CopyFrom(protected)
    if search_timeout is not None:
        request.search_timeout.FromNanoseconds(round(search_timeout * 1e9))
    with options.client() as client:
        plan = client.call("PlanRebalance", asked.fill(request))
        if not plan.constraint_count:
            require_pods(client, namespace, request.label_selector if selector else None)
        elif not plan.violated_constraint_count:
            require_nodes(client)
    documents.present(
        options.output,
        "RebalancePlan",
        lambda: _print(plan),
        (pod_path(each.pod) for each in plan.evictions),
        cluster=options.cluster,
        answer=plan,
    )
    for text in plan.notes:
        output.warn(f"note: {text}")
    return NO_NODE_FITS if plan.remaining_constraint_count else DONE


_CONSTRAINTS: Final = (
    Column("#", lambda row: row[0]),
    Column("TOPOLOGY KEY", lambda row: row[1].constraint.topology_key),
    Column("NAMESPACE", lambda row: row[1].constraint.namespace),
    Column("SELECTOR", lambda row: row[1].constraint.selector_text),
    Column("#MAX SKEW", lambda row: row[1].constraint.max_skew),
    Column("#SKEW", lambda row: row[1].skew_before),
    Column("#AFTER", lambda row: _after(row[1])),
)
"""Of constraints with the numbers of their groups."""

_EVICTIONS: Final = (
    Column("#STEP", lambda row: row[0]),
    Column("EVICT", lambda row: full_name(row[1].pod)),
    Column("FROM", lambda row: row[1].node),
    Column("REPLACEMENT CAN GO TO", lambda row: row[1].target_node),
    Column("#FITTING", lambda row: row[1].fitting_node_count),
)


def _after(each: RebalanceConstraint) -> str:
    """The planned skew, and the highest where the scheduler may choose otherwise."""
    planned, highest = each.skew_after, each.highest_skew_after
    return f"{planned} to {highest}" if highest > planned else f"{planned}"


def _print(plan: PlanRebalanceResponse) -> None:
    if plan.groups:
        groups = list(enumerate(plan.groups, 1))
        rows = [(number, each) for number, group in groups for each in group.constraints]
        output.print_items(_CONSTRAINTS, rows)
        click.echo()
        for number, group in groups:
            output.echo(f"{number}: {_summary(group)}")
        click.echo()
    if plan.evictions:
        output.print_items(_EVICTIONS, enumerate(plan.evictions, 1))
        click.echo()
    constraints = counted(plan.constraint_count, "constraint")
    output.fields(
        [
            ("evictions", f"{len(plan.evictions)}{_optimality_text(plan.optimality)}"),
            (
                "above maxSkew",
                f"{plan.violated_constraint_count} of {constraints}",
            ),
            ("after the plan", f"{plan.remaining_constraint_count}"),
            ("not evictable", ", ".join(map(_stuck, plan.stuck))),
            ("not looked at", ", ".join(plan.not_modelled)),
            ("revision", plan.meta.revision),
            ("trace", documents.trace_id(plan)),
        ]
    )


_LIFTED: Final = {
    "of too high a priority": "--priority-threshold",
    "without a controller": "--evict-bare-pods",
}
"""Options that let pods go which stay, by the reason."""


def _stuck(pods: StuckPods) -> str:
    option = _LIFTED.get(pods.reason)
    return f"{pods.pod_count} {pods.reason}" + (f" ({option})" if option else "")


def _summary(group: RebalanceGroup) -> str:
    text = documents.words(documents.value_name(RebalanceOutcome, group.outcome))
    if group.HasField("eviction_count"):
        evictions = counted(group.eviction_count, "eviction")
        text += f", {evictions}{_optimality_text(group.optimality)}"
    if group.outcome == REBALANCE_OUTCOME_PLANNED and group.optimality != OPTIMALITY_PROVEN:
        text += _of_unproven(group)
    if group.at_once:
        text += ": evict all of them before the first replacement is placed"
    if group.reason:
        text += f": {group.reason}"
    if pending := group.pending_pod_count:
        pods = "1 pending pod counts" if pending == 1 else f"{pending} pending pods count"
        text += f"; {pods} for it once the scheduler finds a node: plan again then"
    return text


def _of_unproven(group: RebalanceGroup) -> str:
    """What keeps a plan from being proven."""
    said = []
    if group.eviction_count > group.fewest_eviction_count:
        said.append(f"{group.fewest_eviction_count} may do")
    above = [
        f"{each.constraint.topology_key} {each.highest_skew_after}"
        for each in group.constraints
        if each.highest_skew_after
        > max(each.constraint.max_skew, 0 if each.wanted else each.skew_before)
    ]
    if above:
        said.append(
            "the scheduler may choose other nodes, which may leave a skew of up to "
            + ", ".join(above)
        )
    if group.replacement_may_wait:
        said.append("a replacement may find no node")
    return f": {'; '.join(said)}" if said else ""


def _optimality_text(known: Optimality.ValueType) -> str:
    return f" ({documents.words(documents.value_name(Optimality, known))})" if known else ""
